"""How an agent becomes one: token, credential, Hello, and what it says when it is not wanted."""

import asyncio
import json
import logging
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.agent.running import config, running
from tests.client.authority import certificate, served
from tests.e2e.cluster import free_ports, processes_naming
from tests.patience import until_awaited
from tests.wire.controller import TOKEN, TOO_EARLY, Controller, controller, template

from muster.agent.daemon import AgentRefused, run
from muster.agent.refusals import AgentPutOff
from muster.agent.trouble import read_trouble
from muster.core.errors import Conflict, Unwelcome
from muster.core.ids import KernelId
from muster.wire.calls import JoinRequest
from muster.wire.client import ControllerChannel, Disconnected, tls_trouble
from muster.wire.messages import ReportKind, Start
from muster.wire.server import AgentGateway
from muster.wire.transport import InsecureAddress


async def test_first_contact_joins_with_the_token_and_keeps_the_credential(
    directory: Path,
) -> None:
    async with controller() as made, running(made, directory, group="gpu"):
        assert [(each.token, each.name, each.group) for each in made.joins] == [
            (TOKEN, "a1", "gpu")
        ]
        kept = json.loads((directory / "credential.json").read_text())
        assert made.credentials[kept["credential"]] == kept["agent"] == made.agent


async def test_hello_says_who_the_agent_is_and_what_it_has(directory: Path) -> None:
    fields = {"cpu_milli": 8000, "memory_bytes": 2**33, "disk_bytes": 2**34, "gpus": "2xT4"}
    async with controller() as made, running(made, directory, **fields):
        hello = made.hellos[0]
        assert (hello.name, hello.group, hello.host) == ("a1", "default", "127.0.0.1")
        assert hello.capacity.describe() == "8 cpu, 8GiB memory, 16GiB disk, 2 gpu"
        assert [device.model for device in hello.devices] == ["T4", "T4"]
        assert hello.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert hello.attributes["limits"] in ("none", "cgroup-v1", "cgroup-v2")
        assert hello.kernels == ()


async def test_restarted_agent_is_the_same_without_a_token(directory: Path) -> None:
    async with controller() as made:
        async with running(made, directory):
            pass
        async with running(made, directory, token=None):
            assert made.hellos[0].agent == made.hellos[1].agent
        assert len(made.joins) == 1


async def test_restarted_agent_of_a_part_of_a_machine_is_in_its_boot_until_told_of_another(
    directory: Path,
) -> None:
    async with controller() as made:
        for boot in ("first", "first", "second"):
            async with running(made, directory, boot_id=boot):
                pass
        first, again, second = made.hellos
        assert first.boot_id == again.boot_id != second.boot_id
        assert again.sent_s > first.sent_s
        assert second.sent_s < again.sent_s, "its boot clock begins anew"


async def test_wrong_token_ends_the_agent_with_the_controllers_reason(directory: Path) -> None:
    async with controller() as made:
        with pytest.raises(AgentRefused, match="the join token is not valid"):
            await run(config(made, directory, token="guessed"), asyncio.Event())


async def test_agent_that_may_join_later_ends_so_that_it_is_started_again(directory: Path) -> None:
    """By systemd, which does not start one again that is refused for good."""
    async with controller() as made:
        with pytest.raises(AgentPutOff, match="the name is not free yet") as put_off:
            await run(config(made, directory, token=TOO_EARLY), asyncio.Event())
        assert not isinstance(put_off.value, Unwelcome)
        with pytest.raises(Unwelcome):
            await run(config(made, directory, token="guessed"), asyncio.Event())
        async with running(made, directory):
            assert len(made.hellos) == 1


async def test_agent_that_is_refused_and_holds_nothing_leaves_no_supervisor(
    directory: Path,
) -> None:
    async with controller() as made:
        with pytest.raises(AgentRefused):
            await run(config(made, directory, token="guessed"), asyncio.Event())
    await until_awaited(lambda: not list(processes_naming(directory)), 10.0)


async def test_first_contact_without_a_token_ends_the_agent_with_what_to_do(
    directory: Path,
) -> None:
    async with controller() as made:
        with pytest.raises(AgentRefused, match="start the agent with a join token"):
            await run(config(made, directory, token=None), asyncio.Event())


