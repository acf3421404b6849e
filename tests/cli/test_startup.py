"""Imports make a command slow to start, so they are tested: times differ, imports do not."""

import os
import subprocess
import sys
from collections.abc import Collection

import msgspec
import pytest
from tests.cli.fake_cluster import job
from tests.client.authority import served

from muster.cli import kinds
from muster.cli.commands import COMMANDS, load
from muster.cli.kinds.kind import WorkKind
from muster.core.states import JobState

HEAVY = (
    "asyncio",
    "concurrent",
    "email",
    "fastapi",
    "grpc",
    "hashlib",
    "http",
    "httpx",
    "logging",
    "numpy",
    "pydantic",
    "random",
    "sqlalchemy",
    "ssl",
    "subprocess",
    "tempfile",
    "yaml",
)
"""Modules that no command needs that neither shows a table nor handles files."""
SELDOM = (
    "muster.app",
    "muster.cli.described",
    "muster.core.reasons",
    "muster.core.resources",
    "muster.core.specs",
    "muster.simulate",
)
"""Modules of Muster's own of the same kind: they are long, or import much."""
SECONDS = 30


def imported_by(*words: str, env: dict[str, str] | None = None) -> Collection[str]:
    """The modules with which ``muster`` ends up after these words, in a process of its own."""
    program = (
        "import sys\n"
        "from muster.cli import main\n"
        "def tell(code):\n    print(*sys.modules, file=sys.stderr)\n    raise SystemExit\n"
        "main._leave = tell\n"
        "sys.argv[0] = 'muster'\n"
        "main.main()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=os.environ | (env or {}),
    )
    return ran.stderr.splitlines()[-1].split()


def among(imported: Collection[str], packages: Collection[str]) -> list[str]:
    """The packages that were imported, or modules of which were."""
    return [
        each for each in packages if any(f"{name}.".startswith(f"{each}.") for name in imported)
    ]


def test_version_imports_no_command_line() -> None:
    imported = imported_by("--version")
    assert "muster.cli.main" in imported
    assert among(imported, ("click", "re", "typing", "muster.cli.program", *HEAVY)) == []


@pytest.mark.parametrize("words", [["--help"], []])
def test_list_of_commands_imports_none_of_them(words: list[str]) -> None:
    imported = imported_by(*words)
    assert "click" in imported
    of_muster = ("muster.client", "muster.cli.kinds", "muster.cli.screen", *SELDOM)
    assert among(imported, (*HEAVY, *of_muster, "msgspec", "rich")) == []
    assert [each for each in imported if each.startswith("muster.cli.commands.")] == []


def test_completion_of_a_command_imports_none() -> None:
    typed = {"_MUSTER_COMPLETE": "zsh_complete", "COMP_WORDS": "muster ", "COMP_CWORD": "1"}
    imported = imported_by(env=typed)
    assert "click.shell_completion" in imported
    assert [each for each in imported if each.startswith("muster.cli.commands.")] == []
    assert among(imported, ("muster.client", "msgspec", "rich", *SELDOM)) == []


def test_summaries_of_commands_are_those_of_their_help() -> None:
    for name, listed in COMMANDS.items():
        command = load(name)
        assert command is not None
        assert not command.hidden
        for characters in (45, 64, 1000):
            assert listed.summary_within(characters) == command.get_short_help_str(characters)


@pytest.mark.parametrize("words", [["run", "--help"], ["version"], ["ps", "--nope"], ["ps"]])
def test_command_without_a_cluster_imports_nothing_heavy_nor_rich(
    words: list[str], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MUSTER_URL", raising=False)
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path_factory.mktemp("home")))
    assert among(imported_by(*words), (*HEAVY, *SELDOM, "rich")) == []


def test_listing_of_a_quiet_cluster_imports_nothing_heavy_nor_rich() -> None:
    with served(b'{"items": []}') as port:
        imported = imported_by("--token", "t", "--url", f"http://127.0.0.1:{port}", "ps")
    assert "muster.client.http1" in imported
    assert among(imported, (*HEAVY, *SELDOM, "rich")) == []
    others = [module for prefix, module in kinds.KINDS.items() if prefix not in kinds.WORK]
    assert among(imported, others) == []


@pytest.mark.parametrize("follows", [False, True])
def test_job_that_is_run_imports_nothing_heavy_nor_rich(follows: bool) -> None:
    how = [] if follows else ["--detach"]
    ended = msgspec.json.encode(job("train", JobState.SUCCEEDED))
    with served(ended) as port:  # whatever is asked
        imported = imported_by(
            "--token", "t", "--url", f"http://127.0.0.1:{port}", "run", *how, "--", "true"
        )
    assert ("muster.cli.follow.follow" in imported) is follows
    assert among(imported, (*HEAVY, *SELDOM, "rich")) == []


def test_kinds_of_work_are_those_that_are_declared_so() -> None:
    assert kinds.work() == [each for each in kinds.every() if isinstance(each, WorkKind)]


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
        [sys.executable, "-B", "-c", program], capture_output=True, text=True, timeout=SECONDS
    )
    assert (result.stdout, result.stderr) == ("", "")


def test_command_imports_no_other_command() -> None:
    imported = imported_by("ps", "--help")
    found = [each for each in imported if each.startswith("muster.cli.commands.")]
    assert found == ["muster.cli.commands.ps"]
