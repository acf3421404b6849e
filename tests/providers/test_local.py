"""The provider of agent processes on this machine: real ones, whose controller is mostly not
there."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.e2e.cluster import assert_no_survivors, processes_naming
from tests.patience import until
from tests.providers.conformance import SHAPE, TOKEN, Conformance, gone, ids, listed
from tests.providers.fake_muster import FAKE_MUSTER
from tests.providers.local_site import KERNEL, LocalSite, agent_pid, processes_of, spec, state_of
from tests.wire.controller import TOKEN as TAKEN
from tests.wire.controller import controller, template

from muster.agent.config import default_users_directory
from muster.autoscaling.standing import CreateOutcome
from muster.core.errors import InvalidSpec
from muster.core.resources import Device
from muster.providers.found import problems_of, provider_class
from muster.providers.local import machine as local_machine
from muster.providers.local.machine import LocalMachine
from muster.providers.local.processes import LocalProcesses, revive_machines
from muster.providers.local.restarts import Restarts
from muster.providers.provider import (
    AgentSetup,
    MachineState,
    ProviderError,
    Scope,
)
from muster.wire.messages import ReportKind, Start


@pytest.fixture
def site(tmp_path: Path) -> Iterator[LocalSite]:
    made = LocalSite(tmp_path / "pools")
    yield made
    made.close()


class TestLocalProcesses(Conformance):
    """Other tests here have real agents."""

    @pytest.fixture(autouse=True)
    def _quick_agents(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        program = tmp_path / "muster"
        program.write_text(FAKE_MUSTER)
        program.chmod(0o755)
        monkeypatch.setattr(local_machine, "_muster", lambda: [str(program)])


def test_provider_is_found_by_its_name() -> None:
    assert provider_class("local") is LocalProcesses
    assert problems_of(spec()) == []


def test_settings_that_it_does_not_have_are_refused(tmp_path: Path) -> None:
    wrong = spec(settings={"cpus": 4})
    assert [problem.field for problem in problems_of(wrong)] == ["settings.cpus"]
    with pytest.raises(InvalidSpec, match="has no settings"):
        LocalProcesses(wrong, Scope("c-1", "one", tmp_path))


def test_model_that_no_agent_could_declare_is_refused() -> None:
    gpus = {"cpu": 1, "memory": "1GiB", "gpus": 1, "gpu_model": "A100,T4"}
    assert [problem.field for problem in problems_of(spec(machine=gpus))] == ["machine.gpu_model"]


def test_machine_with_more_cpus_or_memory_than_this_one_is_told(tmp_path: Path) -> None:
    cpus = os.cpu_count() or 1
    for machine, told in (
        ({"cpu": 1, "memory": 2**60}, "a machine of 1048576TiB memory is more than "),
        ({"cpu": cpus + 1, "memory": "1B"}, f"a machine of {cpus + 1} cpu is more than "),
        ({"cpu": 10**4, "memory": 2**60}, "a machine of 10000 cpu and 1048576TiB memory is "),
    ):
        large = LocalProcesses(spec(machine=machine), Scope("c-1", "one", tmp_path))
        with pytest.raises(ProviderError) as refused:
            large.check()
        assert refused.value.outcome is CreateOutcome.BAD_REQUEST
        assert refused.value.told.startswith(told)
    LocalProcesses(
        spec(machine={"cpu": cpus, "memory": "1B"}), Scope("c-1", "one", tmp_path)
    ).check()


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "", "a\nb"])
def test_name_that_is_no_directory_is_refused(site: LocalSite, name: str) -> None:
    provider = site.provider()
    for order in (replace(site.order(), names=(name,)), replace(site.order(), slice=name)):
        with pytest.raises(ProviderError) as refused:
            provider.create(order)
        assert refused.value.outcome is CreateOutcome.BAD_REQUEST
    assert provider.delete(name)
    assert not site.directory.exists()


def test_secret_is_in_one_private_file_and_on_no_command_line(site: LocalSite) -> None:
    authority = "-----BEGIN CERTIFICATE-----\n"
    setup = AgentSetup("127.0.0.1:1", "default", TOKEN, authority)
    (machine,) = site.provider().create(replace(site.order(machines=1), setup=setup))
    pid = agent_pid(site, machine)

    for kind in ("cmdline", "environ"):
        assert TOKEN.encode() not in Path(f"/proc/{pid}/{kind}").read_bytes()
    until((site.directory / machine.id / "agent/supervisor.sock").exists)
    found = {}
    for path in site.directory.rglob("*"):
        with suppress(OSError):  # it was there for a moment, or is a socket
            found[path.name] = path.read_bytes() if path.is_file() else b""
            assert path.stat().st_mode & 0o077 == 0, path
    assert [name for name, text in found.items() if TOKEN.encode() in text] == ["join-token"]


def test_controllers_secrets_do_not_reach_the_agent(
    site: LocalSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_JOIN_TOKEN", "another-secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    (machine,) = site.provider().create(site.order(machines=1))
    environment = Path(f"/proc/{agent_pid(site, machine)}/environ").read_text()
    assert "another-secret" not in environment


def test_agent_is_in_a_session_of_its_own(site: LocalSite) -> None:
    (machine,) = site.provider().create(site.order(machines=1))
    pid = agent_pid(site, machine)
    assert os.getsid(pid) != os.getsid(0)
    assert os.getpgid(pid) != os.getpgid(0)


def test_agent_that_died_is_stopped_and_says_why(site: LocalSite) -> None:
    provider = site.provider()
    (machine,) = provider.create(site.order(machines=1))
    os.kill(agent_pid(site, machine), signal.SIGKILL)
    until(lambda: state_of(provider, machine.name) is MachineState.STOPPED)

    (again,) = provider.create(site.order(machines=1))
    assert (again.id, again.state) == (machine.id, MachineState.STOPPED)


async def test_agent_that_died_is_started_again_with_what_it_runs(site: LocalSite) -> None:
    async with controller() as made:
        provider = site.provider()
        setup = AgentSetup(made.address, "gpus", TAKEN)
        order = replace(site.order(machines=1), setup=setup)
        (machine,) = await asyncio.to_thread(provider.create, order)
        pools = site.directory.parent
        await made.until(lambda: bool(made.hellos))
        assert await asyncio.to_thread(revive_machines, pools, Restarts(), 0.0) == [], "it runs"
        made.command(Start(KERNEL, 1, template("sleep", "600"), {}))
        await made.report(KERNEL, ReportKind.STARTED)
        await made.until(lambda: bool(processes_of(KERNEL)))  # just spawned, it has no environment
        (runs,) = processes_of(KERNEL)
        os.kill(agent_pid(site, machine), signal.SIGKILL)
        await made.until(lambda: state_of(provider, machine.name) is MachineState.STOPPED)

        assert await asyncio.to_thread(revive_machines, pools, Restarts(), 0.0) == [machine.name]

        await made.until(lambda: len(made.hellos) == 2)
        before, after = made.hellos
        assert (after.agent, after.boot_id) == (before.agent, before.boot_id)
        assert processes_of(KERNEL) == [runs]
        assert await asyncio.to_thread(provider.delete, order.slice)
        assert await asyncio.to_thread(revive_machines, pools, Restarts(), 0.0) == []


def test_slice_that_cannot_be_helped_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for slice_ in ("sl-1", "sl-2", "sl-3"):
        directory = tmp_path / "one" / slice_
        machine = directory / f"{slice_}-0"
        machine.mkdir(parents=True)
        (machine / "machine.json").write_text("{}")
        kept = {"cluster": "c-1", "pool": "one", "names": [f"{slice_}-0"], "leaving": False}
        (directory / "slice.json").write_text(json.dumps(kept))
    asked: list[str] = []

    def second_helps(machine: LocalMachine) -> bool:
        asked.append(machine.directory.name)
        if len(asked) != 2:
            raise PermissionError(13, "no process can be started")
        return True

    monkeypatch.setattr(LocalMachine, "revive", second_helps)
    assert revive_machines(tmp_path, Restarts(), 0.0) == [asked[1]]
    assert sorted(asked) == ["sl-1-0", "sl-2-0", "sl-3-0"]


@pytest.mark.parametrize("hard", [False, True])
def test_machine_whose_agent_died_is_up_again_after_a_reboot(site: LocalSite, hard: bool) -> None:
    """Also where a controller was killed in the middle of a reboot."""
    provider = site.provider()
    (machine,) = provider.create(site.order(machines=1))
    died = agent_pid(site, machine)
    os.kill(died, signal.SIGKILL)
    until(lambda: state_of(provider, machine.name) is MachineState.STOPPED)

    provider.reboot(machine, hard=hard)

    until(lambda: state_of(provider, machine.name) is MachineState.RUNNING)
    until(lambda: agents(site) == {agent_pid(site, machine)})
    assert agents(site) != {died}


def test_agent_that_could_not_start_says_why_and_is_tried_again(site: LocalSite) -> None:
    provider = site.provider()
    setup = AgentSetup("127.0.0.1:none", "default", TOKEN)
    (machine,) = provider.create(replace(site.order(machines=1), setup=setup))
    until(lambda: state_of(provider, machine.name) is MachineState.STOPPED)
    (found,) = provider.list().machines
    assert "expected HOST:PORT" in found.detail
    assert "expected HOST:PORT" in provider.log(machine)
    assert provider.log(replace(machine, slice="..")) == ""

    provider.create(site.order(machines=1))
    assert agent_pid(site, machine)


@pytest.mark.parametrize("steps", [1, 3, 6, 12])
def test_create_goes_on_where_a_controller_was_killed(site: LocalSite, steps: int) -> None:
    """The next controller makes what the killed one has not made, and makes nothing twice."""
    order = site.order(machines=2)
    code = f"""
