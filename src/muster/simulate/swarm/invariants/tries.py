"""Failed tries, which are charged to a session's phase (design: Tries)."""

from collections import defaultdict

from muster.core.ids import AgentId
from muster.simulate.swarm.judge import Invariant, Judge
from muster.store.records import LedgerKey, Session
from muster.store.unit import Unit
from muster.wire.messages import AgentMessage, ReportKind, Reports

_FAILED = frozenset({ReportKind.PREPARE_FAILED, ReportKind.CREATE_FAILED})


class TriesAreCharged(Invariant):
    """However often an agent repeats the report of a failure, it is one."""

    says = "a failed try is charged once"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._failed_at: dict[LedgerKey, set[tuple[ReportKind, float]]] = defaultdict(set)

    def heard(self, agent: AgentId, message: AgentMessage) -> None:
        if isinstance(message, Reports):
            for report in message.reports:
                if report.kind in _FAILED:
                    key = report.kernel, report.generation
                    self._failed_at[key].add((report.kind, report.at))

    def committed(self, unit: Unit) -> None:
        for session in unit.touched[Session]:
            if session.tries:
                told = sum(len(self._failed_at[k.id, k.generation]) for k in session.kernels)
                self.expect(
                    session.tries <= told,
                    f"{session.id} is charged {session.tries} tries, and {told} failures were told",
                )
