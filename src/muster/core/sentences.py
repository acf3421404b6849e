"""The sentences of the answers of `muster why` and `muster plan`: the verdict with which an answer
begins, where work runs, how it failed, and for which room and which holders it waits.

The controller forms all of them here when it answers, out of states, numbers and seconds. So HTTP,
the Python client and the command line tell the same, and whoever shows an answer adds no sentence.
The sentences of reasons come from their catalogue (``core.reasons``).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from muster.core.reasons.of_kernels import Exited
from muster.core.states import TaskState
from muster.core.states.deployment import (
    DEPLOYMENT_TABLE,
    ROUTE_TABLE,
    EndpointLifecycle,
    RouteStatus,
)
from muster.core.states.recovery import RECOVERY_TABLE, RecoveryStatus
from muster.core.text import count, duration, healthy_of, signal_name
from muster.core.views.placement import HolderView, PlanOutcome
from muster.core.views.work import KernelView, TaskDetail

NAMED = 3
"""Agents that a sentence about running work names."""
NAMED_OF_WAITING = 5
"""Agents that a sentence about waiting work names."""

READ_AGAIN = "a change could not be stored, and the state is being read again: ask again"


def waits(status: str, for_s: float) -> str:
    """Work that has had this status for so long."""
    return f"{word(status)} for {duration(for_s)}"


def runs(
    name: str,
    for_s: float | None,
    agents: Iterable[str],
    *,
    only_first: bool = False,
    attempt: int = 1,
) -> str:
    """Work that runs, for how long and where.

    Args:
        only_first: whether the agents are those of its first tasks alone.
        attempt: of a task.
    """
    said = f"{name} runs" if for_s is None else f"{name} has run for {duration(for_s)}"
    where = _some(agents)
    if where:
        said += f" on {where}" + (" (its first tasks)" if only_first else "")
    return f"{said} in attempt {attempt}" if attempt > 1 else said


def ended(
    name: str, ago_s: float, ran_s: float | None, counts: Mapping[TaskState, int] | None = None
) -> str:
    """Work that has ended, when and after how long.

    Args:
        ran_s: None if it was never started.
        counts: the number of its tasks by state, where there are several.
    """
    after = "without a start" if ran_s is None else f"after {duration(ran_s)}"
    said = f"{name} ended {duration(ago_s)} ago {after}"
    if counts is None:
        return said
    by_state = ((state, counts.get(state, 0)) for state in TaskState)
    return f"{said}: " + ", ".join(
        f"{number:,} {word(state)}" for state, number in by_state if number
    )


def left(name: str, kernels: int, agents: Sequence[str], held: str, grace_s: float | None) -> str:
    """That processes of work which has ended may still run, and hold their room.

    Args:
        held: the room of each, as a person reads it.
        grace_s: how long they may take from when they were told to stop.
    """
    hold = f"holds {held}" if kernels == 1 else f"hold {held} each"
    said = f"it is stopping: {count(kernels, 'kernel')} on {_some(agents)} still {hold}"
    if grace_s is None:
        return said
    return (
        f"{said}; what is left {duration(grace_s)} after it was told to stop is killed, "
        f"`muster cancel --force {name}` kills it now"
    )


def ended_as(status: str) -> str:
    """A record that has ended with this status."""
    return f"ended {word(status)}"


def tasks(counts: Mapping[TaskState, int]) -> str:
    """All tasks of a live job, by what they do."""
    total = sum(counts.values())
    done = counts.get(TaskState.SUCCEEDED, 0)
    running = counts.get(TaskState.RUNNING, 0)
    started = counts.get(TaskState.ASSIGNED, 0) + counts.get(TaskState.BUILDING, 0)
    waiting = counts.get(TaskState.PENDING, 0)
    parts = [
        f"{number} {how}"
        for number, how in (
            (done, "done"),
            (running, "running"),
            (started, "being started"),
            (waiting, "waiting"),
            (total - done - running - started - waiting, "ended otherwise"),
        )
        if number
    ]
    return f"{'1 task' if total == 1 else f'{total} tasks'}: {', '.join(parts)}"


def ran(task: TaskDetail) -> Iterator[str]:
    """The agent and the number of an ended task's last attempt, where they are known."""
    for last in task.attempts[-1:]:
        if last.agent:
            yield f"task {task.index} ran{_of_attempt(last)}"


