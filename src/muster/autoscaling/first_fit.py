"""Room for kernels without rules among each other, on the first machines that have it.

Placement looks for the best machine; demand only asks which machines are needed. Agents that are
there come first, then machines that are coming, then new ones.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from muster.autoscaling.matching import Matcher
from muster.autoscaling.modelled import GONE, Machines
from muster.core.resources import Resources
from muster.scheduling.cluster.columns import Need, Shares
from muster.scheduling.cluster.constraints import eligible
from muster.scheduling.cluster.devices import choose
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.fit import fit_session
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.workload import KernelPlacement, WorkloadClass

Taken: TypeAlias = tuple[int, KernelPlacement]
"""The room of one kernel, and its agent's slot."""


@dataclass(frozen=True, slots=True)
class GangRoom:
    """How many of a gang's kernels find room, and by kernel's index the room of each if all do."""

    placed: int
    taken: Sequence[Taken] | None = None


class _Aisle:
    """The modelled machines of some pools, for requests for the same devices: places in their line.
    A machine that is too full for the least of these requests is looked at no more.

    Args:
        least: at most what any of the requests asks for.
        pools: their numbers.
    """

    def __init__(self, least: Need, pools: frozenset[int], machines: Machines) -> None:
        self.pools = pools
        self._least = least
        self._machines = machines
        self._places: list[int] = []  # ascending
        self._known = 0  # how much of the line is in ``_places``, or was

    def next(self, place: int, need: Need) -> int:
        """The first place, not before ``place``, of a machine with room for a kernel; the length of
        the line if there is none."""
        machines, places = self._machines, self._places
        line, agent = machines.line, machines.agent
        if self._known < len(line):
            pools, pool_of = self.pools, machines.pool_of
            places += [at for at in range(self._known, len(line)) if pool_of[at] in pools]
            self._known = len(line)
        index = bisect_left(places, place)
        while index < len(places):
            slot = line[places[index]]
            if slot != GONE:
                its = agent(slot)
                if need.has_room(its):
                    return places[index]
                if self._least.has_room(its):
                    index += 1
                    continue
            del places[index]
        return len(line)

    def look_again(self, place: int) -> None:
        """Look at a machine again, of which room was given back."""
        if place < self._known and self._machines.pool_of[place] in self.pools:
            index = bisect_left(self._places, place)
            if self._places[index : index + 1] != [place]:
                self._places.insert(index, place)


@dataclass(slots=True)
class _Search:
    """The search for machines for the kernels of a class that ask for the same.

    Args:
        agents: slots of the group's agents that may have room.
        tried: how many of these have none.
        place: in the line; machines before it have no room.
    """

    need: Need
    aisle: _Aisle
    agents: Sequence[int]
    tried: int = 0
    place: int = 0


