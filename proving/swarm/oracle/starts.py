"""Charges of failed starts, compared with what agents told: (design: Tries)."""

from collections import defaultdict
from dataclasses import dataclass

from muster.core.ids import AgentId
from muster.core.states import PLACED_SESSION, SessionStatus
from muster.store.live import Live
from muster.store.records import LedgerKey, Session
from muster.store.unit import Unit
from muster.wire.messages import (
    AgentMessage,
    Commands,
    ControllerMessage,
    KernelReport,
    ReportKind,
    Reports,
    Start,
)
from proving.swarm.judge import Invariant, Judge
from proving.swarm.oracle.causes import UNFIT
from proving.swarm.oracle.facts import Facts, How
from proving.swarm.oracle.verdicts import DISPLACED


@dataclass(frozen=True, slots=True)
class _Seen:
    """A session at its last commit: ``since`` is when it got its status."""

    generation: int
    reschedules: int
    status: SessionStatus
    since: float


class StartsAreCharged(Invariant):
    """A placement that failed, or took too long, is charged to the session; one that was taken back
    for another reason is not. A start is tried so often on its agent as the group says, and once if
    no other try can cure its failure; once more where room was given to a kernel in the backlog
    while it failed in the place of another: the agent cannot tell that from a further try."""

    says = "failed starts are tried again and charged as the oracle says"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._facts = judge.of(Facts)
        self._seen: dict[str, _Seen] = {}
        self._failed: dict[LedgerKey, int] = defaultdict(int)
        self._backlog: set[LedgerKey] = set()
        self._given_room: set[LedgerKey] = set()  # before control heard of a failure
        self._granted = 1  # tries, by the policy in force
        self._most_tries: dict[LedgerKey, int] = {}  # that a policy granted while it had its place

    def journalled(self, agent: object, report: KernelReport) -> None:
        if report.kind is not ReportKind.CREATE_FAILED:
            return
        key = report.kernel, report.generation
        self._failed[key] += 1
        most = 1 if report.reason in UNFIT else self._most_tries[key]
        most += key in self._given_room
        self.expect(
            self._failed[key] <= most,
            f"{key} has failed {self._failed[key]} times to start for {report.reason}",
        )

    def heard(self, agent: AgentId, message: AgentMessage) -> None:
        if isinstance(message, Reports):
            told = (each for each in message.reports if each.kind is ReportKind.CREATE_FAILED)
            self._backlog -= {(each.kernel, each.generation) for each in told}

    def sent(self, agent: AgentId, message: ControllerMessage) -> None:
        if not isinstance(message, Commands):
            return
        for start in (each for each in message.commands if isinstance(each, Start)):
            key = start.kernel, start.generation
            if start.queued:
                self._backlog.add(key)
            elif key in self._backlog:
                self._given_room.add(key)

    def committed(self, unit: Unit) -> None:
        self._note_tries(unit.live)
        for session in unit.touched[Session]:
            now = _Seen(
                session.kernels[0].generation,
                session.reschedules,
                session.status,
                session.status_changed_at,
            )
            before = self._seen.get(session.id)
            self._seen[session.id] = now
            if before is not None:
                self._judge(session, before, now, unit)

    def _note_tries(self, live: Live) -> None:
        """A failure is judged by the policy that is in force then."""
        granted = max((group.max_tries for group in live.groups.values()), default=1)
        if granted != self._granted:
            self._granted = granted
            for key, most in self._most_tries.items():
                if key in live.ledger:
                    self._most_tries[key] = max(most, granted)
        for key in live.ledger:
            self._most_tries.setdefault(key, granted)

    def _judge(self, session: Session, before: _Seen, now: _Seen, unit: Unit) -> None:
        charged = now.reschedules - before.reschedules
        placements = now.generation - before.generation
        self.expect(
            0 <= charged <= placements,
            f"{session.id} is charged {charged} failed placements more, of {placements}",
        )
        if placements != 1 or before.status not in PLACED_SESSION:
            return
        known = [self._facts.known[kernel.id, before.generation] for kernel in session.kernels]
        group = unit.live.groups[session.group]
        late = unit.now >= before.since + min(group.prepare_timeout, group.create_timeout)
        lost = any(end.how is not How.NEVER_BEGUN for each in known for end in each.ends)
        lost = lost or any(
            (kernel.id, before.generation) not in unit.live.ledger and not each.ends
            for kernel, each in zip(session.kernels, known, strict=True)
        )
        failed = any(each.failures for each in known)
        self.expect(
            not charged or failed or lost or late,
            f"{session.id} is charged a placement that did not fail",
        )
        given_up = any(
            each.tries >= self._most_tries[kernel.id, before.generation]
            or not UNFIT.isdisjoint(each.failures.values())
            for kernel, each in zip(session.kernels, known, strict=True)
        )
        taken_back = session.reason is not None and session.reason.code in DISPLACED
        taken_back = taken_back or any(each.ends for each in known)
        self.expect(
            bool(charged) or not given_up or taken_back,
            f"{session.id} is not charged a placement that failed",
        )
