"""Writes the table of Xids in docs/health.md: `python scripts/write_health.py`."""

from pathlib import Path

from muster.core.health.kernel_log import XidEvent
from muster.core.health.xid import decide
from muster.core.health.xid_catalogue import CATALOGUE

PAGE = Path(__file__).parent.parent / "docs" / "health.md"
BEGIN, END = "<!-- xids -->", "<!-- end of xids -->"


def table() -> str:
    rows = [
        "| Xid | name | what happened | NVIDIA's bucket | Muster does |",
        "|---|---|---|---|---|",
    ]
    for number, xid in CATALOGUE.items():
        action = decide(XidEvent("0000:00:00", number, "", 0.0)).action
        said = xid.action if xid.action is action else f"{xid.action}: alone, {action}"
        bucket = f"`{xid.bucket}`" if xid.bucket else "none"
        rows.append(f"| {number} | `{xid.mnemonic}` | {xid.description} | {bucket} | {said} |")
    return "\n".join(rows)


def page() -> str:
    """The page with its table written anew."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page())
