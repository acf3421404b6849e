"""From the wish for a slice until it is READY."""

from collections.abc import Sequence
from dataclasses import replace

from muster.autoscaling.standing import CONSEQUENCES, CreateOutcome, OutcomeScope, PoolStanding
from muster.control.engine.handler import (
    NO_CHANGE,
    DerivationHandler,
    FollowingHandler,
    HandlerResult,
    LifecycleHandler,
    Stage,
    StatusTransitions,
    TransitionStatus,
)
from muster.control.engine.work import Work
from muster.control.pool.effects import ANSWER_S, MakeSlice, ReadLog, SliceMade
from muster.control.pool.fleet import Fleet, told_machines
from muster.control.pool.records import Pool, Slice
from muster.control.pool.shapes import misfit, reported_shape
from muster.control.pool.slices import WORDS_S, SliceLifecycle, time_limit_s
from muster.core.reasons import Reason
from muster.core.reasons.of_machines import (
    ProviderRefused,
    ProviderSilent,
    SliceNotBooted,
    SliceNotJoined,
    SliceNotMade,
)
from muster.core.reasons.of_pools import PoolMakesAgain
from muster.core.results import SchedulingResult
from muster.core.specs.pool import SLICE
from muster.core.states import AgentStatus
from muster.core.states.slice import SliceStatus
from muster.store.records import Agent

FAILED = TransitionStatus(SliceStatus.FAILED)


class Standings:
    """Keeps account of what outcomes mean for pools."""

    def __init__(self, fleet: Fleet, slices: SliceLifecycle) -> None:
        self._fleet = fleet
        self._slices = slices

    def failed(self, work: Work, slice_: Slice, outcome: CreateOutcome, told: str = "") -> None:
        """Note that a slice was not made, or did not boot."""
        pool = self._fleet.pool(slice_.pool)
        if pool is None:
            return
        standing = pool.standing.after(outcome, work.now, chance(slice_.id), told)
        self._closed(work, pool, standing)
        if CONSEQUENCES[outcome].scope is OutcomeScope.QUOTA and pool.spec.quota_key is not None:
            for other in self._fleet.pools():
                if other is not pool and other.spec.quota_key == pool.spec.quota_key:
                    self._closed(work, other, standing)

    def made(self, work: Work, slice_: Slice) -> None:
        """Note that the provider made a slice."""
        pool = self._fleet.pool(slice_.pool)
        if pool is not None:
            self._set(work, pool, pool.standing.made())

    def ready(self, work: Work, slice_: Slice) -> None:
        """Note that a slice became READY, and the shape that its machines have."""
        pool = self._fleet.pool(slice_.pool)
        if pool is None:
            return
        failures = pool.standing.failures
        if failures:
            why = PoolMakesAgain(slice=slice_.id, failures=failures)
            work.unit.note(pool, JoinSlices.name, SchedulingResult.SUCCESS, why)
        self._set(work, pool, pool.standing.ready())
        shape = reported_shape(slice_.spec.machine, self._fleet.agents(slice_).values())
        if slice_.revision == pool.revision and shape != pool.reported:
            pool.reported = shape
            work.unit.touch(pool)
            work.mark(pool)

    def _closed(self, work: Work, pool: Pool, standing: PoolStanding) -> None:
        """Note that an outcome closes a pool. Its history has one row of a kind of outcome, however
        often that comes again: equal rows merge."""
        self._set(work, pool, standing)
        why = standing.closed(pool.name, pool.spec.quota_key, work.now)
        work.unit.note(pool, MakeSlices.name, SchedulingResult.NEED_RETRY, why)

    def _set(self, work: Work, pool: Pool, standing: PoolStanding) -> None:
        if pool.standing != standing:
            pool.standing = standing
            work.unit.touch(pool)
            work.mark(pool)
            self._slices.changed_groups.add(pool.group)


def chance(id_: str) -> float:
    """A number from 0 to 1 that is a slice's own: by it pools that were closed together open one
    after the other."""
    return int.from_bytes(id_[-4:].encode(), "big") % 1000 / 1000


class MakeSlices(LifecycleHandler[Slice]):
    """Has the provider make the machines of a slice: REQUESTING → BOOTING, or FAILED where the
    provider refuses. No answer is not a refusal: it is asked again, under the same key."""

    name = "MakeSlices"
    entity = Slice
    between_tries = True
    statuses = frozenset({SliceStatus.REQUESTING})
    transitions = StatusTransitions(
        success=TransitionStatus(SliceStatus.BOOTING), need_retry=NO_CHANGE, give_up=FAILED
    )

    def __init__(self, slices: SliceLifecycle, standings: Standings) -> None:
        self._slices = slices
        self._standings = standings

    def execute(self, targets: Sequence[Slice], work: Work) -> HandlerResult[Slice]:
        result: HandlerResult[Slice] = HandlerResult()
        for slice_ in targets:
            if slice_.doomed is None:
                self._go_on(slice_, result, work)
        return result

    def _go_on(self, slice_: Slice, result: HandlerResult[Slice], work: Work) -> None:
        outcome, slice_.outcome = slice_.outcome, None
        if isinstance(outcome, SliceMade):
            self._slices.turns.end(slice_, work)
            if outcome.outcome is CreateOutcome.CREATED:
                slice_.machines = told_machines(slice_, outcome.machines)
                self._standings.made(work, slice_)
                result.successes.append(slice_)
                return
            self._standings.failed(work, slice_, outcome.outcome, outcome.told)
            why = _refused(slice_, outcome)
            result.failures[slice_] = self._slices.failed(work, slice_, why)
        elif slice_.handed_at is not None:
            if work.now < slice_.handed_at + ANSWER_S:
                return
            self._slices.turns.end(slice_, work)
            self._standings.failed(work, slice_, CreateOutcome.UNKNOWN, "no answer")
            why = ProviderSilent(timeout_s=ANSWER_S)
            result.failures[slice_] = self._slices.failed(work, slice_, why)
        elif work.now >= slice_.created_at + slice_.spec.request_timeout:
            why = SliceNotMade(timeout_s=slice_.spec.request_timeout)
            self._slices.doom(work, slice_, self.name, why, failed=True)
        elif work.may_try(slice_) and self._slices.turns.begin(slice_, work):
            work.emit(MakeSlice(slice_.id, slice_.generation))


