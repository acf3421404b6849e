"""Failed tries, which are charged to a session's phase (design: Tries)."""

from collections import Counter, defaultdict
from functools import partial

from muster.core.ids import AgentId
from muster.core.reasons.of_sessions import PhaseGaveUp
from muster.core.states import SessionStatus
from muster.store.records import LedgerKey, Session
from muster.store.unit import Unit
from muster.wire.messages import (
    AgentMessage,
    Commands,
    ControllerMessage,
    ReportKind,
    Reports,
    Stop,
)
from proving.swarm.judge import Invariant, Judge

_FAILED = frozenset({ReportKind.PREPARE_FAILED, ReportKind.CREATE_FAILED})


class TriesAreCharged(Invariant):
    """However often an agent repeats the report of a failure, it is one. A session that is to stop
    is charged for Stops that were sent and not confirmed."""

    says = "a failed try is charged once"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._failed_at: dict[LedgerKey, set[tuple[ReportKind, float]]] = defaultdict(set)
        self._stops: Counter[LedgerKey] = Counter()

    def sent(self, agent: AgentId, message: ControllerMessage) -> None:
        if isinstance(message, Commands):
            stops = [each for each in message.commands if isinstance(each, Stop)]
            self._stops.update((each.kernel, each.generation) for each in stops)

    def heard(self, agent: AgentId, message: AgentMessage) -> None:
        if isinstance(message, Reports):
            for report in message.reports:
                if report.kind in _FAILED:
                    key = report.kernel, report.generation
                    self._failed_at[key].add((report.kind, report.at))

    def committed(self, unit: Unit) -> None:
        for session in unit.touched[Session]:
            if session.tries and session.status is SessionStatus.TERMINATING:
                sent = sum(self._stops[each.id, each.generation] for each in session.kernels)
                wrong = f"{session.id} is charged {session.tries} tries, and {sent} Stops were sent"
                self.expect(session.tries <= sent, wrong)
            elif session.tries:
                self._judge(session, session.tries, self._told(session, 0))
            why = session.reason
            if isinstance(why, PhaseGaveUp):
                told = max(
                    map(partial(self._told, session), range(session.kernels[0].generation + 1))
                )
                self._judge(session, why.tries, told)

    def _told(self, session: Session, ago: int) -> int:
        """The failures that were told of so many generations ago."""
        kernels = ((each.id, each.generation - ago) for each in session.kernels)
        return sum(len(self._failed_at[key]) for key in kernels)

    def _judge(self, session: Session, tries: int, told: int) -> None:
        wrong = f"{session.id} is charged {tries} tries, and {told} failures were told"
        self.expect(tries <= told, wrong)
