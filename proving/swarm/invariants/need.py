"""The machines that pools make, compared with the machines that waiting work needs.

A kernel counts as a machine, and a session that asks for machines of one slice as whole slices, so
the need is never less than what placement uses. Which kernels slices in flight cannot serve follows
from Hall's theorem: of the work that can use no other pools than some, as many as there are more
than machines in flight in these pools.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, inf

from muster.control.pool.records import Pool, Slice
from muster.control.session.cluster.state import ClusterState
from muster.core.owner import Owner
from muster.core.resources import Resources
from muster.core.specs import JobSpec, SessionSpec
from muster.core.specs.pool import SLICE
from muster.core.states import SessionStatus
from muster.core.states.slice import SLICE_TABLE, SliceStatus
from muster.scheduling.accounting.usage import Scope, scopes
from muster.store.live import Live
from muster.store.records import Session
from muster.store.unit import NEW, Unit
from proving.swarm.invariants.placing import Placed
from proving.swarm.judge import Invariant, Judge
from proving.swarm.oracle.room import bounds_of, spec_of
from proving.swarm.oracle.usable import holds, meets

_LEVELS = 3
"""Quotas are of users, projects and domains."""
_WAITED = frozenset({NEW, SessionStatus.PENDING})


@dataclass(frozen=True, slots=True)
class Want:
    """A session that waits, or is to come: the pools whose machines can hold its kernels, the
    number of machines that it needs at most, and the amounts that it takes of quotas."""

    owner: Owner
    pools: frozenset[str]
    machines: int
    amounts: Mapping[str, int]


@dataclass(slots=True)
class Needless:
    """Slices that were made together, and the number of their machines that nothing needed."""

    group: str
    slices: set[str]
    machines: int


def _largest_slice(pool: Pool, live: Live) -> int:
    """The machines of a pool's slice; its settings may have been other ones for some of them."""
    its = (len(each.machines) for each in live.of(Slice).values() if each.pool == pool.name)
    return max(pool.spec.slice_size, *its, 0)


class MachinesAreNeeded(Invariant):
    """Judged when slices are made, by what waits then, and by what quotas leave. Slices that were
    made without need count until work has used them, or they are to go."""

    says = "machines made are no more than machines needed, and one slice for each pool"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._placed = judge.of(Placed)
        self._needless: list[Needless] = []
        self._used: set[str] = set()

    def committed(self, unit: Unit) -> None:
        made = [each for each, stored in unit.touched[Slice].items() if stored == NEW]
        self._note_use(unit)
        for group in sorted({each.group for each in made}):
            its = [each for each in made if each.group == group]
            self._judge(group, its, unit)

    def _note_use(self, unit: Unit) -> None:
        live = unit.live
        for row in live.ledger.values() if self._needless else ():
            agent = live.agents.get(row.agent_id)
            if agent is not None and SLICE in agent.fixed:
                self._used.add(agent.fixed[SLICE])

    def _judge(self, group: str, made: Sequence[Slice], unit: Unit) -> None:
        live = unit.live
        pools = {each.name: each for each in live.of(Pool).values() if each.group == group}
        wants = [*self._wants(group, pools, unit)]
        coming = _machines_coming(live, pools, made)
        lack = self._lack(wants, coming, live)
        beyond = sum(len(each.machines) for each in made) - _kept_ready(live, pools, made) - lack
        if beyond > 0:
            self._needless.append(Needless(group, {each.id for each in made}, beyond))
        needless = self._needless_now(group, live)
        most = sum(_largest_slice(each, live) for each in pools.values())
        self.expect(
            needless <= most,
            f"group {group} has {needless} machines that nothing needed when they were made, the "
            f"last for {len(wants)} sessions, {lack} of whose kernels had no machine coming",
        )

    def _needless_now(self, group: str, live: Live) -> int:
        """The machines without need that are there still, and were never used."""
        slices, total = live.of(Slice), 0
        for each in self._needless:
            there = [slices[id_] for id_ in sorted(each.slices - self._used) if id_ in slices]
            machines = sum(len(slice_.machines) for slice_ in there if slice_.doomed is None)
            each.machines = min(each.machines, machines)
            if each.group == group:
                total += each.machines
        self._needless = [each for each in self._needless if each.machines]
        return total

    # What waits

    def _wants(self, group: str, pools: Mapping[str, Pool], unit: Unit) -> Iterator[Want]:
        """The sessions of a group that wait, or did before the commit, and those to come."""
        live = unit.live
        waited = [each for each, stored in unit.touched[Session].items() if stored in _WAITED]
        waiting = [each for each in live.sessions.values() if each.status is SessionStatus.PENDING]
        for session in {each.id: each for each in (*waited, *waiting)}.values():
            if session.group == group and session.service is None:
                yield _want(session, pools)
        controller = self.world.controller
        to_come = {} if controller is None else controller.plane.parts[ClusterState].to_come
        for id_, count in to_come.items():
            job = live.jobs.get(id_)
            if job is not None and job.group == group:
                one = job.resources
                for _ in range(count):
                    yield _want_of(job.owner, [one], job.spec, pools)

    # What is missing

    def _lack(self, wants: Sequence[Want], coming: Mapping[str, int], live: Live) -> int:
        """How many machines are missing besides those that are coming."""
        lack, names = 0, sorted(coming)
        for size in range(1, len(names) + 1):
            for some in combinations(names, size):
                bound = [each for each in wants if each.pools and each.pools <= {*some}]
                machines = sum(coming[name] for name in some)
                lack = max(lack, self._allowed(bound, live) - machines)
        return lack

    def _allowed(self, wants: Collection[Want], live: Live) -> int:
        """The machines that quotas let sessions have, at most: level by level, from users up."""
        machines: dict[Owner, float] = {}
        for each in wants:
            machines[each.owner] = machines.get(each.owner, 0.0) + each.machines
        allowed: dict[tuple[Owner, ...], float] = {
            (owner,): total for owner, total in machines.items()
        }
        for level in range(_LEVELS):
            by_scope: dict[Scope, tuple[tuple[Owner, ...], float]] = {}
            for owners, total in allowed.items():
                scope = scopes(owners[0])[level]
                known, sum_ = by_scope.get(scope, ((), 0.0))
                by_scope[scope] = (*known, *owners), sum_ + total
            allowed = {}
            for scope, (owners, total) in by_scope.items():
                its = [each for each in wants if each.owner in owners]
                allowed[owners] = min(total, self._bound(scope, its, live))
        return ceil(sum(allowed.values()))

    def _bound(self, scope: Scope, wants: Sequence[Want], live: Live) -> float:
        """The machines that one quota lets sessions have, at most; parts of sessions count."""
        quota = bounds_of(live, scope)
        if quota is None:
            return inf
        held_sessions, held = self._held(scope, live)
        bounds = [inf]
        if quota.sessions is not None:
            left = max(0, quota.sessions - held_sessions)
            largest = sorted((each.machines for each in wants), reverse=True)
            bounds.append(sum(largest[:left]))
        for name, limit in quota.amounts.items():
            bounds.append(_most_within(name, limit - held.get(name, 0), wants))
        return min(bounds)

    def _held(self, scope: Scope, live: Live) -> tuple[int, dict[str, int]]:
        """The sessions of an owner that hold room, and the amounts that they hold."""
        sessions: set[str] = set()
        held: dict[str, int] = {}
        for row in live.ledger.values():
            session = self._placed.session_of.get(row.kernel_id)
            if row.charged and session is not None and scope in scopes(session.owner):
                sessions.add(session.id)
                for name, amount in row.resources.as_dict().items():
                    held[name] = held.get(name, 0) + amount
        return len(sessions), held


