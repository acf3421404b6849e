"""The reasons for which a session may end, and their causes. Pure functions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from muster.control.deployment.entity import Route
from muster.core.reasons import ReasonCode
from muster.core.specs import ScalingGroup, SessionSpec, SessionType
from muster.core.states import JOB_TABLE, SESSION_TABLE, JobState, SessionStatus
from muster.core.states.deployment import UP
from muster.store.live import Live
from muster.store.records import Session
from proving.swarm.chance import DEPLOYMENT
from proving.swarm.oracle.facts import End, How, Known
from proving.swarm.oracle.room import bounds_on, requested, spec_of

UNFIT = frozenset(
    {
        ReasonCode.WORKDIR_MISSING,
        ReasonCode.NO_ACCOUNT,
        ReasonCode.UID_CLASH,
        ReasonCode.NO_UID,
        ReasonCode.BAD_FILE_PATH,
    }
)
"""Failures that no further try on the same agent can cure."""
_ALSO = {
    ReasonCode.AGENT_REBOOTED: ReasonCode.KERNEL_VANISHED,
    ReasonCode.KERNEL_VANISHED: ReasonCode.AGENT_REBOOTED,
    ReasonCode.SUPERVISOR_LOST: ReasonCode.AGENT_REBOOTED,
}
"""Reasons that may be told instead of another one: a boot that is over is known by the Hello of the
next one, by the report of the next supervisor, or because a kernel is not known any more."""
_OF_RECOVERY = frozenset(code for code in ReasonCode if code.startswith("RECOVERY_"))
_OF_ROUTES = frozenset(code for code in ReasonCode if code.startswith("ROUTE_"))
_ENDED = {*JOB_TABLE.terminal, *SESSION_TABLE.terminal}


@dataclass(frozen=True, slots=True)
class Case:
    """A session that tells a reason, as it does once it has ended, and all that the oracle knows of
    it.

    Args:
        known: of each of its kernels, each of the kernel's generations; the last one is the
            latest.
        cancelled: whether somebody asked to cancel it or its job.
        stopped: whether somebody asked to stop its task alone.
        statuses: of jobs and sessions, as last committed.
        left_by: when the draining agents had to be left, by their names.
        lowest_priority: that it ever had.
        policies: that its group ever had, the one in force last.
    """

    session: Session
    live: Live
    now: float
    known: Sequence[Sequence[Known]]
    cancelled: bool
    stopped: bool
    statuses: Mapping[str, str]
    left_by: Mapping[str, float]
    lowest_priority: int
    policies: Sequence[ScalingGroup]

    @property
    def is_unsure(self) -> bool:
        """Whether nobody can tell which reports control has heard."""
        return any(each.is_unsure for each in self._all())

    @property
    def ends(self) -> list[End | None]:
        """The end of each kernel; None where it is not known, or two reports of it cross."""
        latest = [kernel[-1] for kernel in self.known]
        return [
            each.ends[0] if len(each.ends) == 1 and not each.is_unsure else None for each in latest
        ]

    def number(self, name: str) -> object:
        """A number of the reason that is told."""
        assert self.session.reason is not None, "it is a reason with this number"
        return self.session.reason.numbers()[name]

    def codes(self) -> set[ReasonCode | None]:
        """The reasons of all ends of its kernels, and of their failures to start."""
        ends: set[ReasonCode | None] = {end.code for each in self._all() for end in each.ends}
        return ends.union(*(each.failures.values() for each in self._all()))

    def most_failures(self) -> int:
        """How often its kernels failed to start, in the generation that failed most."""
        generations = zip(*self.known, strict=True)
        return max(sum(len(each.failures) for each in kernels) for kernels in generations)

    def _all(self) -> Iterator[Known]:
        for kernel in self.known:
            yield from kernel


def is_given_up(session: Session) -> bool:
    """Whether a recovery had the session end."""
    return session.reason is not None and session.reason.code in _OF_RECOVERY


def is_true(case: Case) -> bool:
    """Whether the reason that is told is the reason of the end."""
    session = case.session
    if session.reason is None:
        return False
    if session.reason.code in _OF_ROUTES:
        return _goes_with_its_route(case)
    cause = _CAUSES.get(session.reason.code)
    return _was_told(case) if cause is None else cause(case)


def _was_told(case: Case) -> bool:
    """Whether an agent told this reason of one of the kernels, or the agent itself was lost. A wake
    may take a part of what was heard before it: where no end is known, nobody can tell."""
    assert case.session.reason is not None, "it is looked at for its reason"
    code, codes = case.session.reason.code, case.codes()
    is_known = bool(codes) and not case.is_unsure
    return not is_known or code in codes or (code in _ALSO and _ALSO[code] in codes)


def _was_stopped(case: Case) -> bool:
    """Whether an agent told so, or that a generation had begun which was given up by then."""
    given_up = (each for kernel in case.known for each in kernel[:-1])
    return _was_told(case) or any(each.has_begun for each in given_up)


def _has_completed(case: Case) -> bool:
    ends = [end for end in case.ends if end is not None]
    if len(ends) < len(case.known):
        return True  # nobody can tell
    well = [_is_well(end) for end in ends]
    return all(well) if case.session.type is SessionType.BATCH else any(well)


def _is_well(end: End) -> bool:
    return end.how is How.BY_ITSELF and end.exit_code == 0


def _has_kernel_that_ended(case: Case) -> bool:
    ends = {kernel.index: end for kernel, end in zip(case.session.kernels, case.ends, strict=True)}
    index = case.number("index")
    return any(at == index and (end is None or not _is_well(end)) for at, end in ends.items())


def _has_led(case: Case) -> bool:
    ends = {kernel.index: end for kernel, end in zip(case.session.kernels, case.ends, strict=True)}
    leader, spec = case.number("index"), spec_of(case.session)
    end = ends.get(int(str(leader)))
    return spec.leader == leader and (end is None or _is_well(end))


def _was_cancelled(case: Case) -> bool:
    return case.cancelled or _goes_with_its_route(case)


def _was_stopped_alone(case: Case) -> bool:
    return case.stopped


def _goes_with_its_route(case: Case) -> bool:
    """Whether it is a deployment's replica, which is no longer to be there."""
    spec, found = spec_of(case.session), case.live.of(Route).values()
    stays = any(each.session_id == case.session.id and each.status in UP for each in found)
    return isinstance(spec, SessionSpec) and DEPLOYMENT in spec.kernels[0].env and not stays


