"""The page of the handlers tells those that there are, in their order."""

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "write_handlers.py"


def test_page_of_the_handlers_is_what_the_control_plane_runs() -> None:
    written = runpy.run_path(str(SCRIPT))
    assert written["PAGE"].read_text() == written["page"]()
