"""Incidents, and operators' decisions about machines: methods of both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.client.cluster import AGENTS
from muster.client.encoding import Ref, json_of
from muster.client.exchange import Exchange, exchange
from muster.client.resource import ClientResource, ListingQuery, RecordViews, ResourceCalls
from muster.core import views
from muster.core.ids import IdKind

if TYPE_CHECKING:
    from muster.core.views.health import IncidentView


def newest_incidents(
    state: str = "live", *, agent: str | None = None, group: str | None = None, limit: int = 100
) -> ListingQuery:
    """Incidents, newest first.

    Args:
        state: ``live``, ``ended``, ``all``, or one state.
        agent: only those of the machine with this name or id; a name is every machine's that has
            had it.
        group: only those of this scaling group.
        limit: how many at most.
    """
    return ListingQuery({"state": state, "agent": agent, "group": group}, limit)


INCIDENTS = ClientResource(
    name="incident",
    prefix=IdKind.INCIDENT,
    path="/v1/incidents",
    views=lambda: RecordViews(
        views.health.IncidentView, views.health.IncidentView, views.health.IncidentPage
    ),
    listing=newest_incidents,
)


class HealthCalls(ResourceCalls):
    """The health of machines. Decisions are for admins, and outrank every check; a ``note`` is an
    explanation for people, which history keeps."""

    incidents = INCIDENTS

    @exchange
    def check_agent(self, ref: Ref, *, note: str = "") -> Exchange[IncidentView]:
        """Have a machine checked: its work has to leave first, as its group says.

        Raises:
            NotFound: there is no such agent.
            Conflict: it is being checked, reset or rebooted already.
        """
        return self._decide(ref, "check", note)

    @exchange
    def heal_agent(self, ref: Ref, *, note: str = "") -> Exchange[IncidentView]:
        """Have a machine healed as if a check had found a fault: rebooted, and checked before it
        takes work again.

        Raises:
            NotFound: there is no such agent.
            Conflict: it is being checked, reset or rebooted already.
        """
        return self._decide(ref, "heal", note)

    @exchange
    def isolate_agent(self, ref: Ref, *, note: str = "") -> Exchange[IncidentView]:
        """Take a machine out of work until an operator decides; nothing is tried to heal it.

        Raises:
            NotFound: there is no such agent.
        """
        return self._decide(ref, "isolate", note)

    @exchange
    def return_agent(self, ref: Ref, *, note: str = "") -> Exchange[IncidentView]:
        """End a machine's incident: it takes work again, whatever checks say.

        Raises:
            NotFound: there is no such agent.
            Conflict: it has no incident.
        """
        return self._decide(ref, "return", note)

    def _decide(self, ref: Ref, decision: str, note: str) -> Exchange[IncidentView]:
        body = json_of({"decision": decision, "note": note})
        path = AGENTS.of(ref, "health")
        return self._read(
            views.health.IncidentView, self._send("POST", path, body=body, repeat=False)
        )
