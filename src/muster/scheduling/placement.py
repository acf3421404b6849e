"""The placement pass: validators → sequencer → selector over the queue of one scaling group."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TypeAlias

from muster.core.ids import AgentId
from muster.core.reasons import Reason, ReasonCode, reason
from muster.core.resources import Resources
from muster.scheduling.fit import Fit, fill, fit_session
from muster.scheduling.outcome import Outcome, Placed, Refused
from muster.scheduling.plugins import PassContext
from muster.scheduling.policy import Policy
from muster.scheduling.snapshot import Snapshot
from muster.scheduling.statement import Statement
from muster.scheduling.workload import SessionWorkload

_Key: TypeAlias = tuple[tuple[Resources, ...], frozenset[AgentId]]


def place(
    queue: Sequence[SessionWorkload], snapshot: Snapshot, policy: Policy, now: float
) -> list[Outcome]:
    """Decide about each session of ``queue``, all of the snapshot's group, in the order tried.

    A session that does not fit is overtaken by those that do, until it has waited for
    ``policy.starvation_after_s``; from then on nothing behind it starts before it. One that is too
    large for all agents that take work, even when they are empty, holds up nobody. What is placed
    is taken from the snapshot.

    Args:
        now: seconds since the epoch.

    Raises:
        MusterError: a plug-in answers nonsense; the snapshot is as it was.
    """
    with Statement(snapshot) as statement:
        placement = PlacementPass(statement, policy, now)
        outcomes = list(placement.decide(placement.order(queue)))
        statement.keep()
    return outcomes


@dataclass(slots=True)
class _Verdict:
    """What this pass knows of equal requests."""

    kernels: tuple[Resources, ...]
    failed_agents: frozenset[AgentId]
    short: Fit | None = None  # how far the one went that did not fit
    no_room: Reason | None = None  # set with ``short``
    never: Reason | None = None
    never_known: bool = False


class PlacementPass:
    """One pass over a group's queue, inside a statement that the caller keeps or not.

    Within a pass room only gets smaller: what did not fit is not tried again for equal requests.
    """

    def __init__(self, statement: Statement, policy: Policy, now: float) -> None:
        self._statement = statement
        self._snapshot = statement.snapshot
        self._policy = policy
        self._context = PassContext(self._snapshot, now)
        self._verdicts: dict[_Key, _Verdict] = {}
        self._starving: Reason | None = None  # why nothing more starts

    def order(self, queue: Sequence[SessionWorkload]) -> Iterable[SessionWorkload]:
        """The order in which sessions are tried."""
        return self._policy.sequencer.sequence(queue, self._context)

    def decide(self, order: Iterable[SessionWorkload]) -> Iterator[Outcome]:
        """Decide about each session of ``order``, after those decided before."""
        if isinstance(order, Sequence) and not self._policy.validators:
            for _, equals in groupby(order, _key):
                yield from self._decide_equals(list(equals))
        else:  # a lazy order, or a validator, must see what each session before came to
            for session in order:
                yield from self._decide_equals([session])

    def room(self, session: SessionWorkload) -> int:
        """How many of the session's kernels find room now, whatever else forbids it."""
        verdict = self._verdict(session)
        fit = verdict.short or self._try(self._statement, verdict)
        return fit.placed

    def _decide_equals(self, sessions: list[SessionWorkload]) -> Iterator[Outcome]:
        """Decide about sessions that follow each other and ask for the same."""
        forbidden = tuple(
            forbids
            for validator in self._policy.validators
            for forbids in validator.validate(sessions[0], self._context)
        )
        if forbidden:  # then the session is alone, as ``decide`` has it
            yield Refused(sessions[0], forbidden)
            return
        verdict = self._verdict(sessions[0])
        started: list[Placed] = []
        if self._starving is None and verdict.short is None:
            started = self._start(sessions, verdict)
            self._context.placed.extend(outcome.session for outcome in started)
            yield from started
        for session in sessions[len(started) :]:
            yield Refused(session, (self._why_not(verdict),))
            self._note_starving(session, verdict)

    def _start(self, sessions: list[SessionWorkload], verdict: _Verdict) -> list[Placed]:
        """Place as many of ``sessions`` as fit, from the first on."""
        started = []
        if len(verdict.kernels) == 1:
            request, failed = verdict.kernels[0], verdict.failed_agents
            found = fill(self._statement, self._policy.selector, request, len(sessions), failed)
            started = [
                Placed(session, (kernel,)) for session, kernel in zip(sessions, found, strict=False)
            ]
            fit = Fit(0)
        else:
            for session in sessions:
                fit = self._fit(self._statement, verdict)
                if fit.kernels is None:
                    break
                started.append(Placed(session, fit.kernels))
        if len(started) < len(sessions):
            verdict.short, verdict.no_room = fit, self._no_room(verdict, fit)
        return started

    def _fit(self, statement: Statement, verdict: _Verdict) -> Fit:
        return fit_session(statement, self._policy.selector, verdict.kernels, verdict.failed_agents)

    def _try(self, statement: Statement, verdict: _Verdict) -> Fit:
        mark = statement.mark()
        fit = self._fit(statement, verdict)
        statement.rollback(mark)
        return fit

    def _note_starving(self, session: SessionWorkload, verdict: _Verdict) -> None:
        """From a session on that waits too long for room, nothing starts any more."""
        waited_s = self._context.now - session.submitted_at
        if (
            self._starving is None
            and waited_s >= self._policy.starvation_after_s
            and self._never(verdict) is None
        ):
            self._starving = reason(
                ReasonCode.BEHIND_STARVING,
                group=self._snapshot.group,
                session=session.id,
                waited_s=int(waited_s),
            )

    def _verdict(self, session: SessionWorkload) -> _Verdict:
        key = _key(session)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._verdicts[key] = _Verdict(session.kernels, session.failed_agents)
        return verdict

    def _why_not(self, verdict: _Verdict) -> Reason:
        why = self._never(verdict) or self._starving or verdict.no_room
        assert why is not None, "refused, but neither held up nor short of room"
        return why

    def _no_room(self, verdict: _Verdict, fit: Fit) -> Reason:
        group = self._snapshot.group
        kernels = verdict.kernels
        if len(kernels) > 1:
            return reason(
                ReasonCode.GANG_NO_ROOM, placed=fit.placed, kernels=len(kernels), group=group
            )
        return reason(
            ReasonCode.NO_ROOM,
            agents=len(self._snapshot),
            group=group,
            request=kernels[0].describe(),
        )

    def _never(self, verdict: _Verdict) -> Reason | None:
        """Why the group as it is cannot hold the request even when empty; None if it can."""
        if not verdict.never_known:
            verdict.never, verdict.never_known = self._judge_size(verdict), True
        return verdict.never

    def _judge_size(self, verdict: _Verdict) -> Reason | None:
        agents, group = len(self._snapshot), self._snapshot.group
        accepting = int(self._snapshot.columns.accepting.sum())
        if not agents:
            return reason(ReasonCode.NO_AGENTS, group=group)
        if not accepting:
            return reason(ReasonCode.NO_ALIVE_AGENTS, agents=agents, group=group)
        if self._try(self._when_empty, verdict).kernels is not None:
            return None
        fit = self._try(self._with_absent, verdict)
        if fit.kernels is not None:
            absent = agents - accepting
            return reason(ReasonCode.NEEDS_ABSENT_AGENTS, absent=absent, agents=agents, group=group)
        kernels = verdict.kernels
        if len(kernels) > 1:
            return reason(
                ReasonCode.GANG_NEVER_FITS, placed=fit.placed, kernels=len(kernels), group=group
            )
        request = kernels[0].describe()
        return reason(ReasonCode.NEVER_FITS, agents=agents, group=group, request=request)

    @cached_property
    def _when_empty(self) -> Statement:
        return Statement(self._snapshot.emptied())

    @cached_property
    def _with_absent(self) -> Statement:
        return Statement(self._snapshot.emptied(all_accept=True))


def _key(session: SessionWorkload) -> _Key:
    return session.kernels, session.failed_agents
