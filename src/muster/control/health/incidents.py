"""The incidents that have not ended, by machine, service and group. Nothing here is stored: it is
derived when the mirror is read, and kept up by the lifecycle of incidents."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from muster.control.health.conditions import waits_for_turn
from muster.control.health.entity import Incident, IncidentId
from muster.core.ids import AgentId, SessionId
from muster.core.resources import DeviceShare
from muster.core.states.health import HEALTH_TABLE, HealthStatus
from muster.store.live import Live
from muster.store.records import Allocation

RETURN_S = 120.0
"""How long machines have to be heard again once a controller has started, though a limit of theirs
ended while there was none."""


@dataclass(slots=True)
class OfGroup:
    """The incidents of a group: those that wait for a turn, those that have one, those that are
    checked without one, and those of which the last check found out nothing. An isolated machine
    has no turn: nothing is tried on it.

    ``unproven`` are machines of which nothing could be found out, each with the time until when
    they are checked for nothing but a fault; a restart forgets them.
    """

    waiting: dict[IncidentId, Incident] = field(default_factory=dict)
    out: dict[IncidentId, Incident] = field(default_factory=dict)
    beside: dict[IncidentId, Incident] = field(default_factory=dict)
    unknown: dict[IncidentId, Incident] = field(default_factory=dict)
    unproven: dict[AgentId, float] = field(default_factory=dict)

    def unknown_at(self, now: float) -> int:
        """How many machines there are of which nothing can be found out."""
        unproven = {agent for agent, until in self.unproven.items() if until > now}
        return len(unproven.union(each.agent_id for each in self.unknown.values()))


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
        self._by_agent: dict[AgentId, Incident] = {}
        self._by_session: dict[SessionId, Incident] = {}
        self._session_of: dict[IncidentId, SessionId] = {}
        self._groups: dict[str, OfGroup] = {}
        self.freed: dict[Incident, None] = {}
        self.groups_to_look_at: dict[str, None] = {}
        for incident in live.of(Incident).values():
            self.note(incident)

    def __len__(self) -> int:
        """The number of incidents that have not ended."""
        return len(self._by_agent)

    def __iter__(self) -> Iterator[Incident]:
        return iter(self._by_agent.values())

    def of(self, agent_id: AgentId) -> Incident | None:
        """The incident of a machine; None if it is healthy."""
        return self._by_agent.get(agent_id)

    def of_service(self, session_id: SessionId) -> Incident | None:
        """The incident for which this service is under way."""
        return self._by_session.get(session_id)

    def in_group(self, group: str) -> OfGroup:
        """The incidents of a group."""
        return self._groups.get(group) or OfGroup()

    def ends_at(self, since: float, limit_s: float) -> float:
        """When a limit ends within which a machine, or a service on it, is to be heard."""
        at = since + limit_s
        return at if since >= self._began_at else max(at, self._began_at + RETURN_S)

    def pause(self, incident: Incident, now: float, for_s: float) -> None:
        """Have a machine checked for nothing but a fault for a while."""
        of_group = self._groups.setdefault(incident.group, OfGroup())
        kept = {id_: until for id_, until in of_group.unproven.items() if until > now}
        of_group.unproven = kept | {incident.agent_id: now + for_s}

    def end_pause(self, incident: Incident) -> None:
        """Have a machine checked for anything again: a check found out something about it."""
        self.in_group(incident.group).unproven.pop(incident.agent_id, None)

    def note(self, incident: Incident) -> None:
        """Note that an incident is new, has changed or has ended."""
        is_live = incident.status in HEALTH_TABLE.live
        if is_live:
            self._by_agent[incident.agent_id] = incident
        elif self._by_agent.get(incident.agent_id) is incident:
            del self._by_agent[incident.agent_id]
        self._note_session(incident, incident.session if is_live else None)
        of_group = self._groups.setdefault(incident.group, OfGroup())
        is_isolated = incident.status is HealthStatus.ISOLATED
        for members, belongs in (
            (of_group.waiting, waits_for_turn(incident)),
            (of_group.out, is_live and incident.has_turn and not is_isolated),
            (of_group.beside, is_live and incident.needs_no_turn),
            (of_group.unknown, is_live and incident.progress.unknowns > 0),
        ):
            if belongs:
                members[incident.id] = incident
            else:
                members.pop(incident.id, None)
        self.look_at(incident.group)

    def look_at(self, group: str) -> None:
        """Have the turns of a group given anew: one may be free, or its machines, of which a share
        has turns, are others."""
        if self.in_group(group).waiting:
            self.groups_to_look_at[group] = None

    def _note_session(self, incident: Incident, session: SessionId | None) -> None:
        before = self._session_of.pop(incident.id, None)
        if before is not None:
            del self._by_session[before]
        if session is not None:
            self._session_of[incident.id] = session
            self._by_session[session] = incident

    # The ledger

    def allocated(self, allocation: Allocation) -> None:
        pass

    def charged(
        self, allocation: Allocation, before: tuple[DeviceShare, ...] | None, now: float
    ) -> None:
        pass

    def released(self, allocation: Allocation, now: float) -> None:
        incident = self._by_agent.get(allocation.agent_id)
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