async def test_forgotten_agent_joins_again_under_its_name(directory: Path) -> None:
    async with controller() as made:
        async with running(made, directory):
            pass
        made.credentials.clear()
        async with running(made, directory):
            assert [each.name for each in made.joins] == ["a1", "a1"]
            assert made.joins[0].credential != made.joins[1].credential


async def test_forgotten_agent_joins_again_under_the_name_and_the_group_that_it_is_given(
    directory: Path,
) -> None:
    async with controller() as made:
        async with running(made, directory):
            pass
        made.credentials.clear()
        again = replace(config(made, directory), new_name="a2", new_group="big")
        end = asyncio.Event()
        agent = asyncio.create_task(run(again, end))
        await made.until(lambda: len(made.hellos) == 2)
        end.set()
        await agent
        assert [(each.name, each.group) for each in made.joins][1:] == [("a2", "big")]
        assert (made.hellos[1].name, made.hellos[1].group) == ("a2", "big")


async def test_forgotten_agent_without_a_token_ends_with_what_to_do(directory: Path) -> None:
    async with controller() as made:
        async with running(made, directory):
            pass
        made.credentials.clear()
        with pytest.raises(AgentRefused, match="new join token"):
            await run(config(made, directory, token=None), asyncio.Event())


async def test_second_agent_on_a_directory_ends_with_one_sentence(directory: Path) -> None:
    async with controller() as made, running(made, directory):
        with pytest.raises(Conflict, match="another agent"):
            await run(config(made, directory), asyncio.Event())


async def test_agent_waits_for_a_controller_that_is_not_there_yet(directory: Path) -> None:
    async with controller() as gone:
        pass
    stop = asyncio.Event()
    agent = asyncio.create_task(run(config(gone, directory), stop))
    # The agent has a supervisor before it looks for its controller.
    await until_awaited((directory / "supervisor.sock").exists)
    async with controller(port=gone.port) as made:
        await made.until(lambda: made.hellos)
        stop.set()
        await agent


