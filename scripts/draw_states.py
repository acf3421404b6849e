"""Writes docs/states.md from the entities: `python scripts/draw_states.py`."""

from pathlib import Path

from muster.control.modules import cluster_entities

PAGE = Path(__file__).parent.parent / "docs" / "states.md"


def page() -> str:
    parts = [
        "# State machines",
        "",
        "Drawn from what each entity declares, by `scripts/draw_states.py`; a test keeps this page",
        "equal to it.",
    ]
    for entity in cluster_entities().values():
        described = entity.described
        parts += [
            "",
            f"## {entity.name.title()}",
            "",
            f"{described[0].upper()}{described[1:]}.",
            "",
        ]
        parts += ["```mermaid", entity.states.mermaid(), "```"]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
