"""The answer of `muster why` about a recovery, and what it adds to that about its job."""

from msgspec.structs import replace
from sqlalchemy import Connection

from muster.control.recovery.entity import Recovery
from muster.control.recovery.lifecycle import spec_of, time_limit_s
from muster.control.recovery.rounds import AgentResult, Round
from muster.control.recovery.rules import first_index, waited_for
from muster.core import sentences
from muster.core.owner import Principal
from muster.core.reasons import Reason
from muster.core.reasons.of_recovery import RecoveryChecks, RecoveryHeals, RecoveryRestarts
from muster.core.states.recovery import RecoveryStatus
from muster.core.views.base import ReasonView
from muster.core.views.placement import WhyView
from muster.core.views.recoveries import RecoveryView
from muster.store.live import Live


def explain_recovery(live: Live, name: str, now: float) -> WhyView:
    """The things for which a live recovery waits, and how long at most."""
    recovery = live.of(Recovery)[name]
    return WhyView(
        subject=recovery.id,
        status=recovery.status,
        verdict=sentences.recovery(
            recovery.job.name, recovery.status, now - recovery.status_changed_at, recovery.restarts
        ),
        reasons=tuple(map(ReasonView.of, reasons_of(recovery, now))),
        name=recovery.job.name,
    )


def explain_ended_recovery(
    connection: Connection, principal: Principal, recovery: RecoveryView, now: float
) -> WhyView:
    """How a recovery ended."""
    ended_at = recovery.finished_at or recovery.status_changed_at
    verdict = sentences.recovery_ended(
        recovery.name, recovery.status, now - ended_at, recovery.restarts
    )
    return WhyView.of_ended(recovery, verdict, name=recovery.name)


def with_recovery(of_job: WhyView, recovery: Recovery | None, now: float) -> WhyView:
    """The answer about a live job, with what it waits for because of its machines' health first."""
    reasons = () if recovery is None else tuple(map(ReasonView.of, reasons_of(recovery, now)))
    return replace(of_job, reasons=(*reasons, *of_job.reasons)) if reasons else of_job


def reasons_of(recovery: Recovery, now: float) -> list[Reason]:
    """Why a live recovery is in its status."""
    round_ = recovery.open
    if round_ is None:
        return []
    limit_s = time_limit_s(recovery) or 0.0
    in_s = max(recovery.status_changed_at + limit_s - now, 0.0)
    match recovery.status:
        case RecoveryStatus.PENDING_HEALTHCHECK:
            return [_checks(round_, in_s)]
        case RecoveryStatus.PENDING_RESTART:
            return [_heals(round_, in_s, replace=spec_of(recovery).replace)]
        case RecoveryStatus.RESTARTING:
            most = spec_of(recovery).max_restarts
            restart = 0 if round_.is_leave else recovery.restarts + 1
            return [RecoveryRestarts(restart=restart, most=most)]
        case _:
            return []


def _checks(round_: Round, in_s: float) -> Reason:
    awaited = [each for each in round_.agents if each.result is AgentResult.AWAITED]
    return RecoveryChecks(
        index=first_index(round_),
        pending=len(awaited),
        agents=len(round_.agents),
        in_s=in_s,
        agent=(awaited or round_.agents)[0].name,
    )


def _heals(round_: Round, in_s: float, *, replace: bool) -> Reason:
    out = waited_for(round_) or round_.agents
    return RecoveryHeals(
        agent=out[0].name,
        others=len(out) - 1,
        in_s=in_s,
        replace=replace,
        found=out[0].said or None,
    )
