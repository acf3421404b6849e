"""Recoveries on the command line."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from muster.cli.kinds.kind import Kind, Shown
from muster.core.views.recoveries import RecoveryDetail, RecoveryView

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from muster.client import Client


class RecoveryKind(Kind[RecoveryView, RecoveryDetail]):
    """Recoveries, which have the names of their jobs; those of ended jobs are not offered."""

    name = "recovery"
    is_cancelled = True

    def newest(
        self, client: "Client", state: str, *, limit: int, **filters: Any
    ) -> Sequence[RecoveryView]:
        return client.recoveries(limit=limit) if state != "ended" else ()

    def offers(self, record: RecoveryView) -> Iterator[tuple[str, str]]:
        yield record.id, f"{record.status.lower()}, of job {record.name}"

    def described(
        self, console: "Console", client: "Client", found: RecoveryDetail, shown: Shown
    ) -> "Sequence[RenderableType]":
        from muster.cli.described.recovery import recovery_parts

        return recovery_parts(found, time.time())


KIND = RecoveryKind()
