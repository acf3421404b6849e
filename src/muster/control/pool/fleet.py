"""The machines of all pools as they are known at a moment: agents by slice, and what providers
listed. Nothing here is stored: it is derived when the mirror is read, and listed anew. Only since
when machines without a slice are known outlives a mirror; a controller that starts has to see them
in as many lists as any other."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from muster.autoscaling.pool_state import ComingSlice, Holding
from muster.control.engine.work import Work
from muster.control.pool.effects import ANSWER_S
from muster.control.pool.records import OwnMachine, Pool, Slice, SliceId
from muster.control.pool.specs import Revision
from muster.control.session.cluster.machine_holds import MachineHold, MachineHolds
from muster.core.ids import TokenId
from muster.core.specs.pool import POOL, RESERVED, SLICE
from muster.core.states import AgentStatus
from muster.core.states.health import ILL, HealthStatus
from muster.core.states.slice import SliceStatus
from muster.providers.provider import Machine, MachineListing, MachineState
from muster.store.live import Live
from muster.store.records import Agent
from muster.store.tokens import JoinToken, token_hash

SETTLED_S = 120.0
"""How long a machine that was never listed may be missing from lists without being gone: a
provider may list it late, or tell of an older list."""
OLD_LISTS_S = 60.0
"""The same for a machine that was listed once, as the next list may be an older one."""
MISSED_LISTS = 2
"""Complete lists in a row without a machine after which it is gone."""
REJOIN_S = 120.0
"""How long machines have to be heard again once a controller has started, though a time limit of
theirs ended while there was none."""
_PRESENT = frozenset({MachineState.COMING, MachineState.RUNNING, MachineState.STOPPED})
"""States of machines that are there. One that is stopped may be about to boot anew; where it is
not, its agent is lost for good."""


@dataclass(slots=True)
class Orphans:
    """Machines that are listed under a slice of a pool which is not known, or ``has_ended``."""

    since: float
    machines: int
    lists: int = 0
    has_ended: bool = False


NONE: Mapping[str, Mapping[SliceId, Orphans]] = MappingProxyType({})


class Fleet:
    """The machines of all pools.

    Attributes:
        orphans: machines that belong to no slice, by pool and by the slice that their tag names.
        leaving: machines that their provider is about to take away, by slice.

    Args:
        began_at: when this controller took over.
        orphans: those that were known before the mirror was read again, which are taken over.
        read_at: when the mirror was read.
    """

    def __init__(
        self,
        live: Live,
        began_at: float,
        orphans: Mapping[str, Mapping[SliceId, Orphans]] = NONE,
        read_at: float = -math.inf,
    ) -> None:
        self._live = live
        self._began_at = began_at
        self._read_at = read_at
        self._read = frozenset(pool.id for pool in live.of(Pool).values())
        self._pools: dict[str, Pool] = {}
        self._groups: dict[str, list[Pool]] | None = None
        self._slices = live.index(Slice, by="pool")
        self._of_revision = live.index(Slice, by=lambda each: (each.pool, each.revision))
        self._agents = live.index(Agent, by=lambda agent: agent.fixed.get(SLICE))
        self._silent = live.index(Agent, by=_pool_of_silent)
        self.orphans: dict[str, dict[SliceId, Orphans]] = {}
        self.leaving: dict[SliceId, tuple[Machine, ...]] = {}
        for pool in live.of(Pool).values():
            self.add_pool(pool)
            known = orphans.get(pool.name, {}).items()
            self.orphans[pool.name] = {
                id_: each for id_, each in known if id_ not in live.of(Slice)
            }
        for slice_ in live.of(Slice).values():
            self.admit(slice_)

    # Agents

    def some_are_silent(self, pool: str) -> bool:
        """Whether some machine of the pool is silent or unknown."""
        return pool in self._silent or bool(self.orphans.get(pool))

    def agents(self, slice_: Slice) -> Mapping[str, Agent]:
        """The agents of a slice by name; machines that have not joined have none."""
        return {agent.name: agent for agent in self._agents.of(slice_.id)}

    def kernels(self, slice_: Slice) -> int:
        """How many kernels hold room on the slice's agents."""
        on = self._live.allocations_on
        return sum(len(on.get(agent.id, ())) for agent in self._agents.of(slice_.id))

    def is_used(self, slice_: Slice) -> bool:
        """Whether a kernel holds room on it, or a machine of it is checked or healed: work may wait
        for that one, and its incident ends in time."""
        on = self._live.allocations_on
        for agent in self._agents.of(slice_.id):
            if on.get(agent.id) or (agent.ill and agent.ill != ILL[HealthStatus.ISOLATED]):
                return True
        return False

    def awaited(self, slice_: Slice, holds: MachineHolds, now: float) -> MachineHold | None:
        """The hold of the job that waits longest for a machine of it; None if none does."""
        found = filter(None, (holds.on(each.id, now) for each in self._agents.of(slice_.id)))
        return max(found, key=lambda each: each.until, default=None)

    def isolated(self, slice_: Slice) -> str:
        """The name of a machine of it that waits for an operator; empty if none does."""
        agents = self._agents.of(slice_.id)
        return next((each.name for each in agents if each.ill == ILL[HealthStatus.ISOLATED]), "")

    def attributes(self, slice_: Slice) -> dict[str, str]:
        """The attributes of the slice's machines: those that its pool has now, and what cannot
        change of machines that were made."""
        pool = self._pools.get(slice_.pool)
        own = slice_.spec.attributes_in(slice_.id)
        return (
            own if pool is None else pool.spec.attributes | {name: own[name] for name in RESERVED}
        )

    def ends_at(self, since: float, limit_s: float) -> float:
        """When a time limit ends within which machines are to be heard."""
        at = since + limit_s
        return at if since >= self._began_at else max(at, self._began_at + REJOIN_S)

    # Tokens

    def admit(self, slice_: Slice) -> None:
        """Let the slice's machines join with its token, with the attributes of now."""
        if slice_.secret:
            token = JoinToken(
                id=TokenId(slice_.id),
                hash=token_hash(slice_.secret),
                agent=None,
                group=slice_.group,
                uses_left=None,
                created_at=slice_.created_at,
                expires_at=None,
                made_by=f"pool {slice_.pool}",
                names=frozenset(slice_.names),
                fixed=self.attributes(slice_),
            )
            self._live.accounts.join_tokens.add(token)

    def admit_no_more(self, slice_: Slice) -> None:
        """End the slice's token."""
        token = self._live.accounts.join_tokens.get(TokenId(slice_.id))
        if token is not None:
            self._live.accounts.join_tokens.remove(token)

    # Pools and slices

    def add_pool(self, pool: Pool) -> None:
        """Note a pool that is new, or has another group."""
        self._pools[pool.name] = pool
        self._groups = None

    def drop_pool(self, pool: Pool) -> None:
        """Note that a pool has ended."""
        if self._pools.get(pool.name) is pool:
            del self._pools[pool.name]
            self._groups = None
        self.orphans.pop(pool.name, None)

    def pools(self) -> Collection[Pool]:
        """The pools that exist."""
        return self._pools.values()

    def groups(self) -> Mapping[str, Sequence[Pool]]:
        """The pools of each group that has some."""
        if self._groups is None:
            self._groups = {}
            for pool in self._pools.values():
                self._groups.setdefault(pool.group, []).append(pool)
        return self._groups

    def pool(self, name: str) -> Pool | None:
        """The pool of this name that exists."""
        return self._pools.get(name)

    def has_slices_of(self, revision: Revision) -> bool:
        """Whether there are slices of a pool's revision."""
        return revision in self._of_revision

    def slices(self, pool: str) -> list[Slice]:
        """The slices of a pool whose machines are not known to be gone."""
        return list(self._slices.of(pool))

    def coming(self, slice_: Slice) -> ComingSlice:
        """A slice in flight, as demand is routed to it."""
        pool = self._pools.get(slice_.pool)
        spec = None  # that of its pool
        if pool is not None and slice_.revision != pool.revision:
            spec = slice_.spec.model_copy(update={"attributes": pool.spec.attributes})
        return ComingSlice(slice_.id, slice_.pool, len(slice_.machines), spec)

    # Lists

    def is_settled(self, pool: Pool, now: float) -> bool:
        """Whether every call about the pool that was under way when the mirror was read is over by
        now. Nobody waits for its answer any more, and it may still make machines."""
        return pool.id not in self._read or now >= self._read_at + ANSWER_S

    def listed(
        self,
        work: Work,
        name: str,
        generation: int,
        listing: MachineListing | None,
        told: str,
        ended: Collection[SliceId],
    ) -> None:
        """Take note of a list of a pool's machines; see ``MachinesListed``."""
        pool = self.pool(name)
        if pool is None or pool.asked_at is None or pool.generation != generation:
            return
        pool.asked_at = None
        work.mark(pool)
        pool.list_error = told
        if listing is None:
            return
        pool.listed_at = work.now
        if listing.complete or listing.machines:
            pool.heard_at = work.now
        pool.is_bare = pool.asked_alone and listing.complete and not listing.machines
        by_slice: dict[str, list[Machine]] = {}
        for machine in listing.machines:
            by_slice.setdefault(machine.slice, []).append(machine)
        for slice_ in self.slices(name):
            self._compare(work, slice_, by_slice.pop(slice_.id, []), complete=listing.complete)
        self._note_orphans(name, by_slice, ended, work.now, complete=listing.complete)

    def _compare(
        self, work: Work, slice_: Slice, listed: Sequence[Machine], *, complete: bool
    ) -> None:
        """Compare a slice with its machines, as they were listed."""
        self._note_machines(work, slice_, listed)
        slice_.details = {each.name: each.detail for each in listed if each.detail}
        leaving = tuple(each for each in listed if each.leaves_at is not None)
        if leaving:
            self.leaving[slice_.id] = leaving
            work.mark(slice_)
        if slice_.status is SliceStatus.REQUESTING or not complete:
            return
        present = {each.name for each in listed if each.state in _PRESENT}
        settled = work.now - slice_.status_changed_at >= SETTLED_S
        expected = {name for name, at in slice_.listed.items() if work.now >= at + OLD_LISTS_S}
        gone = frozenset(slice_.names if settled else expected) - present
        slice_.listed = dict.fromkeys(present, work.now) | slice_.listed
        if gone:
            slice_.missing, slice_.gone = slice_.missing + 1, gone
            work.mark(slice_)
        else:
            slice_.missing, slice_.gone = 0, gone

    def _note_machines(self, work: Work, slice_: Slice, listed: Iterable[Machine]) -> None:
        machines = told_machines(slice_, listed)
        if machines != slice_.machines:
            slice_.machines = machines
            work.unit.touch(slice_)

    def _note_orphans(
        self,
        pool: str,
        listed: Mapping[str, Sequence[Machine]],
        ended: Collection[SliceId],
        now: float,
        *,
        complete: bool,
    ) -> None:
        before, found = self.orphans.get(pool, {}), dict[SliceId, Orphans]()
        for id_, machines in listed.items():
            if id_ in self._live.of(Slice):
                continue  # of another pool, whose tags it must not have: nothing is done to it
            slice_ = SliceId(id_)
            orphans = before.get(slice_) or Orphans(now, 0)
            orphans.machines = len(machines)
            orphans.lists += complete
            orphans.has_ended = slice_ in ended
            found[slice_] = orphans
        if not complete:
            found = {**before, **found}
        self.orphans[pool] = found


def holding(pool: Pool, slices: Collection[Slice]) -> Holding | None:
    """The amounts that the slices of a pool count toward the ceilings of its group; None where the
    pool's spec tells them."""
    if all(each.spec is pool.spec for each in slices):
        return None
    return Holding(
        machines=sum(len(each.machines) for each in slices),
        gpus=sum(len(each.machines) * each.spec.machine.gpus for each in slices),
        price=sum(each.price for each in slices),
    )


def told_machines(slice_: Slice, told: Iterable[Machine]) -> tuple[OwnMachine, ...]:
    """The machines of a slice, with what its provider tells of them."""
    known = {each.name: each for each in told}
    return tuple(
        replace(own, id=known[own.name].id, address=known[own.name].address or own.address)
        if own.name in known
        else own
        for own in slice_.machines
    )


def _pool_of_silent(agent: Agent) -> str | None:
    """The pool of an agent of which nothing is heard."""
    return agent.fixed.get(POOL) if is_silent(agent) else None


def is_silent(agent: Agent) -> bool:
    """Whether nothing is heard of an agent."""
    return agent.status is not AgentStatus.ALIVE
