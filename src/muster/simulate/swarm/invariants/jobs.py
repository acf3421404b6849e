"""Jobs and their tasks (design: Job derivation)."""

from muster.core.states import JOB_TABLE, SESSION_TABLE, TASK_TABLE, SessionStatus
from muster.simulate.swarm.judge import Invariant
from muster.store.records import Job
from muster.store.unit import Unit

_ENDING = SESSION_TABLE.terminal | {SessionStatus.TERMINATING}


class EndsAreWhole(Invariant):
    says = "the end of a job ends its tasks, and has their sessions end"

    def committed(self, unit: Unit) -> None:
        ended = {job for job in unit.touched[Job] if job.status in JOB_TABLE.terminal}
        if not ended:
            return
        for job in ended:
            left = [each.index for each in job.tasks.values() if each.status in TASK_TABLE.live]
            self.expect(not left, f"{job.id} is {job.status}, and its tasks {left} have not ended")
        for session in unit.live.sessions.values():
            if session.job in ended:
                self.expect(
                    session.status in _ENDING,
                    f"{session.id} is {session.status}, though its job has ended",
                )
