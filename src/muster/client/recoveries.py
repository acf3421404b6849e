"""Recoveries of jobs, as both clients know them."""

from __future__ import annotations

from muster.client.resource import ClientResource, newest
from muster.core.ids import IdKind
from muster.core.views.recoveries import RecoveryDetail, RecoveryPage, RecoveryView

RECOVERIES = ClientResource(
    name="recovery",
    prefix=IdKind.RECOVERY,
    path="/v1/recoveries",
    view=RecoveryView,
    detail=RecoveryDetail,
    page=RecoveryPage,
    listing=newest,
    is_cancelled=True,
)