def _refused(slice_: Slice, outcome: SliceMade) -> Reason:
    return ProviderRefused(
        provider=slice_.spec.provider,
        outcome=outcome.outcome.value,
        told=outcome.told or None,
    )


class JoinSlices(DerivationHandler[Slice]):
    """BOOTING → INITIALIZING with the first agent that joins, and READY once all have joined with
    the devices that were declared. Drivers come late, so what is missing counts only after
    ``join_timeout``; then the slice is READY with what its machines report."""

    name = "JoinSlices"
    entity = Slice
    statuses = frozenset({SliceStatus.BOOTING, SliceStatus.INITIALIZING})

    def __init__(self, fleet: Fleet, standings: Standings) -> None:
        self._fleet = fleet
        self._standings = standings

    def derive(self, record: Slice, work: Work) -> tuple[TransitionStatus, Reason | None] | None:
        if record.doomed is not None:
            return None
        agents = self._fleet.agents(record)
        here = [each for each in agents.values() if each.boot_id]  # it said what it has
        if record.status is SliceStatus.BOOTING:
            return (TransitionStatus(SliceStatus.INITIALIZING), None) if here else None
        if len(here) < len(record.machines) or any(not _is_here(each) for each in here):
            return None
        wrong = next(filter(None, (misfit(each, record.spec.machine) for each in here)), None)
        if wrong is not None and work.now < record.status_changed_at + record.spec.join_timeout:
            return None
        return TransitionStatus(SliceStatus.READY), wrong

    def derived(self, record: Slice, work: Work) -> None:
        if record.status is SliceStatus.READY:
            self._standings.ready(work, record)


def _is_here(agent: Agent) -> bool:
    return agent.status is AgentStatus.ALIVE and agent.connected


class FollowAgents(FollowingHandler[Agent]):
    """Has handlers look at the slice, and the pool, of an agent that changed, and keeps the agent
    from work for the sake of its slice."""

    name = "FollowAgents"
    stage = Stage.OBSERVE
    entity = Agent
    statuses = frozenset(AgentStatus)

    def __init__(self, fleet: Fleet, slices: SliceLifecycle) -> None:
        self._fleet = fleet
        self._slices = slices

    def follow(self, record: Agent, work: Work) -> None:
        slice_ = work.live.of(Slice).get(record.fixed.get(SLICE, ""))
        if slice_ is None:
            return
        self._slices.withhold(slice_, (record,))
        work.mark(slice_)
        pool = self._fleet.pool(slice_.pool)
        if pool is not None:
            work.mark(pool)


class LimitSlices(FollowingHandler[Slice]):
    """Gives up slices that do not come in time, with the last words of a machine that did not
    join, or what its provider says of it. These words are the slice's own: its pool's standing is
    told without them."""

    name = "LimitSlices"
    entity = Slice
    statuses = frozenset({SliceStatus.BOOTING, SliceStatus.INITIALIZING})

    def __init__(self, fleet: Fleet, slices: SliceLifecycle, standings: Standings) -> None:
        self._fleet = fleet
        self._slices = slices
        self._standings = standings

    def follow(self, record: Slice, work: Work) -> None:
        limit_s = time_limit_s(record)
        assert limit_s is not None, "these statuses have one"
        ends_at = self._fleet.ends_at(record.status_changed_at, limit_s)
        if record.doomed is not None or work.now < ends_at:
            return
        here = {name for name, each in self._fleet.agents(record).items() if _is_here(each)}
        absent = next((name for name in record.names if name not in here), record.names[0])
        if self._waits_for_words(record, absent, work):
            return
        booting = record.status is SliceStatus.BOOTING
        kind = SliceNotBooted if booting else SliceNotJoined
        told = (record.words or {}).get(absent) or record.details.get(absent, "")
        plain = kind(joined=len(here), machines=len(record.machines), timeout_s=limit_s)
        why = replace(plain, machine=absent, told=told) if told else plain
        # Everybody who waits is told the pool's standing, and a machine's log may have secrets.
        known = f"{plain.sentence()}; `muster slices show {record.id}` has more"
        self._standings.failed(work, record, CreateOutcome.NOT_BOOTED, known)
        self._slices.doom(work, record, self.name, why, failed=True)

    def _waits_for_words(self, slice_: Slice, machine: str, work: Work) -> bool:
        """Whether the last words of the machine may still come; they are asked for once."""
        if slice_.asked_words is None:
            slice_.asked_words = work.now
            work.emit(ReadLog(slice_.id, slice_.pool, machine))
            work.mark(slice_)
        return slice_.words is None and work.now < slice_.asked_words + WORDS_S
