"""Lamps on the command line."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from tests.control.lamp.entity import LAMP_TABLE
from tests.control.lamp.views import LampView

from muster.cli.cluster import Cluster
from muster.cli.follow.waiting import wait_until_ended
from muster.cli.hand_in import Display
from muster.cli.kinds.kind import Row, WorkKind
from muster.core import exit_codes
from muster.core.reasons import ReasonCode
from muster.core.views.base import OwnerView

if TYPE_CHECKING:
    from tests.control.lamp.joined_client import LampClient

    from muster.client import Client


class LampKind(WorkKind[LampView, LampView]):
    """Lamps; `muster show` lists their plain fields."""

    name = "lamp"
    states = LAMP_TABLE

    def newest(
        self, client: "Client", state: str, *, limit: int, **filters: Any
    ) -> Sequence[LampView]:
        return cast("LampClient", client).lamps(state, limit=limit, **filters)

    def name_of(self, record: LampView) -> str:
        return record.name

    def row(self, record: LampView) -> Row:
        return Row(
            prefix="lmp-",
            name=record.name,
            size="60 W",
            group="default",
            owner=OwnerView(domain="default", project="default", user="ada"),
            created_at=0.0,
            started_at=None,
            finished_at=None,
        )

    def exit_code(self, found: LampView) -> int:
        was_put_out = found.reason is not None and found.reason.code == ReasonCode.CANCELLED
        return 0 if was_put_out else exit_codes.FAILED

    def wait(self, cluster: Cluster, accepted: LampView, display: Display) -> tuple[LampView, int]:
        def look(client: "Client") -> LampView:
            return cast("LampClient", client).lamps.show(accepted.id)

        quiet = display.quiet
        return wait_until_ended(cluster, self, accepted, look, quiet=quiet)


KIND = LampKind()
