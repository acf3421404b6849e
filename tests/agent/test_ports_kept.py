"""Reserved ports of a real agent's kernels: kept by rules for their owner, and looked at."""

import os
from pathlib import Path

import pytest
from tests.agent.running import running
from tests.wire.controller import controller, template

from muster.core.ids import KernelId
from muster.core.serving.port_holders import PortHolder, PortOrder, PortOrders
from muster.wire.messages import Prepare, ReportKind, Start, Stop

KERNEL = KernelId("krn-1")
LISTENS = "exec python3 -I -S -m http.server --bind 127.0.0.1 $LISTEN"
NFT = """#!/bin/sh
{ cat; echo ====; } >> %s
"""


async def test_agent_tells_who_listens_on_the_port_of_a_replica(directory: Path) -> None:
    async with controller() as made, running(made, directory, ports=range(21_060, 21_070)):
        assert made.hellos[0].ports
        made.command(Prepare(KERNEL, 1, 1))
        (port,) = (await made.report(KERNEL, ReportKind.PREPARED)).ports
        order = PortOrder("dep-1/rte-1", KERNEL, 1, port)
        made.gateway.send(made.agent, PortOrders((order,)))
        serves = template("/bin/sh", "-c", LISTENS)
        made.command(Start(KERNEL, 1, serves, {"LISTEN": str(port)}))
        await made.until(lambda: PortHolder.REPLICA in [each.holder for each in made.ports_seen])
        made.command(Stop(KERNEL, 1, 0.0, "enough"))
        await made.report(KERNEL, ReportKind.ENDED)
        await made.until(lambda: made.ports_seen[-1].holder is PortHolder.NOBODY)
    assert {(each.route, each.kernel, each.generation) for each in made.ports_seen} == {
        ("dep-1/rte-1", KERNEL, 1)
    }


@pytest.mark.skipif(os.getuid() != 0, reason="only root has rules")
async def test_rules_have_a_kernels_ports_from_its_start_to_its_end_and_over_a_restart(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, program = tmp_path / "scripts", tmp_path / "bin" / "nft"
    program.parent.mkdir()
    program.write_text(NFT % log)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    def last() -> str:
        return log.read_text().split("====\n")[-2]

    fields = {"ports": range(21_070, 21_080)}
    async with controller() as made:
        async with running(made, directory, **fields):
            assert made.hellos[0].attributes["ports"] == "nftables"
            made.command(Prepare(KERNEL, 1, 1, 21_081))
            (port,) = (await made.report(KERNEL, ReportKind.PREPARED)).ports
            made.start(KERNEL, "/bin/sleep", "600")
            await made.report(KERNEL, ReportKind.STARTED)
            await made.until(lambda: f"{port} . 0, 21081 . 0" in last())  # root runs these kernels
        assert "delete table" in last()
        assert "21081" in last()  # the agent has ended, and its kernel runs on
        log.write_text("====\n")
        async with running(made, directory, **fields):
            await made.until(lambda: f"{port} . 0, 21081 . 0" in last())
            assert "delete table" not in log.read_text().split("====\n")[1]
            made.command(Stop(KERNEL, 1, 0.0, "enough"))
            await made.report(KERNEL, ReportKind.ENDED)
            await made.until(lambda: "21081" not in last() and str(port) not in last())
    assert last().startswith("delete table inet muster_")
