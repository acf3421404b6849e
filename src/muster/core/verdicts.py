"""Verdicts: the sentences with which the answers of `muster why` and `muster plan` begin, and those
that tell where work runs and how it failed.

Each is formed here, out of states, numbers and seconds, and whoever shows an answer adds none. The
sentences of reasons come from their catalogue (``core.reasons``), those on where work stands that
waits from ``core.waiting``.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from muster.core.reasons import ReasonCode, reason
from muster.core.states import TaskState
from muster.core.text import duration, signal_name
from muster.core.views.placement import PlanOutcome, WhyView
from muster.core.views.work import TaskDetail

NAMED = 3
"""Agents that a sentence names."""

READ_AGAIN = "a change could not be stored, and the state is being read again: ask again"


def waits(status: str, for_s: float) -> str:
    """Work that has had this status for so long."""
    return f"{_word(status)} for {duration(for_s)}"


def runs(name: str, for_s: float | None, agents: Iterable[str], *, only_first: bool = False) -> str:
    """Work that runs, for how long and where.

    Args:
        only_first: whether the agents are those of its first tasks alone.
    """
    said = f"{name} runs" if for_s is None else f"{name} has run for {duration(for_s)}"
    where = _some(agents)
    if not where:
        return said
    return f"{said} on {where}" + (" (its first tasks)" if only_first else "")


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
        f"{count:,} {_word(state)}" for state, count in by_state if count
    )


def ended_as(status: str) -> str:
    """A record that has ended with this status."""
    return f"ended {_word(status)}"


def tasks(counts: Mapping[TaskState, int]) -> str:
    """All tasks of a live job, by what they do."""
    total = sum(counts.values())
    done = counts.get(TaskState.SUCCEEDED, 0)
    running = counts.get(TaskState.RUNNING, 0)
    started = counts.get(TaskState.ASSIGNED, 0) + counts.get(TaskState.BUILDING, 0)
    waiting = counts.get(TaskState.PENDING, 0)
    parts = [
        f"{count} {how}"
        for count, how in (
            (done, "done"),
            (running, "running"),
            (started, "being started"),
            (waiting, "waiting"),
            (total - done - running - started - waiting, "ended otherwise"),
        )
        if count
    ]
    return f"{'1 task' if total == 1 else f'{total} tasks'}: {', '.join(parts)}"


def of_task(work: WhyView, ref: str, task: TaskDetail, now: float) -> WhyView:
    """The answer about one task. It runs and ends by itself, with its present attempt; while it
    waits, the answer is that about ``work``: its session, or its job where it has none."""
    attempt = task.attempts[-1] if task.attempts else None
    began_at = None if attempt is None else attempt.started_at
    if task.ended:
        ended_at = task.finished_at or task.state_changed_at
        return WhyView(
            subject=task.job_id,
            status=task.state,
            verdict=ended(ref, now - ended_at, None if began_at is None else ended_at - began_at),
            details=(failed(task),) if task.state is TaskState.FAILED else (),
            reasons=() if task.reason is None else (task.reason,),
            name=ref,
            output=None if began_at is None else ref,
            ended=True,
        )
    if task.state is not TaskState.RUNNING or attempt is None or began_at is None:
        return work
    said = runs(ref, now - began_at, [attempt.agent] if attempt.agent else [])
    said += f" in attempt {attempt.attempt}" if attempt.attempt > 1 else ""
    return replace(work, status=task.state, verdict=said, details=(), name=ref, output=ref)


def failed(task: TaskDetail) -> str:
    """A failed task, with the agent and the number of its last attempt, and the reason."""
    said = f"task {task.index} failed"
    last = task.attempts[-1] if task.attempts else None
    if last is not None:
        said += f" on {last.agent}" if last.agent else ""
        said += f" in attempt {last.attempt}" if last.attempt > 1 else ""
        said += f" ({signal_name(last.signal)})" if last.signal else ""
    exit_code = last.exit_code if task.exit_code is None and last is not None else task.exit_code
    if task.reason is not None:
        return f"{said}: {task.reason.sentence}"
    if exit_code is not None:
        return f"{said}: {reason(ReasonCode.EXITED, exit_code=exit_code).sentence()}"
    return said


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


def _word(status: str) -> str:
    return status.lower().replace("_", " ")


def _some(names: Iterable[str]) -> str:
    """Names, each once: all of them if they are few."""
    each = list(dict.fromkeys(names))
    if len(each) <= NAMED:
        return " and ".join(filter(None, (", ".join(each[:-1]), *each[-1:])))
    return f"{', '.join(each[:NAMED])} and {len(each) - NAMED} more"
