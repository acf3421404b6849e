"""The page of all keys is that of the models."""

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "write_specs.py"


def test_page_of_the_specs_is_what_the_models_say() -> None:
    written = runpy.run_path(str(SCRIPT))
    assert written["PAGE"].read_text() == written["page"](), "run scripts/write_specs.py"
