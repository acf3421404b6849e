"""The incidents that have not ended, by machine, service and group. Nothing here is stored: it is
derived when the mirror is read, and the mirror's indexes keep it up."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from muster.control.health.conditions import waits_for_turn
from muster.control.health.entity import Incident
from muster.core.ids import AgentId, SessionId
from muster.core.resources import DeviceShare
from muster.core.states.health import HealthStatus
from muster.store.live import Live
from muster.store.records import Allocation

RETURN_S = 120.0
"""How long machines have to be heard again once a controller has started, though a limit of theirs
ended while there was none."""


@dataclass(frozen=True, slots=True)
class OfGroup:
    """The incidents of a group: those that wait for a turn, those that have one, those that are
    checked without one, and those of which the last check found out nothing. An isolated machine
    has no turn: nothing is tried on it.

    ``unproven`` are machines of which nothing could be found out, each with the time until when
    they are checked for nothing but a fault; a restart forgets them.
    """

    waiting: Collection[Incident]
    out: Collection[Incident]
    beside: Collection[Incident]
    unknown: Collection[Incident]
    unproven: Mapping[AgentId, float]

    def unknown_at(self, now: float) -> int:
        """How many machines there are of which nothing can be found out."""
        unproven = {agent for agent, until in self.unproven.items() if until > now}
        return len(unproven.union(each.agent_id for each in self.unknown))


class Incidents:
    """The incidents that have not ended. It follows the ledger: a service may begin once work has
    left its machine.

    Attributes:
        freed: incidents on whose machines room was given back.
        groups_to_look_at: groups in which a turn may have become free.

    Args:
        began_at: when this controller took over.
    """

    def __init__(self, live: Live, began_at: float) -> None:
        self._began_at = began_at
        self._by_agent = live.index(Incident, by="agent_id")
        self._by_session = live.index(Incident, by="session")
        self._waiting = live.index(Incident, by=_group_if(waits_for_turn))
        self._out = live.index(Incident, by=_group_if(_is_out))
        self._beside = live.index(Incident, by=_group_if(lambda each: each.needs_no_turn))
        self._unknown = live.index(Incident, by=_group_if(lambda each: each.progress.unknowns > 0))
        self._unproven: dict[str, dict[AgentId, float]] = {}
        self.freed: dict[Incident, None] = {}
        self.groups_to_look_at = dict.fromkeys(incident.group for incident in self._waiting)

    def __len__(self) -> int:
        """The number of incidents that have not ended."""
        return len(self._by_agent)

    def __iter__(self) -> Iterator[Incident]:
        return iter(self._by_agent)

    def of(self, agent_id: AgentId) -> Incident | None:
        """The incident of a machine; None if it is healthy."""
        return self._by_agent.newest(agent_id)

    def of_service(self, session_id: SessionId) -> Incident | None:
        """The incident for which this service is under way."""
        return self._by_session.newest(session_id)

    def in_group(self, group: str) -> OfGroup:
        """The incidents of a group."""
        return OfGroup(
            waiting=self._waiting.of(group),
            out=self._out.of(group),
            beside=self._beside.of(group),
            unknown=self._unknown.of(group),
            unproven=self._unproven.get(group, {}),
        )

    def ends_at(self, since: float, limit_s: float) -> float:
        """When a limit ends within which a machine, or a service on it, is to be heard."""
        at = since + limit_s
        return at if since >= self._began_at else max(at, self._began_at + RETURN_S)

    def pause(self, incident: Incident, now: float, for_s: float) -> None:
        """Have a machine checked for nothing but a fault for a while."""
        known = self._unproven.get(incident.group, {}).items()
        kept = {id_: until for id_, until in known if until > now}
        self._unproven[incident.group] = kept | {incident.agent_id: now + for_s}

    def end_pause(self, incident: Incident) -> None:
        """Have a machine checked for anything again: a check found out something about it."""
        self._unproven.get(incident.group, {}).pop(incident.agent_id, None)

    def look_at(self, group: str) -> None:
        """Have the turns of a group given anew: one may be free, or its machines, of which a share
        has turns, are others."""
        if group in self._waiting:
            self.groups_to_look_at[group] = None

    # The ledger

    def allocated(self, allocation: Allocation) -> None:
        pass

    def charged(
        self, allocation: Allocation, before: tuple[DeviceShare, ...] | None, now: float
    ) -> None:
        pass

    def released(self, allocation: Allocation, now: float) -> None:
        incident = self.of(allocation.agent_id)
        if incident is not None:
            self.freed[incident] = None

    def take_freed(self) -> Sequence[Incident]:
        """The incidents on whose machines room was given back since the last call."""
        found, self.freed = [*self.freed], {}
        return found

    def take_groups(self) -> Sequence[str]:
        """The groups in which a turn may have become free since the last call."""
        found, self.groups_to_look_at = [*self.groups_to_look_at], {}
        return found


def _group_if(condition: Callable[[Incident], bool]) -> Callable[[Incident], str | None]:
    """A key by which the incidents of a group are found for which the condition holds."""
    return lambda incident: incident.group if condition(incident) else None


def _is_out(incident: Incident) -> bool:
    """Whether the incident has a turn."""
    return incident.has_turn and incident.status is not HealthStatus.ISOLATED
