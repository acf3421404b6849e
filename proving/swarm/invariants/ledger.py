"""The ledger, and what agents really hold (design: The ledger)."""

from collections.abc import Iterable

from muster.core.ids import AgentId
from muster.core.states import KernelStatus
from muster.store.live import Live
from muster.store.records import LedgerKey
from muster.store.unit import Unit
from proving.hollow.agent import HollowAgent
from proving.hollow.stages import WITH_PROCESSES
from proving.hollow.supervisor import Kernel
from proving.swarm.judge import Invariant, Judge

_NOT_SENT = frozenset({KernelStatus.SCHEDULED, KernelStatus.PREPARED})


class RoomIsGivenBackOnceGone(Invariant):
    says = "room is given back only once no process is left in it"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._rows: dict[LedgerKey, AgentId] = {}

    def committed(self, unit: Unit) -> None:
        rows = {key: row.agent_id for key, row in unit.live.ledger.items()}
        for key in self._rows.keys() - rows.keys():
            holder = _with_processes(self.world.agents.values(), key)
            self.expect(holder is None, f"{key} still runs on {holder}")
        self._rows = rows

    def begun(self, agent: HollowAgent, kernel: Kernel) -> None:
        self.expect(
            kernel.key in self._rows,
            f"{kernel.key} begins on {agent.name} without a row of the ledger",
        )


def _with_processes(agents: Iterable[HollowAgent], key: LedgerKey) -> str | None:
    """The agent on which a kernel has processes."""
    for agent in agents:
        kernel = agent.supervisor.kernels.get(key)
        if kernel is not None and kernel.stage in WITH_PROCESSES:
            return agent.name
    return None


class LedgerIsHeld(Invariant):
    """The state of each agent is judged when no message between it and control is on its way."""

    says = "the ledger is what agents hold, once quiet"

    def between_steps(self) -> None:
        for id_, agent in self.world.quiet_agents():
            self._compare(agent, self.world.store.live, id_)

    def _compare(self, agent: HollowAgent, live: Live, id_: AgentId) -> None:
        held, rows = agent.holds(), {*live.allocations_on.get(id_, ())}
        told = {key for key in rows if _is_told(live, key)}
        self.expect(held <= rows, f"{agent.name} holds {held - rows} without a row")
        self.expect(told <= held, f"{agent.name} does not hold {told - held}")


def _is_told(live: Live, key: LedgerKey) -> bool:
    """Whether the agent was told of the kernel, and has not failed to start it."""
    kernel = live.kernels.get(key[0])
    if kernel is None or kernel.generation != key[1]:
        return True
    return kernel.status not in _NOT_SENT and kernel.failure is None
