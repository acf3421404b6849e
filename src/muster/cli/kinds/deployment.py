"""Deployments on the command line."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from muster.cli.kinds.kind import Kind, Shown
from muster.core.views.deployments import DeploymentDetail, DeploymentView

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from muster.client import Client


class DeploymentKind(Kind[DeploymentView, DeploymentDetail]):
    name = "deployment"
    is_cancelled = True

    def newest(
        self, client: "Client", state: str, *, limit: int, **filters: Any
    ) -> Sequence[DeploymentView]:
        return client.deployments(state, limit=limit)

    def name_of(self, record: DeploymentView) -> str | None:
        return record.name

    def offers(self, record: DeploymentView) -> Iterator[tuple[str, str]]:
        said = f"{record.status.lower()}, {record.healthy} of {record.replicas} healthy"
        yield record.name, said
        yield record.id, said

    def described(
        self, console: "Console", client: "Client", found: DeploymentDetail, shown: Shown
    ) -> "Sequence[RenderableType]":
        from muster.cli.described.deployment import deployment_parts

        return deployment_parts(found, time.time())


KIND = DeploymentKind()
