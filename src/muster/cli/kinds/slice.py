"""Slices on the command line."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from muster.cli.kinds.kind import Kind, Shown
from muster.core.views.pools import SliceView

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from muster.client import Client


class SliceKind(Kind[SliceView, SliceView]):
    """Slices; they have no names, and those whose machines are gone are not offered."""

    name = "slice"

    def newest(
        self, client: "Client", state: str, *, limit: int, **filters: Any
    ) -> Sequence[SliceView]:
        return client.slices(limit=limit) if state != "ended" else ()

    def offers(self, record: SliceView) -> Iterator[tuple[str, str]]:
        yield record.id, f"{record.status.lower()}, of pool {record.pool}"

    def described(
        self, console: "Console", client: "Client", found: SliceView, shown: Shown
    ) -> "Sequence[RenderableType]":
        from muster.cli.described.slice import slice_parts

        return slice_parts(found, time.time())


KIND = SliceKind()
