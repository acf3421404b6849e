"""Recoveries of jobs over HTTP."""

from collections.abc import Collection

from muster.api.resource import Resource
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.recovery.entity import RECOVERY, Recovery, name_of
from muster.control.recovery.explanation import explain_ended_recovery, explain_recovery
from muster.control.recovery.queries import (
    list_recoveries,
    read_recovery,
    read_recovery_detail,
)
from muster.control.recovery.requests import RecoveryRequests
from muster.core.owner import Principal
from muster.core.states import TaskState
from muster.core.views.placement import WhyView
from muster.core.views.recoveries import RecoveryDetail, RecoveryPage, RecoveryView
from muster.store.live import Live


def _stop(work: Work, parts: Parts, principal: Principal, id_: str) -> Recovery:
    return parts[RecoveryRequests].stop(work, principal, id_)


def _graces_s(recovery: Recovery) -> Collection[float]:
    job = recovery.job
    return [job.spec.grace] if job.counts.get(TaskState.RUNNING) else ()


def _explain(live: Live, parts: Parts, name: str, now: float, asker: Principal) -> WhyView:
    return explain_recovery(live, name, now)


RECOVERIES: Resource[Recovery, RecoveryView] = Resource(
    entity=RECOVERY,
    path="/v1/recoveries",
    view=RecoveryView,
    detail=RecoveryDetail,
    page=RecoveryPage,
    read=read_recovery,
    show=read_recovery_detail,
    list_of=list_recoveries,
    name_of=lambda recovery: name_of(recovery.id, recovery.job),
    named=lambda recovery: f"the recovery of job {recovery.name} ({recovery.job})",
    cancel=_stop,
    graces_s=_graces_s,
    explain=_explain,
    explain_ended=explain_ended_recovery,
)
