"""An agent that finds a supervisor which another version of muster has left running."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agent.running import config, running
from tests.agent.supervisor.driver import Driver, alive
from tests.patience import until
from tests.wire.controller import controller

import muster
from muster.agent import daemon
from muster.agent.daemon import run
from muster.agent.supervisor import protocol
from muster.agent.trouble import read_trouble
from muster.core import relative_paths
from muster.core.ids import KernelId
from muster.wire.messages import HeldStatus, ReportKind

K1 = KernelId("krn-1")


@pytest.fixture
def other(directory: Path, tmp_path: Path) -> Driver:
    """A real supervisor whose files say that it speaks another version."""
    package = tmp_path / "other" / "muster"
    for name in ("", "agent", "core"):
        source = Path(muster.__file__).parent / name
        (package / name).mkdir(parents=True)
        shutil.copy(source / "__init__.py", package / name)
    shutil.copy(relative_paths.__file__, package / "core")
    files = Path(protocol.__file__).parent
    shutil.copytree(files, package / "agent" / "supervisor")
    theirs = package / "agent" / "supervisor" / "protocol.py"
    text = theirs.read_text()
    assert f"\nVERSION = {protocol.VERSION}\n" in text
    theirs.write_text(text.replace(f"\nVERSION = {protocol.VERSION}\n", "\nVERSION = 999\n"))
    script = theirs.with_name("__main__.py")
    directory.mkdir(mode=0o700)
    command = (sys.executable, "-I", "-S", script, "--detach", "--dir", directory)
    subprocess.run(command, check=True, timeout=30)
    driver = Driver(directory)
    assert driver.state["version"] == 999
    return driver


async def test_supervisor_of_another_version_without_kernels_is_replaced(
    other: Driver, directory: Path
) -> None:
    other.run(["true"], kernel=K1)
    other.detach()

    async with controller() as made, running(made, directory):
        assert made.hellos[0].kernels[0].status is HeldStatus.ENDED, "its journal is read on"
        assert (await made.report(K1, ReportKind.ENDED)).exit_code == 0
        assert not alive(other.pid)


async def test_agent_says_what_to_do_while_another_version_holds_kernels(
    other: Driver,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(daemon, "OTHER_VERSION_PAUSE_S", 0.02)
    script = f"while [ ! -e {directory}/go ]; do sleep 0.02; done; exit 4"
    other.start(K1, command=["sh", "-c", script])
    pid = other.started(K1)["pid"]
    other.detach()
    stop = asyncio.Event()
    async with controller() as made:
        agent = asyncio.create_task(run(config(made, directory), stop))
        await asyncio.to_thread(until, lambda: read_trouble(directory) != "")
        trouble = read_trouble(directory)
        assert "another version of muster (it speaks version 999 of its protocol" in trouble
        assert "holds 1 kernels" in trouble
        assert f"`kill {other.pid}`" in trouble
        assert alive(pid)
        assert made.hellos == []

        (directory / "go").touch()
        assert (await made.report(K1, ReportKind.ENDED)).exit_code == 4

        assert read_trouble(directory) == ""
        assert [each.getMessage() for each in caplog.records].count(trouble) == 1
        stop.set()
        await agent
