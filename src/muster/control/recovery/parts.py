"""SettleParts: a task of a job that does not recover whole waits for its own machine alone."""

from collections.abc import Sequence
from dataclasses import replace

from muster.control.engine.handler import FollowingHandler, Stage
from muster.control.engine.work import Work
from muster.control.job.derive import state_of
from muster.control.recovery.book import Recoveries
from muster.control.recovery.entity import Recovery
from muster.control.recovery.lifecycle import spec_of
from muster.control.recovery.rounds import Round
from muster.control.recovery.rules import Decision, Turn, on_part
from muster.control.recovery.verdicts import (
    carry_out,
    how_first_ended,
    is_judged,
    is_last_try,
    verdicts_on,
)
from muster.control.session.lifecycle import SessionLifecycle
from muster.core.results import SchedulingResult
from muster.core.states import JOB_TABLE
from muster.core.states.recovery import RecoveryStatus


class SettleParts(FollowingHandler[Recovery]):
    """Has each task of a job that does not recover whole wait for its own machine alone: once that
    is healthy, or given up, its part of the round is over, though others wait on. The last part
    decides on the recovery, by the handlers of its status."""

    name = "SettleParts"
    entity = Recovery
    stage = Stage.SETTLE
    statuses = frozenset({RecoveryStatus.PENDING_HEALTHCHECK, RecoveryStatus.PENDING_RESTART})

    def __init__(self, recoveries: Recoveries, sessions: SessionLifecycle) -> None:
        self._recoveries = recoveries
        self._sessions = sessions

    def follow(self, record: Recovery, work: Work) -> None:
        if record.is_whole or state_of(record.job) in JOB_TABLE.terminal:
            return
        for part, decision in _but_last(_settled(record, record.open, work), record.open):
            self._end(record, record.open, part, decision, work)
        for part, decision in _settled(record, record.next, work):
            self._end(record, record.next, part, decision, work)

    def _end(
        self, recovery: Recovery, of: Round | None, part: Round, decision: Decision, work: Work
    ) -> None:
        """Have a part of a round be over."""
        assert of is not None, "a part is of a round that is not over"
        counts = decision.turn is Turn.RESTART and not part.is_leave and not of.is_counted
        recovery.restarts += counts
        if len(part.tasks) == len(of.tasks):
            recovery.next = None  # of the open round a part is left
        else:
            recovery.rounds += 1
            part, rest = of.split(part, recovery.rounds)
            recovery.replace_round(of, replace(rest, is_counted=of.is_counted or counts))
        over = part.closed(work.now, decision.why)
        recovery.keep(over)
        self._recoveries.changed(recovery)
        work.unit.touch(recovery)
        work.unit.note(recovery, self.name, SchedulingResult.SUCCESS, decision.why)
        work.mark(recovery.job)
        verdicts = verdicts_on(recovery.job, over, decision.why)
        carry_out(verdicts, recovery.job, work, self._sessions, self.name, decision.why)


SettledParts = Sequence[tuple[Round, Decision]]


def _settled(recovery: Recovery, round_: Round | None, work: Work) -> SettledParts:
    """The parts of a round whose own machines decide on them."""
    found = []
    for part in () if round_ is None else round_.parts():
        if not is_judged(recovery.job, part):
            continue
        how, is_last = how_first_ended(recovery.job, part), is_last_try(recovery.job, part)
        waited_s = work.now - part.began_at
        spec = spec_of(recovery)
        decision = on_part(part, waited_s, recovery.restarts, how, spec, is_last=is_last)
        if decision is not None:
            found.append((part, decision))
    return found


def _but_last(parts: SettledParts, round_: Round | None) -> SettledParts:
    """These parts of the open round without those that are left to decide on the recovery, where no
    other part of it waits: such that end alike, those first that begin again."""
    if round_ is None or len(parts) < len(round_.parts()):
        return parts
    turns = {decision.turn for _, decision in parts}
    last = next(turn for turn in (Turn.RESTART, Turn.GIVE_UP, Turn.JUDGE) if turn in turns)
    return [each for each in parts if each[1].turn is not last]
