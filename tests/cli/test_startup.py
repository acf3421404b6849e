"""Imports make a command slow to start, so they are tested: times differ, imports do not."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.client.authority import served

IMPORTED_AT_MOST = 270
"""Modules with which a listing may end up, those of Python itself included: it has 250 to 263."""
HEAVY = ("asyncio", "fastapi", "grpc", "httpx", "numpy", "pydantic", "sqlalchemy", "yaml")


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["version"], ["ps", "--nope"]])
def test_command_without_a_cluster_imports_nothing_heavy(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MUSTER_URL", raising=False)
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path))
    program = (
        "import sys\n"
        "from muster.cli.program import app\n"
        "try:\n    app(args=sys.argv[1:])\n"
        f"finally:\n    print(sorted(set(sys.modules) & set({HEAVY!r})), file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=30
    )
    assert result.stderr.splitlines()[-1] == "[]"


def test_listing_of_a_quiet_cluster_imports_nothing_heavy_nor_rich() -> None:
    program = (
        "import sys\n"
        "from muster.cli.program import app\n"
        "try:\n    app(args=['--token', 't', '--url', sys.argv[1], 'ps'])\n"
        f"finally:\n"
        f"    print(sorted(set(sys.modules) & set({(*HEAVY, 'rich')!r})), file=sys.stderr)\n"
        f"    print(len(sys.modules), file=sys.stderr)\n"
    )
    with served(b'{"items": []}') as port:
        result = subprocess.run(
            [sys.executable, "-c", program, f"http://127.0.0.1:{port}"],
            capture_output=True,
            text=True,
            timeout=30,
        )
    *said, imported = result.stderr.splitlines()
    assert said == ["no job is waiting or running; `muster ps -a` lists those that ended", "[]"]
    assert int(imported) <= IMPORTED_AT_MOST


def test_listing_imports_nothing_that_setup_has_not_compiled() -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "import muster.cli.commands.ps, muster.cli.work_table, muster.client\n"
        "for module in sys.modules.values():\n"
        "    compiled = getattr(module, '__cached__', None)\n"
        "    if compiled and 'site-packages' in compiled and not Path(compiled).exists():\n"
        "        print(module.__name__)\n"
    )
    result = subprocess.run(
        [sys.executable, "-B", "-c", program], capture_output=True, text=True, timeout=30
    )
    assert (result.stdout, result.stderr) == ("", "")


def test_command_imports_no_other_command() -> None:
    program = (
        "import sys\n"
        "from muster.cli.program import app\n"
        "try:\n    app(args=['ps', '--help'])\n"
        "finally:\n"
        "    print({name.rpartition('.')[2] for name in sys.modules\n"
        "           if name.startswith('muster.cli.commands.')}, file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30
    )
    # `--version` is an option of the program.
    assert set(re.findall(r"\w+", result.stderr.splitlines()[-1])) == {"ps", "version"}
