"""Incidents on the command line."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from muster.cli.kinds.kind import Kind, Shown
from muster.core.views.health import IncidentView

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from muster.client import Client


class IncidentKind(Kind[IncidentView, IncidentView]):
    """Incidents; they have no names, and those that have ended are not offered."""

    name = "incident"

    def newest(
        self, client: "Client", state: str, *, limit: int, **filters: Any
    ) -> Sequence[IncidentView]:
        return client.incidents(limit=limit) if state != "ended" else ()

    def offers(self, record: IncidentView) -> Iterator[tuple[str, str]]:
        yield record.id, f"{record.status.lower()}, of agent {record.agent}"

    def described(
        self, console: "Console", client: "Client", found: IncidentView, shown: Shown
    ) -> "Sequence[RenderableType]":
        from muster.cli.described.incident import incident_parts

        return incident_parts(found, time.time())


KIND = IncidentKind()
