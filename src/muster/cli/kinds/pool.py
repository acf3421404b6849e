"""Pools on the command line."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from muster.cli.kinds.kind import Kind, Shown
from muster.core.views.pools import PoolView

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from muster.client import Client


class PoolKind(Kind[PoolView, PoolView]):
    """Pools; those that were deleted are not offered."""

    name = "pool"

    def newest(
        self, client: "Client", state: str, *, limit: int, **filters: Any
    ) -> Sequence[PoolView]:
        return client.pools(limit=limit) if state != "ended" else ()

    def name_of(self, record: PoolView) -> str:
        return record.name

    def offers(self, record: PoolView) -> Iterator[tuple[str, str]]:
        yield record.name, record.status.lower()

    def described(
        self, console: "Console", client: "Client", found: PoolView, shown: Shown
    ) -> "Sequence[RenderableType]":
        from muster.cli.described.pool import pool_parts

        return pool_parts(found, time.time())


KIND = PoolKind()
