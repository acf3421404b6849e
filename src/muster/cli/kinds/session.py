"""Sessions on the command line."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from muster.cli.kinds.kind import Row, Shown, WorkKind, gpus_of
from muster.cli.kinds.outputs import Extent, Outputs, Runs
from muster.core.exit_codes import FAILED
from muster.core.ids import IdKind
from muster.core.states import SESSION_TABLE, SessionStatus
from muster.core.views.work import SessionDetail, SessionView, WorkStanding

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from muster.cli.cluster import Cluster
    from muster.cli.hand_in import Display
    from muster.client import Client
    from muster.core.views.base import ReasonView


class KernelOutputs(Outputs[SessionDetail]):
    """The output of each kernel of a session."""

    part = "kernel"

    def size(self, found: SessionDetail) -> int:
        return len(found.kernels)

    def indexes(self, found: SessionDetail) -> Iterable[int]:
        return range(len(found.kernels))

    def index_end(self, found: SessionDetail) -> int:
        return len(found.kernels)

    def runs(self, client: "Client", found: SessionDetail, index: int) -> Runs:
        now = client.session(found.id)
        kernel = now.kernels[index]
        return Runs([kernel], kernel.reason or now.reason)

    def pieces(self, client: "Client", id_: str, index: int, extent: Extent) -> Iterator[bytes]:
        return client.session_logs(
            id_,
            kernel=index,
            tail_bytes=extent.tail_bytes,
            follow=extent.follow,
            stderr=extent.stderr,
            on_cut=extent.on_cut,
        )


def _gpus(record: SessionView) -> str:
    """How many GPUs a session has, of how many that it asks for."""
    return gpus_of(record.gpu_milli if record.status in _HOLD else 0, record.gpu_milli)


_HOLD = SESSION_TABLE.live - {SessionStatus.PENDING}


class SessionKind(WorkKind[SessionView, SessionDetail]):
    """Sessions."""

    name = "session"
    states = SESSION_TABLE
    scopes: ClassVar = {
        WorkStanding.WAITING: "pending",
        WorkStanding.STARTING: "live",
        WorkStanding.RUNNING: "running",
        WorkStanding.STOPPING: "terminating",
        WorkStanding.SUCCEEDED: "terminated",
        WorkStanding.FAILED: "terminated",
        WorkStanding.CANCELLED: "ended",
        WorkStanding.TIMED_OUT: "terminated",
        WorkStanding.STOPPED: "terminated",
    }
    has_parts = True
    has_replicas = True
    is_on_agents = True
    outputs = KernelOutputs()

    def newest(
        self,
        client: "Client",
        state: str,
        *,
        limit: int,
        replicas: bool = False,
        **filters: Any,
    ) -> Sequence[SessionView]:
        state = "live" if state == "current" else state
        return client.sessions(state, limit=limit, of_deployments=replicas, **filters)

    def standing(self, record: SessionView) -> str:
        return record.standing

    def silence(self, record: SessionView) -> "ReasonView | None":
        return record.silence

    def name_of(self, record: SessionView) -> str | None:
        return record.name

    def described(
        self, console: "Console", client: "Client", found: SessionDetail, shown: Shown
    ) -> "Sequence[RenderableType]":
        from muster.cli.described.session import session_parts

        return session_parts(console, found, time.time())

    def row(self, record: SessionView) -> Row:
        return Row(
            prefix=f"{IdKind.SESSION}-",
            name=record.name or "",
            size=record.type,
            tasks=None,
            gpus=_gpus(record),
            group=record.group,
            owner=record.owner,
            created_at=record.created_at,
            started_at=record.started_at,
            finished_at=record.finished_at,
        )

    def warnings(self, accepted: SessionView) -> "Sequence[ReasonView]":
        return accepted.warnings

    def exit_code(self, found: SessionDetail) -> int:
        return FAILED if found.exit_code is None else found.exit_code

    def wait(
        self, cluster: "Cluster", accepted: SessionView, display: "Display"
    ) -> "tuple[SessionView, int]":
        from muster.cli.follow.waiting import wait_until_ended

        def look(client: "Client") -> SessionDetail:
            return client.session(accepted.id)

        quiet = display.quiet or display.as_json
        return wait_until_ended(cluster, self, accepted, look, quiet=quiet)


KIND = SessionKind()