import os, sys, signal
from dataclasses import replace
from pathlib import Path
from tests.providers.test_local import LocalSite
from muster.providers.local import machine, processes
steps = int(sys.argv[1])
def step(function):
    def counted(*given, **named):
        global steps
        steps -= 1
        if steps < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*given, **named)
    return counted
machine.write_whole = processes.write_whole = step(machine.write_whole)
machine.subprocess.run = step(machine.subprocess.run)
machine.os.close = step(machine.os.close)
site = LocalSite(Path({str(site.directory)!r}))
site.provider().create(site.order(machines=2))
"""
    provider = site.provider()
    done = subprocess.run(
        [sys.executable, "-c", code, str(steps)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    half_made = {machine.state for machine in provider.list().machines}
    assert half_made <= {MachineState.COMING, MachineState.RUNNING, MachineState.STOPPED}

    made = provider.create(order)

    until(lambda: [state_of(provider, name) for name in order.names] == [MachineState.RUNNING] * 2)
    assert listed(provider) == ids(made)
    expected = {agent_pid(site, machine) for machine in made}
    until(lambda: agents(site) == expected)  # a process that one is just spawning looks like it
    logs = [log.read_text() for log in site.directory.rglob("agent.log")]
    assert not any("another agent" in text for text in logs)


def agents(site: LocalSite) -> set[int]:
    """The processes of agents."""
    return {
        pid
        for pid, command, _ in processes_naming(site.directory)
        if b"muster.app.agent_process" in command
    }


def test_slice_that_cannot_be_made_whole_is_not_made(
    site: LocalSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = LocalMachine.make

    def second_fails(self: LocalMachine, *given: object) -> None:
        if self.directory.name.endswith("-1"):
            raise BlockingIOError(11, "no process can be started")
        make(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalMachine, "make", second_fails)
    provider = site.provider()
    with pytest.raises(ProviderError, match="no process can be started") as refused:
        provider.create(site.order(machines=2))

    assert refused.value.outcome is CreateOutcome.THROTTLED
    assert provider.list().machines == ()
    assert_no_survivors(site.directory)


def test_deletion_that_was_interrupted_is_leaving_and_goes_on(
    site: LocalSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = site.provider()
    machines = provider.create(site.order())
    with monkeypatch.context() as patch:
        patch.setattr(LocalMachine, "remove", lambda *_: None)
        assert not provider.delete("sl-1")

    assert {machine.state for machine in provider.list().machines} == {MachineState.LEAVING}
    for call in (lambda: provider.create(site.order()), lambda: provider.reboot(machines[0])):
        with pytest.raises(ProviderError, match="is being deleted"):
            call()
    gone(site, site.provider(), "sl-1")
    assert provider.list().machines == ()


def test_process_that_only_looks_like_the_agent_is_not_killed(site: LocalSite) -> None:
    """Its id stands in the file of a machine whose agent has ended, as when it is used again."""
    provider = site.provider()
    (machine,) = provider.create(site.order(machines=1))
    os.kill(agent_pid(site, machine), signal.SIGKILL)
    until(lambda: state_of(provider, machine.name) is MachineState.STOPPED)
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        (site.directory / machine.id / "agent/agent.lock").write_text(str(stranger.pid))
        gone(site, provider, "sl-1")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_agent_that_ignores_its_end_is_killed(
    site: LocalSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_machine, "_TERMINATING_S", 0.3)
    provider = site.provider()
    (machine,) = provider.create(site.order(machines=1))
    os.kill(agent_pid(site, machine), signal.SIGSTOP)
    gone(site, provider, "sl-1")
    assert_no_survivors(site.directory)


def test_files_of_others_in_the_directory_are_left_alone(site: LocalSite) -> None:
    provider = site.provider()
    foreign = site.directory / "sl-9"
    foreign.mkdir(parents=True)
    (foreign / "precious").write_text("of somebody else")
    (site.directory / "note").write_text("of somebody else")

    assert provider.delete("sl-9")
    assert provider.delete("note")
    assert provider.list().machines == ()
    assert (foreign / "precious").exists()
    for path in (foreign / "precious", site.directory / "note"):
        path.unlink()
    foreign.rmdir()


def test_slice_whose_file_is_damaged_makes_the_list_incomplete(site: LocalSite) -> None:
    provider = site.provider()
    made = provider.create(site.order("sl-1", machines=1))
    provider.create(site.order("sl-2", machines=1))
    kept = site.directory / "sl-2/slice.json"
    before = kept.read_text()
    for text in ("", "[]", "{", '{"cluster": "c-1", "pool": "one", "names": ["../.."]}'):
        kept.write_text(text)
        listing = provider.list()
        assert not listing.complete
        assert ids(listing.machines) == ids(made)
        with pytest.raises(ProviderError):
            provider.delete("sl-2")
    kept.write_text(before)


def test_machines_have_ranges_of_ports_of_their_own(site: LocalSite) -> None:
    site.provider("one").create(site.order("sl-1", machines=2))
    site.provider("two").create(site.order("sl-2", machines=2))
    numbers = [
        LocalMachine(path).port_range() for path in site.directory.glob("*/*") if path.is_dir()
    ]
    assert len({*numbers}) == 4


async def test_agent_reports_the_declared_shape(site: LocalSite) -> None:
    shape = SHAPE.model_validate(
        {
            "cpu": "2500m",
            "memory": "3GiB",
            "disk": "5GiB",
            "gpus": 2,
            "gpu_model": "NVIDIA H100 80GB HBM3",
            "gpu_memory": "80GiB",
            "extra": {"licence": 1.5},
        }
    )
    async with controller() as made:
        setup = AgentSetup(made.address, "gpus", TAKEN)
        order = replace(site.order(machines=1), shape=shape, setup=setup)
        (machine,) = await asyncio.to_thread(site.provider().create, order)
        await made.until(lambda: bool(made.hellos))

        hello = made.hellos[0]
        assert (hello.name, hello.group) == (machine.name, "gpus")
        assert replace(hello.capacity, kernels=0) == replace(shape.capacity(0), kernels=0)
        assert hello.devices == tuple(
            Device(n, "NVIDIA H100 80GB HBM3", memory_bytes=80 * 2**30) for n in (0, 1)
        )


@pytest.mark.parametrize("hard", [False, True])
async def test_reboot_ends_all_work_and_begins_another_boot(site: LocalSite, hard: bool) -> None:
    async with controller() as made:
        provider = site.provider()
        setup = AgentSetup(made.address, "gpus", TAKEN)
        order = replace(site.order(machines=1), setup=setup)
        (machine,) = await asyncio.to_thread(provider.create, order)
        await made.until(lambda: bool(made.hellos))
        line = "touch kept; sleep 600 & sleep 600"
        line = f"trap '' TERM; {line}" if hard else line
        made.command(Start(KERNEL, 1, template("/bin/sh", "-c", line), {}))
        await made.report(KERNEL, ReportKind.STARTED)

        await asyncio.to_thread(provider.reboot, machine, hard=hard)

        assert processes_of(KERNEL) == []
        await made.until(lambda: len(made.hellos) == 2)
        before, after = made.hellos
        assert after.agent == before.agent
        assert after.boot_id != before.boot_id
        assert after.sent_s < 30.0, "its boot clock began anew"
        assert await asyncio.to_thread(provider.delete, order.slice)
    assert [*default_users_directory().rglob("kept")] == []
