"""The outputs of the replicas of a deployment, as `muster logs` shows them together."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from muster.cli.kinds import session
from muster.cli.kinds.outputs import Extent, Outputs, Runs
from muster.cli.words import shorten
from muster.core.ids import IdKind
from muster.core.views.deployments import DeploymentDetail, RouteView

if TYPE_CHECKING:
    from muster.client import Client


class ReplicaOutputs(Outputs[DeploymentDetail]):
    """The output of each of these replicas, by its place among them.

    Args:
        routes: replicas that have sessions.
    """

    part = "replica"
    has_numbers = False

    def __init__(self, routes: Sequence[RouteView]) -> None:
        self._routes = routes
        short = shorten(each.id for each in routes)
        self._labels = [f"{IdKind.ROUTE}-{short[each.id]}" for each in routes]

    def label(self, index: int) -> str:
        return self._labels[index]

    def label_width(self, found: DeploymentDetail) -> int:
        return max(map(len, self._labels))

    def file_name(self, found: DeploymentDetail, index: int) -> str:
        return f"{self.part}-{self._routes[index].id}.log"

    def size(self, found: DeploymentDetail) -> int:
        return len(self._routes)

    def indexes(self, found: DeploymentDetail) -> Iterable[int]:
        return range(len(self._routes))

    def index_end(self, found: DeploymentDetail) -> int:
        return len(self._routes)

    def runs(self, client: "Client", found: DeploymentDetail, index: int) -> Runs:
        now = client.session(self._session(index))
        return Runs(now.kernels, now.reason)

    def pieces(self, client: "Client", id_: str, index: int, extent: Extent) -> Iterator[bytes]:
        return session.KIND.outputs.pieces(client, self._session(index), 0, extent)

    def _session(self, index: int) -> str:
        return str(self._routes[index].session)