def failed(task: TaskDetail) -> str:
    """A failed task, with the agent and the number of its last attempt, and the reason."""
    said = f"task {task.index} failed"
    last = task.attempts[-1] if task.attempts else None
    if last is not None:
        said += _of_attempt(last)
    exit_code = last.exit_code if task.exit_code is None and last is not None else task.exit_code
    if task.reason is not None:
        return f"{said}: {task.reason.sentence}"
    if exit_code is not None:
        return f"{said}: {Exited(exit_code=exit_code).sentence()}"
    return said


def _of_attempt(attempt: KernelView) -> str:
    said = f" on {attempt.agent}" if attempt.agent else ""
    said += f" in attempt {attempt.attempt}" if attempt.attempt > 1 else ""
    return said + (f" ({signal_name(attempt.signal)})" if attempt.signal else "")


def agent(name: str, kernels: int, *, takes_work: bool, connected: bool) -> str:
    """A live agent; ``kernels`` are charged to it."""
    work = "takes work" if takes_work else "takes nothing new"
    held = f"{kernels} kernel{'' if kernels == 1 else 's'}"
    return f"agent {name} {work}; " + (
        f"it runs {held}" if connected else f"{held} may still run there"
    )


def agent_removed(name: str) -> str:
    return f"agent {name} was removed"


def notice(try_: int, max_tries: int, *, under_way_s: float | None, waits_for_try: bool) -> str:
    """A notice that is not sent yet.

    Args:
        try_: the number of the present try, or of the next.
        under_way_s: how long the try has been under way; None before it began.
        waits_for_try: whether the time of the next try has not come.
    """
    of_tries = f"try {try_} of {max_tries}"
    if under_way_s is not None:
        return f"{of_tries} is under way for {duration(under_way_s)}"
    if waits_for_try:
        return f"waits for {of_tries}"
    return f"waits until it is its turn for {of_tries}; notices of all users are sent in turn"


def notice_ended(*, sent: bool) -> str:
    return "the channel took it" if sent else "it was not sent, and is not tried again"


def recovery(job: str, status: RecoveryStatus, for_s: float, restarts: int) -> str:
    """A live recovery of a job."""
    said = f"job {job} {RECOVERY_TABLE.words[status]}, for {duration(for_s)}"
    return f"{said}, after {count(restarts, 'restart')}" if restarts else said


def recovery_ended(job: str, status: RecoveryStatus, ago_s: float, restarts: int) -> str:
    said = f"job {job} {RECOVERY_TABLE.words[status]}, {duration(ago_s)} ago"
    return f"{said}, after {count(restarts, 'restart')}" if restarts else said


def deployment(name: str, status: EndpointLifecycle, healthy: int, wanted: int) -> str:
    """A deployment, with how many of its replicas are healthy."""
    said = f"deployment {name} {DEPLOYMENT_TABLE.words[status]}"
    if status is EndpointLifecycle.READY:  # what matters then is how many are healthy
        said = f"deployment {name}" if wanted else f"deployment {name} is to have no replicas"
    return f"{said}: {healthy_of(healthy, wanted)}" if wanted else said


def route(of: str, status: RouteStatus, for_s: float, *, served: bool = True) -> str:
    """A route of a deployment.

    Args:
        served: whether it was ever healthy.
    """
    whose = f"the route of {of}" if of else "the route"
    lasting = f"for {duration(for_s)}"
    if status in ROUTE_TABLE.terminal:
        lasting = f"{duration(for_s)} ago"
    words = ROUTE_TABLE.words[status]
    if status is RouteStatus.DEGRADED and not served:
        words = "runs, and was not healthy yet"
    return f"{whose} {words}, {lasting}"


def plan(outcome: PlanOutcome, group: str, sessions: int, starting: int, *, displaces: bool) -> str:
    """The fate of work if it were handed in now.

    Args:
        sessions: how many are handed in: one for each task of a job that is not a gang.
        starting: how many of them would start now.
        displaces: whether one more would start in the place of other work.
    """
    match outcome:
        case PlanOutcome.STARTS if sessions > 1:
            more = ", and one more would displace work of lower priority" if displaces else ""
            return f"{starting:,} of {sessions:,} tasks would start now in group {group}{more}"
        case PlanOutcome.STARTS:
            return f"it would start now in group {group}"
        case PlanOutcome.DISPLACES if sessions > 1:
            return (
                f"1 of {sessions:,} tasks would displace work of lower priority in group {group}, "
                f"and start; the others would follow"
            )
        case PlanOutcome.DISPLACES:
            return f"it would displace work of lower priority in group {group}, and start"
        case PlanOutcome.CANCELLED:
            return "it would be cancelled at once"
        case _:
            return f"it would wait in group {group}"