async def test_agent_without_an_authority_is_told_that_the_port_speaks_tls(
    directory: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Controller()
    made.gateway = AgentGateway(made, made, made, tls=certificate(tmp_path / "authority"))
    made.port = await made.gateway.start("127.0.0.1:0")
    stop, warned = asyncio.Event(), asyncio.Event()

    def notice(record: logging.LogRecord) -> bool:
        warned.set()
        return True

    monkeypatch.setattr(logging.getLogger("muster.agent.trouble"), "filters", [notice])
    agent = asyncio.create_task(run(config(made, directory), stop))
    try:
        async with asyncio.timeout(20):
            await warned.wait()
    finally:
        stop.set()
        await agent
        await made.gateway.stop()
    assert f"{made.address} speaks TLS: name the controller's authority with" in caplog.text


async def test_agent_says_that_the_controller_has_a_certificate_of_another_authority(
    directory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if nobody answered at first, as where a controller is put on a new machine."""
    known = certificate(tmp_path / "known")
    certificate(tmp_path / "other")
    ca = tmp_path / "ca.pem"
    shutil.copy(tmp_path / "other" / "ca.pem", ca)
    made = Controller()
    (made.port,) = free_ports(1)
    stop = asyncio.Event()
    agent = asyncio.create_task(run(config(made, directory, certificate_authority=ca), stop))
    try:
        await until_awaited(lambda: "no connection to the controller" in caplog.text)
        made.gateway = AgentGateway(made, made, made, tls=known)
        await made.gateway.start(made.address)
        await until_awaited(lambda: read_trouble(directory), 20.0)
        assert read_trouble(directory) == (
            f"no connection to the controller: this agent trusts the authority in {ca}, and the "
            f"controller at {made.address} is refused because its certificate was not issued by "
            f"that authority: if it is the right controller, copy the ca.pem of its data directory "
            f"there; if it has lost its authority, put its ca.pem and ca.key back and start it "
            f"again"
        )
        shutil.copy(tmp_path / "known" / "ca.pem", ca)
        await made.until(lambda: made.hellos)
        await until_awaited(lambda: not read_trouble(directory), 20.0)
    finally:
        stop.set()
        await agent
        await made.gateway.stop()


@pytest.mark.parametrize(
    ("days", "host", "why"),
    [
        (0, "127.0.0.1", None),
        (400, "127.0.0.1", "has expired: start the controller again"),
        (-2, "127.0.0.1", "is not valid yet by the clock of this machine: set the clock"),
        (0, "127.0.0.2", "is not for the name by which it was asked: name the controller by"),
    ],
)
async def test_certificate_that_an_agent_refuses_is_told_with_the_remedy(
    days: int, host: str, why: str | None, tmp_path: Path
) -> None:
    tls = certificate(tmp_path, age=timedelta(days=days))
    with served(tls=tls, host=host) as port:
        told = await tls_trouble(f"{host}:{port}", tmp_path / "ca.pem")
    assert told is None if why is None else f"because its certificate {why}" in str(told)


async def test_controller_that_others_can_reach_needs_tls(directory: Path) -> None:
    async with controller() as made:
        made_public = config(made, directory, host="10.0.0.2")
        object.__setattr__(made_public, "controller", "10.0.0.1:7000")
        with pytest.raises(InsecureAddress, match="TLS"):
            await run(made_public, asyncio.Event())


async def test_agent_that_was_replaced_ends_all_that_it_holds_and_joins_anew(
    directory: Path,
) -> None:
    async with controller() as made, running(made, directory):
        former = made.agent
        for kernel in ("krn-1", "krn-2"):
            made.start(kernel, "/bin/sh", "-c", "trap '' TERM; sleep 600 & wait; sleep 600")
            await made.report(kernel, ReportKind.STARTED)
        made.command(Start(KernelId("krn-3"), 1, template("/bin/true"), {}, queued=True))
        await until_kernels_run(directory, 2)
        made.dismissed.add(former)
        made.gateway.close(former, "the test says so")
        await made.until(lambda: made.agent != former)
        assert not kernel_processes(directory), "nothing runs once it is another agent"
        assert made.hellos[-1].kernels == ()
        assert not made.of("krn-1", ReportKind.ENDED), "nobody is told of what nobody wants"


async def test_agent_that_was_replaced_and_has_no_token_ends_once_nothing_of_it_runs(
    directory: Path,
) -> None:
    async with controller() as made:
        async with running(made, directory):
            former = made.agent
            made.start("krn-1", "/bin/sleep", "600")
            await made.report("krn-1", ReportKind.STARTED)
        await until_kernels_run(directory)  # it outlives the agent's daemon
        made.dismissed.add(former)
        with pytest.raises(AgentRefused, match="this agent is no more"):
            await run(config(made, directory, token=None), asyncio.Event())
        assert not kernel_processes(directory)


async def test_forgotten_agent_keeps_what_it_holds(directory: Path) -> None:
    async with controller() as made, running(made, directory):
        former = made.agent
        made.start("krn-1", "/bin/sleep", "600")
        await made.report("krn-1", ReportKind.STARTED)
        made.credentials.clear()
        made.gateway.close(former, "the test says so")
        await made.until(lambda: made.agent != former)
        assert [held.kernel for held in made.hellos[-1].kernels] == ["krn-1"]
        await until_kernels_run(directory)


async def test_credential_is_kept_before_it_is_told(directory: Path) -> None:
    """An agent whose first request had no answer asks again with the same credential."""
    async with controller() as made:
        with pytest.raises(AgentRefused):
            await run(config(made, directory, token="guessed"), asyncio.Event())
        async with running(made, directory):
            assert made.joins[0].credential == made.joins[1].credential
            assert len(made.joins[0].credential) >= 32


def kernel_processes(directory: Path) -> list[int]:
    """Processes of kernels whose supervisor is on ``directory``."""
    return [
        pid
        for pid, _, environment in processes_naming(directory)
        if any(entry.startswith(b"MUSTER_KERNEL_ID=") for entry in environment)
    ]


async def until_kernels_run(directory: Path, processes: int = 1) -> None:
    """Wait until so many processes are seen: one that has just been spawned has no environment
    yet, for as long as a busy machine takes to set it up (60 ms were measured)."""
    await until_awaited(lambda: len(kernel_processes(directory)) >= processes)


async def test_port_of_the_http_api_is_told_apart() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, ControllerChannel(f"127.0.0.1:{port}") as channel:
        with pytest.raises(Disconnected, match="is not the port for agents"):
            await channel.join(JoinRequest("t", "a", "default", "c"))
