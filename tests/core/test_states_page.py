"""The drawn state machines are those of the tables."""

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "draw_states.py"


def test_page_of_the_state_machines_is_what_the_tables_say() -> None:
    drawn = runpy.run_path(str(SCRIPT))
    assert drawn["PAGE"].read_text() == drawn["page"]()