def addition(pool: str, slices: int, machines: int, price: float) -> str:
    """The slices that a pool would make.

    Args:
        price: of all of them for an hour; 0 where it is not known.
    """
    said = f"pool {pool} would make {slices:,} {'slice' if slices == 1 else 'slices'}"
    if machines != slices:
        said += f" of {machines:,} machines"
    return f"{said}, {price:,.2f} an hour" if price else said


def queue_place(group: str, position: int, queue: int, kernels: int, kernels_fit: int) -> str:
    """The place of a session in the order of its group's queue, and how much room it would find.

    Args:
        position: from 1.
        queue: how many sessions wait.
        kernels_fit: how many of its ``kernels`` would find room once the sessions ahead of it have
            started.
    """
    said = f"Place {position:,} of {queue:,} in the queue of group {group}"
    if kernels_fit < kernels > 1:
        ahead_started = "once those ahead have started, " if position > 1 else ""
        said += f"; {ahead_started}{kernels_fit:,} of {kernels:,} kernels would find room"
    return f"{said}."


def reserved(start_in_s: float | None, agents: Sequence[str]) -> str:
    """The room that is kept for a session.

    Args:
        start_in_s: the time until it starts at the latest; None where that is unknown.
        agents: where the room is.
    """
    if start_in_s is None:
        return f"Room that becomes free on {first_of(agents)} is kept for it."
    if start_in_s <= 0:
        return "It starts any moment: enough running work has reached its timeout."
    return (
        f"It starts in {duration(start_in_s)} at the latest: by then enough running work has "
        f"reached its timeout."
    )


def agents_looked_at(agents: int, kernels: int, asks: str, fit: int) -> str:
    """How many agents were looked at for kernels with one request.

    Args:
        asks: the request of each of the ``kernels``.
        fit: how many of the kernels would find room by themselves.
    """
    each = "" if kernels == 1 else " each"
    said = f"{count(agents, 'agent')} looked at for {count(kernels, 'kernel')} asking for "
    said += f"{asks}{each}"
    if kernels > 1:
        said += f": by themselves {fit:,} of {kernels:,} would find room"
    return said


def in_use(
    resource: str,
    held: str,
    limit: str,
    where: str,
    holders: Sequence[HolderView],
    now: float,
) -> str:
    """A resource that work waits for, and its holders.

    Args:
        held, limit: how much of how much is in use.
        where: "on agent-1", "of user default/research/ann".
    """
    said = f"{held} of {limit} {resource} {where}"
    if not holders:
        return f"{said} in use"
    # For sessions each holder's number is shown anyway.
    counted = resource == "sessions"
    return f"{said} held by {', '.join(_holder(each, now, counted) for each in holders)}"


def on_agents(names: Sequence[str]) -> str:
    return f"on {first_of(names)}"


def ahead(holder: HolderView, now: float) -> str:
    """The session for which room is kept, so that the work waits behind it."""
    return f"ahead of it is {_holder(holder, now)}"


def _holder(holder: HolderView, now: float, counted: bool = False) -> str:
    """train (yours, 4, for 2h10m); 2 more sessions of yours (4); 3 sessions of others (6); without
    the amount if it is ``counted`` by sessions."""
    facts = [holder.amount] if holder.amount and not counted else []
    if holder.name is None:
        amount = f" ({facts[0]})" if facts else ""
        if holder.yours:
            return f"{count(holder.sessions, 'more session')} of yours{amount}"
        sessions = count(holder.sessions, "session") if holder.sessions > 1 else "a session"
        return f"{sessions} of others{amount}"
    if holder.since is not None:
        facts.append(f"for {duration(now - holder.since)}")
    if holder.sessions > 1:
        facts.insert(0, count(holder.sessions, "session"))
    whose = "yours" if holder.yours else holder.owner.user if holder.owner else "?"
    return f"{holder.name} ({', '.join([whose, *facts])})"


def first_of(names: Sequence[str]) -> str:
    """Names, each once, the first of them if they are many."""
    each = list(dict.fromkeys(names))
    more = f" and {len(each) - NAMED_OF_WAITING} more" if len(each) > NAMED_OF_WAITING else ""
    return ", ".join(each[:NAMED_OF_WAITING]) + more


def word(status: str) -> str:
    """A status as a person reads it."""
    return status.lower().replace("_", " ")


def _some(names: Iterable[str]) -> str:
    """Names, each once: all of them if they are few."""
    each = list(dict.fromkeys(names))
    if len(each) <= NAMED:
        return " and ".join(filter(None, (", ".join(each[:-1]), *each[-1:])))
    return f"{', '.join(each[:NAMED])} and {len(each) - NAMED} more"