def _ran_too_long(case: Case) -> bool:
    timeout_s, began = case.session.timeout_s, case.session.started_at
    return timeout_s is not None and began is not None and case.now >= began + timeout_s


def _waited_too_long(case: Case) -> bool:
    session = case.session
    handed_in = session.created_at if session.job is None else session.job.submitted_at
    timeout_s = session.scheduling_timeout_s
    began = max(handed_in, spec_of(session).not_before or 0.0)
    return timeout_s is not None and case.now >= began + timeout_s


def _job_has_ended(case: Case) -> bool:
    job = case.session.job
    return job is not None and job.status in JOB_TABLE.terminal


def _may_be_displaced(case: Case) -> bool:
    return bool(case.number("priority") > case.lowest_priority)  # type: ignore[operator]


def _had_to_leave(case: Case) -> bool:
    left_by = case.left_by.get(str(case.number("agent")))
    return left_by is not None and case.now >= left_by


def _had_to_make_room_for_healing(case: Case) -> bool:
    return any(policy.health is not None for policy in case.policies)


def _was_placed_in_vain(case: Case) -> bool:
    return case.session.reschedules > case.live.groups[case.session.group].max_reschedules


def _failed_too_often(case: Case) -> bool:
    tries = int(str(case.number("tries")))
    granted = min(policy.max_tries for policy in case.policies)
    return tries >= granted and (tries <= case.most_failures() or case.is_unsure)


def _took_too_long(case: Case) -> bool:
    opened_at = case.session.barrier_opened_at
    began = case.session.created_at if opened_at is None else opened_at
    return case.now >= began + float(case.number("timeout_s"))  # type: ignore[arg-type]


def _has_unfit_agents(case: Case) -> bool:
    return bool(case.session.unfit) and not UNFIT.isdisjoint(case.codes())


def _is_above_quota(case: Case) -> bool:
    resource, scope = str(case.number("resource")), (case.number("level"), case.number("owner"))
    limits = [
        quota.amounts.get(resource)
        for whose, quota in bounds_on(case.live, case.session)
        if whose == scope
    ]
    told = tuple(map(case.number, ("requested", "limit", "over")))
    asked = requested(case.session, resource)
    return any(
        limit is not None and (asked, limit, asked - limit) == told and asked > limit
        for limit in limits
    )


def _depends_in_vain(case: Case) -> bool:
    status = case.statuses.get(str(case.number("on")))
    return status in _ENDED and status != JobState.SUCCEEDED


def _depends_in_vain_on_a_failure(case: Case) -> bool:
    succeeded = (JobState.SUCCEEDED, SessionStatus.TERMINATED)
    return case.statuses.get(str(case.number("on"))) in succeeded


def _depends_on_nothing(case: Case) -> bool:
    return case.number("on") not in case.statuses


_CAUSES: Mapping[ReasonCode, Callable[[Case], bool]] = {
    ReasonCode.COMPLETED: _has_completed,
    ReasonCode.STOPPED: _was_stopped,
    ReasonCode.KERNEL_ENDED: _has_kernel_that_ended,
    ReasonCode.LEADER_ENDED: _has_led,
    ReasonCode.CANCELLED: _was_cancelled,
    ReasonCode.TASK_STOPPED: _was_stopped_alone,
    ReasonCode.TIMEOUT: _ran_too_long,
    ReasonCode.SCHEDULING_TIMEOUT: _waited_too_long,
    ReasonCode.JOB_ENDED: _job_has_ended,
    ReasonCode.JOB_FAILED: _job_has_ended,
    ReasonCode.PREEMPTED: _may_be_displaced,
    ReasonCode.PREEMPTED_FOR_GOOD: _may_be_displaced,
    ReasonCode.DRAINED: _had_to_leave,
    ReasonCode.HEALTH_HEALS: _had_to_make_room_for_healing,
    ReasonCode.RESCHEDULE_LIMIT: _was_placed_in_vain,
    ReasonCode.PHASE_GAVE_UP: _failed_too_often,
    ReasonCode.PHASE_EXPIRED: _took_too_long,
    ReasonCode.NO_AGENT_ABLE: _has_unfit_agents,
    ReasonCode.ABOVE_QUOTA: _is_above_quota,
    ReasonCode.DEPENDENCY_FAILED: _depends_in_vain,
    ReasonCode.DEPENDENCY_SUCCEEDED: _depends_in_vain_on_a_failure,
    ReasonCode.DEPENDENCY_MISSING: _depends_on_nothing,
}
"""The causes of reasons that control gives; all other reasons are those that agents tell."""