def _most_within(name: str, left: int, wants: Iterable[Want]) -> float:
    """How many machines sessions need at most that share so much of a resource."""
    machines = 0.0
    for each in sorted(wants, key=lambda want: want.amounts.get(name, 0) / want.machines):
        amount = each.amounts.get(name, 0)
        if amount <= left:
            machines += each.machines
            left -= amount
        else:
            return machines + each.machines * max(0, left) / amount
    return machines


def _want(session: Session, pools: Mapping[str, Pool]) -> Want:
    resources = [kernel.resources for kernel in session.kernels]
    return _want_of(session.owner, resources, spec_of(session), pools)


def _want_of(
    owner: Owner,
    kernels: Sequence[Resources],
    spec: JobSpec | SessionSpec,
    pools: Mapping[str, Pool],
) -> Want:
    amounts: dict[str, int] = {}
    for each in kernels:
        for name, amount in each.as_dict().items():
            amounts[name] = amounts.get(name, 0) + amount
    usable = {
        name
        for name, pool in pools.items()
        if meets(pool.effective, spec) and all(holds(pool.effective, each) for each in kernels)
    }
    machines = len(kernels)
    if spec.placement.together is not None and usable:
        machines = max(machines, *(pools[name].spec.slice_size for name in usable))
    return Want(owner, frozenset(usable), machines, amounts)


def _machines_coming(
    live: Live, pools: Mapping[str, Pool], made: Sequence[Slice]
) -> dict[str, int]:
    """The machines in flight of each pool that are as the pool is now, without those just made."""
    coming = dict.fromkeys(pools, 0)
    for slice_ in live.of(Slice).values():
        pool = pools.get(slice_.pool)
        if pool is None or slice_ in made or slice_.doomed is not None:
            continue
        is_coming = slice_.status in SLICE_TABLE.live and slice_.status is not SliceStatus.READY
        if is_coming and slice_.revision == pool.revision:
            coming[pool.name] += len(slice_.machines)
    return coming


def _kept_ready(live: Live, pools: Mapping[str, Pool], made: Sequence[Slice]) -> int:
    """The machines that ``min_slices`` and ``buffer_slices`` may have had made."""
    machines = 0
    for name, pool in pools.items():
        new = sum(each.pool == name for each in made)
        there = sum(each.pool == name and each.doomed is None for each in live.of(Slice).values())
        for_min = pool.spec.min_slices - (there - new)
        kept = min(new, max(0, for_min, pool.spec.buffer_slices))
        machines += kept * pool.spec.slice_size
    return machines
