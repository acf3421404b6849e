"""The directories of local machines are for their owner only, whatever the umask is."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.patience import until
from tests.providers.local_site import LocalSite, agent_pid, state_of

from muster.providers.local.processes import revive_machines
from muster.providers.local.restarts import Restarts
from muster.providers.provider import MachineState


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LocalSite]:
    made = LocalSite(tmp_path / "pools")
    yield made
    made.close()


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_machine_comes_up_whatever_the_umask_of_its_controller(site: LocalSite, umask: int) -> None:
    before = os.umask(umask)
    try:
        machines = site.provider().create(site.order())
    finally:
        os.umask(before)
    for machine in machines:
        assert agent_pid(site, machine)
    parts = [path for path in site.directory.rglob("*") if not path.is_symlink()]
    assert [str(path) for path in parts if path.exists() and path.stat().st_mode & 0o022] == []


def test_directories_that_an_earlier_version_left_open_to_others_are_closed_when_they_are_used(
    site: LocalSite,
) -> None:
    """At a start, and where an agent that died is started again."""
    provider = site.provider()
    before = os.umask(0o000)
    try:
        order = site.order(machines=1)
        slice_ = site.directory / order.slice
        for made in site.directory, slice_, slice_ / order.names[0]:
            made.mkdir(parents=True, exist_ok=True)
            made.chmod(0o777)
        (machine,) = provider.create(order)
        os.kill(agent_pid(site, machine), signal.SIGKILL)
        until(lambda: state_of(provider, machine.name) is MachineState.STOPPED)
        assert _open_to_others(site) == []

        for made in site.directory, slice_, slice_ / order.names[0]:
            made.chmod(0o777)
        (again,) = revive_machines(site.directory.parent, Restarts(), 0.0)
        until(lambda: state_of(provider, machine.name) is MachineState.RUNNING)
        assert again
    finally:
        os.umask(before)
    assert _open_to_others(site) == []


def _open_to_others(site: LocalSite) -> list[str]:
    """The site's directories in which others may write."""
    paths = (site.directory, *site.directory.rglob("*"))
    directories = [path for path in paths if path.is_dir() and not path.is_symlink()]
    return [str(path) for path in directories if path.stat().st_mode & 0o022]
