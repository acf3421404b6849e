"""Writes docs/states.md from the state tables: `python scripts/draw_states.py`."""

from pathlib import Path

from muster.core.states import AGENT_TABLE, JOB_TABLE, KERNEL_TABLE, SESSION_TABLE, TASK_TABLE

PAGE = Path(__file__).parent.parent / "docs" / "states.md"
TABLES = {
    "Session": (SESSION_TABLE, "what is placed: kernels that start together or not at all"),
    "Kernel": (KERNEL_TABLE, "one process tree on one agent"),
    "Task": (TASK_TABLE, "one replica of a job; it FAILED only once no retry is left"),
    "Job": (JOB_TABLE, "derived from its tasks"),
    "Agent": (AGENT_TABLE, "the machine as the controller sees it"),
}


def page() -> str:
    parts = [
        "# State machines",
        "",
        "Drawn from the tables in `src/muster/core/states/` by `scripts/draw_states.py`; a test",
        "keeps this page equal to them.",
    ]
    for name, (table, what) in TABLES.items():
        parts += ["", f"## {name}", "", f"{what[0].upper()}{what[1:]}.", ""]
        parts += ["```mermaid", table.mermaid(), "```"]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
