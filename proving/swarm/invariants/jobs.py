"""Jobs and their tasks (design: Job derivation)."""

from muster.core.ids import JobId
from muster.core.states import JOB_TABLE, SESSION_TABLE, TASK_TABLE, SessionStatus
from muster.store.records import Job
from muster.store.unit import Unit
from proving.swarm.judge import Invariant, Judge

_ENDING = SESSION_TABLE.terminal | {SessionStatus.TERMINATING}


class EndsAreWhole(Invariant):
    """The tasks of a job end in the commit of its end; its sessions, of which there may be many,
    some at a time, until handlers have nothing more to do."""

    says = "the end of a job ends its tasks, and has their sessions end"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._ended: set[JobId] = set()  # since handlers last had nothing to do

    def committed(self, unit: Unit) -> None:
        for job in unit.touched[Job]:
            if job.status in JOB_TABLE.terminal:
                self._ended.add(job.id)
                left = [each.index for each in job.tasks.values() if each.status in TASK_TABLE.live]
                self.expect(
                    not left, f"{job.id} is {job.status}, and its tasks {left} have not ended"
                )

    def woke(self) -> None:
        controller = self.world.controller
        if not self._ended or controller is None or not controller.plane.is_calm:
            return
        for session in controller.store.live.sessions.values():
            if session.job is not None and session.job.id in self._ended:
                self.expect(
                    session.status in _ENDING,
                    f"{session.id} is {session.status}, though its job has ended",
                )
        self._ended.clear()
