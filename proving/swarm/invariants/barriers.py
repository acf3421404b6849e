"""Gangs whose barrier was opened (design: Gang barrier)."""

from muster.core.states import KERNEL_TABLE, KernelStatus
from proving.hollow.stages import Stage
from proving.swarm.judge import Invariant

_ENDING = KERNEL_TABLE.terminal | {KernelStatus.TERMINATING}


class OpenBarrierLetsRun(Invariant):
    """The state of each agent is judged when no message between it and control is on its way."""

    says = "nothing waits at a barrier that is open, once quiet"

    def between_steps(self) -> None:
        for _, agent in self.world.quiet_agents():
            for kernel in agent.supervisor.kernels.values():
                record = self.world.store.live.kernels.get(kernel.start.kernel)
                if record is None or record.generation != kernel.start.generation:
                    continue
                is_open = record.session.barrier_opened_at is not None
                waits = kernel.stage is Stage.CREATED and record.status not in _ENDING
                self.expect(not (is_open and waits), f"{kernel.key} waits on {agent.name}")
