"""Agents on the command line."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from muster.cli.kinds.kind import Json, Kind, Shown
from muster.core.errors import NotFound
from muster.core.views.cluster import AgentView

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from muster.client import Client
    from muster.core.views.cluster import HeldKernelPage
    from muster.core.views.health import IncidentView


INCIDENTS = 10
"""Incidents of a machine that are shown with it."""


class AgentKind(Kind[AgentView, AgentView]):
    """Agents; those that were removed are not offered."""

    name = "agent"

    def newest(
        self, client: "Client", state: str, *, limit: int, **filters: Any
    ) -> Sequence[AgentView]:
        return client.agents() if state != "ended" else ()

    def name_of(self, record: AgentView) -> str:
        return record.name

    def offers(self, record: AgentView) -> Iterator[tuple[str, str]]:
        yield record.name, str(record.barred or record.ill or record.status.lower())

    def described(
        self, console: "Console", client: "Client", found: AgentView, shown: Shown
    ) -> "Sequence[RenderableType]":
        from muster.cli.described.agent import agent_parts

        incidents, held = self._incidents(client, found), self._held(client, found)
        return agent_parts(console, found, incidents, time.time(), held)

    def as_json(self, client: "Client", found: AgentView, shown: Shown) -> Json:
        import msgspec

        answer: dict[str, Any] = msgspec.to_builtins(found)
        held = self._held(client, found)
        return {
            **answer,
            "held_kernels": None if held is None else msgspec.to_builtins(held),
            "incidents": msgspec.to_builtins(self._incidents(client, found)),
        }

    def _held(self, client: "Client", agent: AgentView) -> "HeldKernelPage | None":
        """The kernels on a machine; None from a controller that does not tell them."""
        with suppress(NotFound):
            return client.agent_kernels(agent.id)
        return None

    def _incidents(self, client: "Client", agent: AgentView) -> "Sequence[IncidentView]":
        """The newest incidents of a machine."""
        return client.incidents("all", agent=agent.id, limit=INCIDENTS)


KIND = AgentKind()
