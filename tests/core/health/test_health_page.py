"""The page on health has the catalogue's table, and every example on it is read as it says."""

import json
import re
import runpy
from pathlib import Path

from muster.agent.health.found import BUILTIN, check_class
from muster.core.health.check_run import CheckRun, Ending
from muster.core.health.operator import read_report
from muster.core.health.verdict import CheckResult

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "write_health.py"
EXAMPLE = re.compile(r"```json\n(.*?)```", re.DOTALL)


def test_table_of_xids_is_what_the_catalogue_says() -> None:
    written = runpy.run_path(str(SCRIPT))
    assert written["PAGE"].read_text() == written["page"]()


def test_report_on_the_page_is_read() -> None:
    examples = EXAMPLE.findall((ROOT / "docs" / "health.md").read_text())
    assert examples
    for each in examples:
        run = CheckRun(Ending.EXITED, 0, json.dumps(json.loads(each)).encode())
        assert read_report(run, "nccl", "check-nccl").result is CheckResult.FAULTY


def test_every_check_that_comes_along_is_on_the_page() -> None:
    page = (ROOT / "docs" / "health.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\d) \|", page.partition("###")[0], re.MULTILINE)
    made = {name: check_class(name)() for name in BUILTIN}
    assert dict(rows) == {name: str(check.level) for name, check in made.items()}
