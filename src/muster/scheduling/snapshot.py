"""A scaling group as placement sees it, kept current by deltas (DESIGN section 4)."""

import copy
import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from muster.core.errors import MusterError, NotFound
from muster.core.ids import AgentId
from muster.core.resources import Device, Resources
from muster.scheduling.columns import Columns, Shares


class OverCapacity(MusterError):
    """What should be taken is not free; nothing was taken."""


class NotHeld(MusterError):
    """What should be given back is more than is held; nothing was given back."""


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """What an agent is, whatever is held of it; ``status`` is for people only."""

    id: AgentId
    name: str
    capacity: Resources
    devices: tuple[Device, ...]
    accepting: bool
    status: str


class Snapshot:
    """The agents of one group: who they are here, their amounts in ``columns``.

    An agent keeps its slot for as long as it is known; the slot of one that left is used again.

    ``version`` goes up with each change after which a pass could come out otherwise. Takes are not
    among them: they only make room smaller. While it stands still, what lacked room still does.
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self.version = 0
        self.columns = Columns()
        self._facts: list[AgentFacts | None] = []  # by slot; None where the agent has left
        self._slots: dict[AgentId, int] = {}
        self._vacant: list[int] = []  # a heap, so that the lowest slot is used again first

    def __len__(self) -> int:
        """How many agents there are, accepting or not."""
        return len(self._slots)

    def facts(self, slot: int) -> AgentFacts:
        """The agent in ``slot``.

        Raises:
            NotFound: the slot is vacant.
        """
        facts = self._facts[slot]
        if facts is None:
            raise NotFound(f"no agent in slot {slot} of group {self.group}")
        return facts

    def slot(self, agent_id: AgentId) -> int:
        """The agent's slot.

        Raises:
            NotFound: the group has no such agent.
        """
        slot = self._slots.get(agent_id)
        if slot is None:
            raise NotFound(f"no agent {agent_id} in group {self.group}")
        return slot

    def slots_among(self, agent_ids: Iterable[AgentId]) -> list[int]:
        """The slots of those of ``agent_ids`` that the group has."""
        return [self._slots[agent_id] for agent_id in agent_ids if agent_id in self._slots]

    def emptied(self, *, all_accept: bool = False) -> "Snapshot":
        """A copy in which nothing is held, to try on; its agents must not be changed.

        Args:
            all_accept: as if every agent took new work, those that are silent included.
        """
        twin = copy.copy(self)
        twin.columns = self.columns.emptied(all_accept=all_accept)
        return twin

    # Deltas

    def upsert_agent(
        self,
        agent_id: AgentId,
        name: str,
        capacity: Resources,
        devices: tuple[Device, ...],
        accepting: bool,
        status: str,
    ) -> None:
        """Take in an agent, or what has changed of it; what is held of it stays held.

        Args:
            capacity: its ``gpu_milli`` is not looked at; ``devices`` are.
            accepting: whether it takes new work.
            status: what a person is told of one that does not.

        Raises:
            MusterError: two devices share an index, or there are more devices or named resources
                than a group can have; nothing was changed.
        """
        facts = AgentFacts(agent_id, name, capacity, devices, accepting, status)
        slot = self._slots.get(agent_id)
        if slot is not None and self._facts[slot] == facts:
            return
        indexes = [device.index for device in devices]
        if len(set(indexes)) < len(indexes):
            raise MusterError(f"two devices of agent {name} have the same index: {indexes}")
        self.columns.make_rows(capacity, indexes)
        if slot is None:
            slot = self._new_slot(agent_id)
        self._facts[slot] = facts
        self.columns.set_agent(slot, capacity, devices, accepting)
        self.version += 1

    def remove_agent(self, agent_id: AgentId) -> None:
        """Forget an agent with all that is held of it; one that is not known is forgotten."""
        slot = self._slots.pop(agent_id, None)
        if slot is None:
            return
        self._facts[slot] = None
        heapq.heappush(self._vacant, slot)
        self.columns.clear(slot)
        self.version += 1

    def take(
        self, agent_id: AgentId, resources: Resources, shares: Shares = (), *, force: bool = False
    ) -> None:
        """Hold ``resources`` of an agent, and ``shares`` of its devices.

        Args:
            force: it is a fact, whether it fits or not. While any amount of an agent is below
                zero, it gets nothing new.

        Raises:
            NotFound: the group has no such agent.
            OverCapacity: it does not fit; nothing was taken.
            MusterError: an absurd device index or number of named resources.
        """
        slot = self.slot(agent_id)
        if force:
            self.columns.make_rows(resources, [share.index for share in shares])
            self.columns.move(slot, resources, shares, -1)
        else:
            self.take_at(slot, resources, shares)

    def give_back(self, agent_id: AgentId, resources: Resources, shares: Shares = ()) -> None:
        """Free what ``take`` held; of an agent that has left, nothing is held.

        Raises:
            NotHeld: so much is not held of it; nothing was given back.
        """
        slot = self._slots.get(agent_id)
        if slot is None:
            return
        if not self.columns.holds_at(slot, resources, shares):
            raise NotHeld(f"{_what(resources, shares)} is more than agent {agent_id} has in use")
        self.columns.move(slot, resources, shares, +1)
        self.version += 1

    # What a statement does and undoes

    def take_at(self, slot: int, request: Resources, shares: Shares = (), copies: int = 1) -> None:
        """Hold ``request`` ``copies`` times and ``shares`` once.

        Raises:
            OverCapacity: it does not fit; nothing was taken.
        """
        if not self.columns.fits_at(slot, request, shares, copies):
            raise OverCapacity(
                f"agent {self.facts(slot).name} has no room for {copies} × {_what(request, shares)}"
            )
        self.columns.move(slot, request, shares, -copies)

    def untake_at(
        self, slot: int, request: Resources, shares: Shares = (), copies: int = 1
    ) -> None:
        """Undo ``take_at`` without a trace: ``version`` does not move."""
        self.columns.move(slot, request, shares, copies)

    def _new_slot(self, agent_id: AgentId) -> int:
        if self._vacant:
            slot = heapq.heappop(self._vacant)
        else:
            slot = self.columns.append_slot()
            self._facts.append(None)
        self._slots[agent_id] = slot
        return slot


def _what(resources: Resources, shares: Shares) -> str:
    devices = ", ".join(f"{share.milli}/1000 of device {share.index}" for share in shares)
    return f"({resources.describe()}{'; ' + devices if devices else ''})"
