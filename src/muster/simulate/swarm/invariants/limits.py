"""Time limits of sessions."""

from muster.core.states import SessionStatus
from muster.simulate.hollow.supervisor import Stage
from muster.simulate.swarm.judge import Invariant

LATE_S = 1.0


class TimeLimitsHold(Invariant):
    """The state of each agent is judged when no message between it and control is on its way."""

    says = "nothing runs for longer than its time limit, once quiet"

    def between_steps(self) -> None:
        for _, agent in self.world.quiet_agents():
            for kernel in agent.supervisor.kernels.values():
                record = self.world.store.live.kernels.get(kernel.start.kernel)
                if record is None or record.session.status is not SessionStatus.RUNNING:
                    continue
                limit_s, began = record.session.timeout_s, record.session.started_at
                if limit_s is None or began is None or kernel.stage is not Stage.RUNNING:
                    continue
                ran_s = self.now - began
                self.expect(ran_s <= limit_s + LATE_S, f"{kernel.key} has run for {ran_s:.1f} s")
