"""The reasons that work may tell while it has not begun, or is held up, and the states of the world
in which each is true. Pure functions."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from muster.control.session.lifecycle import STOP_AGAIN_AFTER_S
from muster.core.reasons import ReasonCode
from muster.core.specs import DependencyCondition, Level
from muster.core.specs.group import QueuePolicy
from muster.core.states import (
    JOB_TABLE,
    KERNEL_TABLE,
    SESSION_TABLE,
    AgentBar,
    AgentStatus,
    SessionStatus,
)
from muster.core.states.health import ILL, HealthStatus
from muster.store.records import Agent, Session
from proving.swarm.oracle import causes
from proving.swarm.oracle.retries import pause_s
from proving.swarm.oracle.room import NOTICED_S, bounds_of, requested, spec_of
from proving.swarm.oracle.standing import Standing, fit_for, work_of
from proving.swarm.oracle.verdicts import DISPLACED

_ENDED = {*JOB_TABLE.terminal, *SESSION_TABLE.terminal}
_SILENT = "not connected"
_FULL = "out of disk"
_WITHHELD = "kept from work"
ROUNDED_S = 1.0
"""By how much a moment that is told may differ, because it is told in whole seconds."""
TENTH_S = 0.1


@dataclass(frozen=True, slots=True)
class Claim:
    """A reason that is told of a session while nothing is on its way.

    Args:
        case: the session, with all that is known of it.
        standing: the group of the session.
        is_now: whether it tells how much room and quota is left now, and not at the turn of the
            session in the last pass, in which sessions behind it may have taken some.
    """

    code: ReasonCode
    numbers: Mapping[str, Any]
    case: causes.Case
    standing: Standing
    is_now: bool = True

    @property
    def session(self) -> Session:
        return self.case.session

    @property
    def kernels(self) -> int:
        return len(self.session.kernels)


def is_true(claim: Claim) -> bool:
    """Whether the reason holds. Reasons of which nothing here tells are those of a placement that
    failed."""
    cause = _CAUSES.get(claim.code)
    return _was_placed_in_vain(claim) if cause is None else cause(claim)


# Room


def _has_no_room(claim: Claim) -> bool:
    standing, session = claim.standing, claim.session
    told_of = fit_for(session, standing.agents)
    return (
        claim.kernels == 1
        and standing.lacks_amounts(session)
        and standing.could_hold(session, fit_for(session, filter(_may_take_work, standing.agents)))
        and _counts_agents(claim, told_of)
    )


def _gang_has_no_room(claim: Claim) -> bool:
    standing, session = claim.standing, claim.session
    places, placed = standing.places(session), claim.numbers["placed"]
    return (
        claim.numbers["kernels"] == claim.kernels > 1
        and places < claim.kernels
        and standing.lacks_amounts(session)
        and (placed == places or not claim.is_now or (placed < places and standing.may_keep_room))
        and standing.could_hold(session, filter(_may_take_work, standing.agents))
        and _counts_agents(claim, fit_for(session, standing.agents))
    )


def _agents_are_full(claim: Claim) -> bool:
    """Whether nothing but the number of their kernels keeps agents from taking it."""
    standing, session = claim.standing, claim.session
    return (
        claim.numbers["most"] == standing.spec.kernels_per_agent
        and not standing.has_room(session)
        and (standing.has_amounts(session) or not claim.is_now)
    )


def _is_behind(claim: Claim) -> bool:
    """Whether another session lacks room, for which is kept what this one could have."""
    standing, other = claim.standing, _waiting(claim, claim.numbers["session"])
    return (
        other is not None
        and other is not claim.session
        and (standing.has_room(claim.session) or not claim.is_now)
        and not standing.has_room(other)
        and (
            other.priority in standing.displacing
            or (
                standing.spec.queue is QueuePolicy.BACKFILL
                and standing.is_ahead(other.id, claim.session)
            )
        )
    )


def _is_behind_reservation(claim: Claim) -> bool:
    return claim.numbers["in_s"] >= 0 and _is_behind(claim)


def _is_behind_starving(claim: Claim) -> bool:
    other, after_s = _waiting(claim, claim.numbers["session"]), claim.standing.spec.starvation_after
    starves = other is not None and claim.standing.now >= other.created_at + after_s
    return starves and claim.numbers["after_s"] == round(after_s) and _is_behind(claim)


def _is_behind_strictly(claim: Claim) -> bool:
    standing, other = claim.standing, _waiting(claim, claim.numbers["session"])
    return (
        other is not None
        and standing.spec.queue is QueuePolicy.STRICT
        and standing.is_ahead(other.id, claim.session)
        and not standing.has_room(other)
    )


def _waiting(claim: Claim, id_: object) -> Session | None:
    return next((each for each in claim.standing.waiting if each.id == id_), None)


# Agents that could never hold it, or take no work


def _is_without_agents(claim: Claim) -> bool:
    return not claim.standing.agents


def _is_without_open_agents(claim: Claim) -> bool:
    agents = claim.standing.agents
    return not any(map(_may_take_work, agents)) and _counts_agents(claim, agents)


def _needs_closed_agents(claim: Claim) -> bool:
    session, standing, agents = claim.session, claim.standing, claim.standing.agents
    could = standing.could_hold(session, filter(_may_take_work, agents))
    return standing.could_hold(session, agents) and not could and _counts_agents(claim, agents)


def _can_never_fit(claim: Claim) -> bool:
    could = claim.standing.could_hold(claim.session, claim.standing.agents)
    return not could and _counts_all(claim)


def _may_take_work(agent: Agent) -> bool:
    """Whether it takes work, or is expected to: it could be reached a moment ago."""
    is_open = agent.barred is None and not agent.disk_full and not agent.ill
    return agent.status is AgentStatus.ALIVE and is_open


def _counts_all(claim: Claim) -> bool:
    return bool(claim.numbers["agents"] == len(claim.standing.agents))


def _counts_agents(claim: Claim, told_of: Iterable[Agent]) -> bool:
    """Whether each agent that takes no work is counted once, under what keeps it from that.

    Args:
        told_of: the agents of which the closed ones are counted.
    """
    numbers, standing = claim.numbers, claim.standing
    closed = [agent for agent in told_of if agent not in standing.open]
    words = Counter(map(_word, closed))
    told: Counter[str] = Counter()
    for count, word in re.findall(r"(?<!\d)(\d+) ([^,]+)", numbers.get("statuses") or ""):
        told[next((known for known in _WORDS if word.startswith(known)), word)] += int(count)
    barred = sum(words[str(bar)] for bar in AgentBar)
    isolated = words[ILL[HealthStatus.ISOLATED]]
    healing = sum(words[each] for each in ILL.values()) - isolated
    silent = len(closed) - barred - isolated - healing - words[_FULL] - words[_WITHHELD]
    return (
        _counts_all(claim)
        and numbers.get("closed", len(closed)) == len(closed)
        and told == words
        and (numbers.get("barred") or 0) == barred
        and (numbers.get("isolated") or 0) == isolated
        and (numbers.get("healing") or 0) == healing
        and (numbers.get("full") or 0) == words[_FULL]
        and (numbers.get("withheld") or 0) == words[_WITHHELD]
        and (numbers.get("silent") or 0) == silent
    )


def _word(agent: Agent) -> str:
    """The word for what keeps an agent from new work."""
    if not agent.connected:
        return _SILENT
    if agent.status is not AgentStatus.ALIVE:
        return agent.status.lower()
    if agent.disk_full:
        return _FULL
    if agent.barred is not None:
        return str(agent.barred)
    return _WITHHELD if agent.withheld else agent.ill


_WORDS = (_SILENT, _FULL, _WITHHELD, *map(str, AgentBar), *ILL.values())


# Rules


def _exceeds_quota(claim: Claim) -> bool:
    numbers, standing, session = claim.numbers, claim.standing, claim.session
    scope, resource = (Level(numbers["level"]), numbers["owner"]), numbers["resource"]
    quota = bounds_of(standing.live, scope)
    if quota is None:
        return False
    limit = quota.sessions if resource == "sessions" else quota.amounts.get(resource)
    asked = 1 if resource == "sessions" else requested(session, resource)
    used, told = standing.used(scope, resource), numbers["used"]
    return (
        limit is not None
        and (numbers["limit"], numbers["requested"]) == (limit, asked)
        and (told == used or not claim.is_now or (told > used and bool(standing.displacing)))
        and numbers["over"] == told + asked - limit > 0
    )


def _waits_for_other_work(claim: Claim) -> bool:
    return any(
        _is_unmet(claim, each.on, each.condition)
        for each in spec_of(claim.session).after
        if each.called == claim.numbers["on"]
    )


def _is_unmet(claim: Claim, on: str, condition: DependencyCondition) -> bool:
    standing = claim.standing
    has_ended = claim.case.statuses.get(on) in _ENDED
    runs = any(
        each.status is SessionStatus.RUNNING and work_of(each) == on
        for each in standing.live.sessions.values()
    )
    if claim.numbers["state"] == "waiting" and runs:
        return False
    if condition in (DependencyCondition.ENDED, DependencyCondition.FAILED):
        holders = (standing.session_of.get(row.kernel_id) for row in standing.live.ledger.values())
        return not has_ended or on in {work_of(each) for each in holders if each is not None}
    return not has_ended and (condition is DependencyCondition.SUCCEEDED or not runs)


def _is_before_its_time(claim: Claim) -> bool:
    not_before = spec_of(claim.session).not_before
    if not_before is None or not_before <= claim.standing.now - NOTICED_S:
        return False
    return datetime.fromisoformat(claim.numbers["moment"]) == datetime.fromtimestamp(
        int(not_before), UTC
    )


# What holds up work that has its place


def _is_cleaned_up(claim: Claim) -> bool:
    on = {row.agent_id for row in claim.standing.rows_of(claim.session)}
    return any(agent.id in on for agent in claim.standing.named(claim.numbers["agent"]))


def _is_on_silent_agent(claim: Claim) -> bool:
    on = {row.agent_id for row in claim.standing.rows_of(claim.session)}
    named = claim.standing.named(claim.numbers["agent"])
    return any(agent.id in on and not agent.connected for agent in named)


def _is_to_leave(claim: Claim) -> bool:
    on, in_s = (
        {row.agent_id for row in claim.standing.rows_of(claim.session)},
        claim.numbers["in_s"],
    )
    return any(
        agent.id in on
        and agent.leave_by is not None
        and abs(in_s - max(agent.leave_by - claim.standing.now, 0)) <= ROUNDED_S
        for agent in claim.standing.named(claim.numbers["agent"])
    )


def _is_in_backlog(claim: Claim) -> bool:
    named = {agent.id for agent in claim.standing.named(claim.numbers["agent"])}
    rows = claim.standing.rows_of(claim.session)
    return any(row.agent_id in named and not row.charged for row in rows)


def _is_at_barrier(claim: Claim) -> bool:
    standing, session = claim.standing, claim.session
    ready = [each for each in session.kernels if (each.id, each.generation) in standing.ready]
    if any(each.agent_id not in standing.quiet for each in session.kernels):
        return True  # nobody can tell what was heard
    named = {agent.id for agent in standing.named(claim.numbers.get("agent"))}
    missing = {each.agent_id for each in session.kernels if each not in ready}
    return (
        session.status is SessionStatus.CREATING
        and (claim.numbers["ready"], claim.numbers["kernels"]) == (len(ready), claim.kernels)
        and bool(named & missing)
    )


def _waits_to_be_tried_again(claim: Claim) -> bool:
    """The wait doubles with each try; a policy may have changed since it was set. A session that
    ends waits as long each time before its agents are told to stop it again."""
    session, now = claim.session, claim.standing.now
    if session.status is SessionStatus.TERMINATING:
        return 0 < session.retry_at - now <= STOP_AGAIN_AFTER_S
    first_s = max(policy.retry_backoff for policy in claim.case.policies)
    left_s, most_s = session.retry_at - now, first_s * 2 ** (session.tries - 1)
    is_told = abs(claim.numbers["seconds"] - left_s) <= TENTH_S
    return is_told and 0 < left_s <= most_s and _has_failed(claim)


def _task_waits_to_be_tried_again(claim: Claim) -> bool:
    job, now = claim.session.job, claim.standing.now
    task = None if job is None else job.tasks.get(claim.numbers["index"])
    if job is None or task is None or task.session_id is not None:
        return False
    left_s = task.retry_at - now
    others = [each for each in job.waiting.values() if each.failure_count and each.retry_at > now]
    return (
        0 < left_s <= pause_s(job.spec, task.failure_count)
        and abs(claim.numbers["seconds"] - left_s) <= TENTH_S
        and claim.numbers["failures"] == task.failure_count
        and (claim.numbers["others"] or 0) == len(others) - 1
    )


def _others_run_on(claim: Claim) -> bool:
    kernels, numbers = claim.session.kernels, claim.numbers
    ended = [each for each in kernels if each.status in KERNEL_TABLE.terminal]
    return (
        (numbers["ended"], numbers["kernels"]) == (len(ended), len(kernels))
        and numbers["left"] == len(kernels) - len(ended) > 0
        and any(each.index == numbers["index"] for each in ended)
        and spec_of(claim.session).leader not in [each.index for each in ended]
    )


def _has_failed(claim: Claim) -> bool:
    known = [kernel[-1] for kernel in claim.case.known]
    return any(each.failures or each.is_unsure for each in known)


def _has_tasks_to_come(claim: Claim) -> bool:
    job = claim.session.job
    return job is not None and claim.numbers["waiting"] == job.tasks_total - job.next_task


def _was_placed_in_vain(claim: Claim) -> bool:
    """Whether an agent has told so, or the session went back to the queue for this, or does once
    its agent has told that it never ran."""
    case, session = claim.case, claim.session
    if session.reason is not None and session.reason.code is claim.code:
        waits = session.status in (SessionStatus.PENDING, SessionStatus.TERMINATING)
        asked_back = claim.code in DISPLACED and session.status is SessionStatus.CREATING
        return (waits or asked_back) and causes.is_true(case)
    return claim.code in case.codes()


_CAUSES: Mapping[ReasonCode, Callable[[Claim], bool]] = {
    ReasonCode.NO_ROOM: _has_no_room,
    ReasonCode.GANG_NO_ROOM: _gang_has_no_room,
    ReasonCode.AGENTS_FULL: _agents_are_full,
    ReasonCode.BEHIND_RESERVATION: _is_behind_reservation,
    ReasonCode.BEHIND_STARVING: _is_behind_starving,
    ReasonCode.STRICT_ORDER: _is_behind_strictly,
    ReasonCode.NO_AGENTS: _is_without_agents,
    ReasonCode.NO_ALIVE_AGENTS: _is_without_open_agents,
    ReasonCode.NEEDS_ABSENT_AGENTS: _needs_closed_agents,
    ReasonCode.NEVER_FITS: _can_never_fit,
    ReasonCode.GANG_NEVER_FITS: _can_never_fit,
    ReasonCode.QUOTA_IN_USE: _exceeds_quota,
    ReasonCode.DEPENDENCY_NOT_MET: _waits_for_other_work,
    ReasonCode.BEFORE_START_TIME: _is_before_its_time,
    ReasonCode.CLEANING_UP: _is_cleaned_up,
    ReasonCode.AGENT_UNREACHABLE: _is_on_silent_agent,
    ReasonCode.TO_LEAVE: _is_to_leave,
    ReasonCode.BEHIND_SHAPE: _is_in_backlog,
    ReasonCode.AT_BARRIER: _is_at_barrier,
    ReasonCode.RETRY_BACKOFF: _waits_to_be_tried_again,
    ReasonCode.OTHERS_RUN_ON: _others_run_on,
    ReasonCode.TASK_RETRY_BACKOFF: _task_waits_to_be_tried_again,
    ReasonCode.NOT_YET_CANDIDATE: _has_tasks_to_come,
}
"""The causes of reasons that hold as long as the world is as it is; all other reasons are those of
ends and failures."""