@dataclass(slots=True)
class _Move:
    """Room that was taken."""

    slot: int
    need: Need
    shares: Shares
    copies: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A point to which ``FirstFit.rollback`` may return, for one class.

    Args:
        done: how much was done before.
        searches: ``tried`` and ``place`` of the class's searches.
    """

    done: int
    searches: Sequence[tuple[int, int]]


class FirstFit:
    """The room that is taken on a group's machines.

    Args:
        classes: of all demand.
    """

    def __init__(
        self,
        machines: Machines,
        matcher: Matcher,
        selector: AgentSelector,
        classes: Iterable[WorkloadClass],
    ) -> None:
        self._machines = machines
        self._matcher = matcher
        self._selector = selector
        self._searches: dict[WorkloadClass, Sequence[_Search]] = {}
        self._aisles: dict[tuple[object, frozenset[int]], _Aisle] = {}
        self._done: list[_Move | tuple[Statement, Sequence[int]]] = []
        requests: dict[object, list[Resources]] = {}
        for workload in classes:
            for request, _ in workload.requests:
                requests.setdefault(devices_of(request), []).append(request)
        self._least = {key: least_of(alike) for key, alike in requests.items()}
        columns = machines.agents.columns
        self._on_agents = {key: columns.fitting(each).size > 0 for key, each in self._least.items()}

    def fill(self, workload: WorkloadClass, count: int) -> list[Taken]:
        """Room for up to ``count`` sessions of one kernel; less if the room ends."""
        searches = self._searches_of(workload)
        return self._fill(searches[0], count) if searches else []

    def rooms(self, workload: WorkloadClass) -> list[int]:
        """The number of kernels with each of the class's requests for which there is room, if there
        were no other kernels and no rules among them; no more than the class has."""
        searches = self._searches_of(workload)
        if not searches:
            return [0] * len(workload.requests)
        each = workload.placement.max_kernels_per_agent
        numbers = [len(indexes) for _, indexes in workload.requests]
        return [
            self._room(search, number, number if each is None else each)
            for search, number in zip(searches, numbers, strict=True)
        ]

    def fill_gang(self, workload: WorkloadClass, found: Sequence[list[Taken]]) -> GangRoom:
        """Take room for the kernels of a gang, as far as there is some, by no rule among them but
        the most that one machine may hold.

        Args:
            found: by request, the room that was taken before; what is taken now is added.
        """
        searches = self._searches_of(workload)
        if not searches:
            return GangRoom(0)
        each, held = workload.placement.max_kernels_per_agent, dict[int, int]()
        if each is not None:
            for slot, _ in chain.from_iterable(found):
                held[slot] = held.get(slot, 0) + 1
        for search, its, (_, indexes) in zip(searches, found, workload.requests, strict=True):
            left = len(indexes) - len(its)
            if left:
                its += (
                    self._fill(search, left)
                    if each is None
                    else self._spread(search, left, each, held)
                )
        placed = sum(map(len, found))
        if placed < len(workload.kernels):
            return GangRoom(placed)
        if len(found) == 1:
            return GangRoom(placed, found[0])
        of_kernel: dict[int, Taken] = {}
        for its, (_, indexes) in zip(found, workload.requests, strict=True):
            of_kernel.update(zip(indexes, its, strict=True))
        return GangRoom(placed, [of_kernel[index] for index in range(placed)])

    def fit(self, workload: WorkloadClass) -> GangRoom:
        """Take room for a gang where placement would, by all rules among its kernels."""
        machines = self._machines
        statement = Statement(machines.snapshot())
        fit = fit_session(statement, self._selector, workload)
        if fit.kernels is None:
            return GangRoom(fit.placed)
        slots = [machines.slot(kernel.agent_id) for kernel in fit.kernels]
        machines.take_over(slots)
        self._done.append((statement, slots))
        return GangRoom(fit.placed, list(zip(slots, fit.kernels, strict=True)))

    def mark(self, workload: WorkloadClass) -> Mark:
        """The point to which a later ``rollback`` for a class may return."""
        searches = self._searches_of(workload)
        return Mark(len(self._done), [(each.tried, each.place) for each in searches])

    def rollback(self, to: Mark, workload: WorkloadClass) -> None:
        """Give back the room that sessions of a class, and of no other, took since a mark."""
        self.undo(to.done)
        for search, (tried, place) in zip(self._searches_of(workload), to.searches, strict=True):
            search.tried, search.place = tried, place

    @property
    def done(self) -> int:
        """How much was done, for ``undo``."""
        return len(self._done)

    def undo(self, to: int) -> None:
        """Give back the room that was taken since so much was done."""
        machines, done = self._machines, self._done
        while len(done) > to:
            last = done.pop()
            if isinstance(last, _Move):
                machines.move(last.slot, last.need, last.shares, last.copies)
                freed: Sequence[int] = (last.slot,)
            else:
                statement, freed = last
                machines.snapshot()
                statement.rollback()
                machines.take_over(freed)
            for slot in freed:
                if (place := machines.place_of[slot]) != GONE:
                    for aisle in self._aisles.values():
                        aisle.look_again(place)

    def _searches_of(self, workload: WorkloadClass) -> Sequence[_Search]:
        """The searches for the requests of a class; none if no machine, even an empty one, has
        enough for one of them."""
        searches = self._searches.get(workload)
        if searches is None:
            pools = frozenset(self._matcher.match(workload).pools)
            found = [self._search(workload, request, pools) for request, _ in workload.requests]
            searches = [each for each in found if each is not None]
            if len(searches) < len(found):
                searches = []
            self._searches[workload] = searches
        return searches

    def _search(
        self, workload: WorkloadClass, request: Resources, pools: frozenset[int]
    ) -> _Search | None:
        columns, kind = self._machines.columns, devices_of(request)
        need = columns.need(request)
        if need is None:
            return None
        aisle = self._aisles.get((kind, pools))
        if aisle is None:
            least = columns.need(self._least[kind])
            assert least is not None, "no request asks for less"
            aisle = self._aisles[kind, pools] = _Aisle(least, pools, self._machines)
        slots: Sequence[int] = ()
        if self._on_agents[kind]:
            agents = self._machines.agents
            fitting, mask = agents.columns.fitting(request), eligible(agents, workload)
            slots = (fitting if mask is None else fitting[mask[fitting]]).tolist()
        return _Search(need, aisle, slots)

    # Taking the room that one search finds

    def _first(self, search: _Search) -> int | None:
        """The slot of the first machine with room; None if none has."""
        machines, agents = self._machines, search.agents
        while search.tried < len(agents):
            slot = agents[search.tried]
            if search.need.has_room(machines.agent(slot)):
                return slot
            search.tried += 1
        search.place = search.aisle.next(search.place, search.need)
        return machines.line[search.place] if search.place < len(machines.line) else None

    def _room(self, search: _Search, count: int, each: int) -> int:
        """The number of kernels for which there is room, at most ``count``, and ``each`` of them on
        a machine."""
        before, found = (search.tried, search.place), 0
        while found < count and (slot := self._first(search)) is not None:
            found += search.need.room(self._machines.agent(slot), min(each, count - found))
            _step(search)
        search.tried, search.place = before
        return found

    def _spread(self, search: _Search, count: int, each: int, held: dict[int, int]) -> list[Taken]:
        """Take room for up to ``count`` kernels of a gang, of which a machine holds ``each`` at
        most.

        Args:
            held: by slot, how many kernels of the gang are there; more are added.
        """
        found: list[Taken] = []
        before: tuple[int, int] | None = None
        while len(found) < count and (slot := self._first(search)) is not None:
            before = before or (search.tried, search.place)
            most = min(each - held.get(slot, 0), count - len(found))
            if most > 0:
                number = search.need.room(self._machines.agent(slot), most)
                found += self.take(search.need, slot, number)
                held[slot] = held.get(slot, 0) + number
            _step(search)
        if before is not None:  # the next gang may find more room on these
            search.tried, search.place = before
        return found

    def _fill(self, search: _Search, count: int) -> list[Taken]:
        found: list[Taken] = []
        while len(found) < count and (slot := self._first(search)) is not None:
            left = count - len(found)
            number = 1 if left == 1 else search.need.room(self._machines.agent(slot), left)
            found += self.take(search.need, slot, number)
        return found

    def take(self, need: Need, slot: int, number: int) -> list[Taken]:
        """Take room for so many kernels on one machine, which has it."""
        machines = self._machines
        shares: Shares = ()
        if need.milli:
            chosen = choose(need.devices_in(machines.agent(slot)), need, number, fullest=True)
            shares = chosen[0] if number == 1 else tuple(chain.from_iterable(chosen))
            id_ = machines.id_of(slot)
            taken = [(slot, KernelPlacement(id_, each)) for each in chosen]
        else:
            taken = [(slot, machines.place(slot))] * number
        machines.move(slot, need, shares, -number)
        self._done.append(_Move(slot, need, shares, number))
        return taken

    def take_as(self, need: Need, slot: int, kernel: KernelPlacement) -> Taken:
        """Take room for one kernel on a machine, on the devices that one like it has elsewhere."""
        self._machines.move(slot, need, kernel.shares, -1)
        self._done.append(_Move(slot, need, kernel.shares, 1))
        return slot, KernelPlacement(self._machines.id_of(slot), kernel.shares)


def _step(search: _Search) -> None:
    """Look at the next machine."""
    if search.tried < len(search.agents):
        search.tried += 1
    else:
        search.place += 1


def devices_of(request: Resources) -> tuple[object, ...]:
    """The devices for which a request asks."""
    return request.gpu_milli, request.gpu_models


def least_of(requests: Sequence[Resources]) -> Resources:
    """The least that any of these requests, all for the same devices, asks for."""
    one = requests[0]
    extra = dict(one.extra)
    for request in requests:
        its = dict(request.extra)
        extra = {name: min(amount, its.get(name, 0)) for name, amount in extra.items()}
    return Resources.with_extra(
        min(request.cpu_milli for request in requests),
        min(request.memory_bytes for request in requests),
        min(request.disk_bytes for request in requests),
        one.gpu_milli,
        extra,
        one.gpu_models,
        min(request.kernels for request in requests),
    )
