"""Agents on hosts over SSH: how they are installed, started, rebooted and ended."""

import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.patience import until
from tests.providers.conformance import TOKEN
from tests.providers.sshd import REAL_MUSTER, SSHD, Hosts, deleted, order, processes, refused

from muster.autoscaling.standing import CreateOutcome
from muster.providers import starting
from muster.providers.provider import MachineState, ProviderError
from muster.providers.ssh import fleet

pytestmark = pytest.mark.skipif(SSHD is None, reason="OpenSSH's server is not installed")


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    monkeypatch.setattr(starting, "PAUSE_S", 0.1)
    with Hosts(tmp_path, 2) as made:
        yield made


def test_real_agents_outlive_the_connection_and_leave_nothing(hosts: Hosts) -> None:
    provider = hosts.provider(muster=str(REAL_MUSTER), notes="kept")
    provider.create(order(machines=2))

    def up() -> bool:
        machines = provider.list().machines
        return [(each.state, each.detail) for each in machines] == [(MachineState.RUNNING, "")] * 2

    until(up)
    for machine in provider.list().machines:
        until(partial(provider.log, machine))
        assert provider.log(replace(machine, slice="sl-other")) == ""
    directory = hosts.all[0].directory
    token = directory / "agent" / "join-token"
    assert (token.read_text(), stat.S_IMODE(token.stat().st_mode)) == (TOKEN, 0o600)
    for host in hosts.all:
        until((host.directory / "agent" / "supervisor.sock").exists)
        host.stop()
    assert len(processes(str(hosts.place))) >= 4, "agents and supervisors"
    assert not [words for words in processes("").values() if TOKEN in words]
    for host in hosts.all:
        host.start()

    deleted(provider)

    assert hosts.claims() == {}
    assert not directory.exists()
    assert [each for each in processes(str(hosts.place)).values() if "sshd" not in each] == []


def test_agent_is_started_with_what_its_order_says(hosts: Hosts) -> None:
    hosts.provider().create(order())

    (host,) = [each for each in hosts.all if each.claim()]
    words = until((host.directory / "agent" / "words").read_text)
    assert words.split() == [
        "agent", "--controller", "127.0.0.1:1", "--name", "sl-1-0", "--group", "default",
        "--dir", f"{host.directory}/agent", "--token-file", f"{host.directory}/agent/join-token",
    ]  # fmt: skip


def test_everything_is_done_with_sudo_where_the_pool_says_so(hosts: Hosts) -> None:
    asked = hosts.place / "asked"
    hosts.program("sudo", f'#!/bin/sh\n[ "$1 $2" = "-n --" ] || exit 1\nshift 2\n'
                  f'echo "$1" >>{asked}\nexec "$@"\n')  # fmt: skip
    provider = hosts.provider(sudo=True)
    provider.create(order())
    assert len(asked.read_text().splitlines()) >= 3, "looks, a claim and a start"

    hosts.program("sudo", "#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    for _ in range(20):
        error = refused(provider, order("sl-2"))
        if error.outcome is not CreateOutcome.UNKNOWN:
            break  # a host that ended before it could say why may be claimed, and is asked again
    assert error.outcome is CreateOutcome.CREDENTIALS
    assert "a password is required" in error.told


def test_host_without_the_command_is_not_claimed(hosts: Hosts) -> None:
    error = refused(hosts.provider(muster="/opt/no/muster"), order())
    assert error.outcome is CreateOutcome.BAD_REQUEST
    assert "has no command /opt/no/muster" in error.told
    assert hosts.claims() == {}
    with pytest.raises(ProviderError, match="has no command"):
        hosts.provider(muster="/opt/no/muster").check()


@pytest.fixture
def python(hosts: Hosts) -> str:
    """Python that makes environments with a pip which waits, and has nothing but ``muster``."""
    pip = hosts.program(
        "pip",
        f"""#!/bin/sh
echo "$@" >>{hosts.place}/installed
[ "$8" = muster==1.0 ] || {{ echo "no distribution $8"; exit 1; }}
while [ ! -e {hosts.place}/go-on ]; do sleep 0.1; done
cp {hosts.muster} "${{0%/python}}/muster"
""",
    )
    return hosts.program(
        "python-x",
        f"""#!/bin/sh
[ "$1 $2" = "-m venv" ] || exec {sys.executable} "$@"
mkdir -p "$4/bin" && cp {pip} "$4/bin/python"
""",
    )


def test_requirement_is_installed_while_nobody_waits(
    hosts: Hosts, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "START_WAIT_S", 0.0)
    provider = hosts.provider(install="muster==1.0", python=python, muster="/opt/no/muster")
    provider.create(order())
    (machine,) = provider.list().machines
    assert (machine.state, machine.detail) == (MachineState.COMING, "its agent is being installed")
    assert provider.create(order())[0].id == machine.id
    installed = (hosts.place / "installed").read_text()
    assert (
        installed
        == "-m pip install --quiet --no-input --disable-pip-version-check -- muster==1.0\n"
    )

    (hosts.place / "go-on").touch()
    until(lambda: provider.list().machines[0].state is MachineState.RUNNING)
    (host,) = [each for each in hosts.all if each.claim()]
    until((host.directory / "agent" / "words").exists)
    deleted(provider)
    assert not host.directory.exists()


def test_installation_that_fails_is_told(hosts: Hosts, python: str) -> None:
    error = refused(hosts.provider(install="muster==2.0", python=python), order())
    assert error.outcome is CreateOutcome.BAD_REQUEST
    assert "cannot be started: no distribution muster==2.0" in error.told
    assert hosts.claims() == {}


def test_installation_that_is_not_wanted_any_more_ends(
    hosts: Hosts, python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "START_WAIT_S", 0.0)
    provider = hosts.provider(install="muster==1.0", python=python)
    provider.create(order())
    until((hosts.place / "installed").exists)
    deleted(provider)
    assert hosts.claims() == {}
    assert not [words for words in processes(str(hosts.place)).values() if "venv" in words]


def test_reboot_is_asked_for_in_the_words_of_the_pool(hosts: Hosts) -> None:
    provider = hosts.provider()
    (machine,) = provider.create(order())
    provider.reboot(machine)
    provider.reboot(machine, hard=True)
    assert (hosts.place / "reboots").read_text() == "\n--force\n"


def test_reboot_that_is_refused_is_told_and_one_that_cuts_us_off_is_not(hosts: Hosts) -> None:
    (machine,) = hosts.provider(notes="kept").create(order())
    refuses = hosts.program("no", "#!/bin/sh\necho Operation not permitted >&2\nexit 4\n")
    with pytest.raises(ProviderError, match="ended with 4: Operation not permitted"):
        hosts.provider(notes="kept", reboot_command=[refuses]).reboot(machine)

    cuts = hosts.program("cut", "#!/bin/sh\nkill -9 $PPID\nsleep 2\n")
    hosts.provider(notes="kept", reboot_command=[cuts]).reboot(machine)
