"""Recoveries of jobs, as both clients know them."""

from __future__ import annotations

from muster.client.resource import ClientResource, RecordViews, ResourceCalls, newest
from muster.core import views
from muster.core.ids import IdKind

RECOVERIES = ClientResource(
    name="recovery",
    prefix=IdKind.RECOVERY,
    path="/v1/recoveries",
    views=lambda: RecordViews(
        views.recoveries.RecoveryView,
        views.recoveries.RecoveryDetail,
        views.recoveries.RecoveryPage,
    ),
    listing=newest,
    is_cancelled=True,
)


class RecoveryCalls(ResourceCalls):
    """How jobs recover from faults of their machines."""

    recoveries = RECOVERIES
