"""``muster show``."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from muster.cli.arguments import AnyRef, AsJson, parse_ref
from muster.cli.described import agent_parts, notice_parts, plain_parts, sentences
from muster.cli.ends import exit_text, failures_of, ran, shown_state
from muster.cli.follow.progress import counted
from muster.cli.nearest import suggesting
from muster.cli.parameters import Option
from muster.cli.screen import (
    Column,
    fields,
    plain,
    print_json,
    status,
    stdout,
    table,
    unbroken,
    write,
)
from muster.cli.target import Target, on_cluster
from muster.cli.words import clock_time, count, duration, moment
from muster.core.states import KernelStatus, TaskState

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.base import RecordView
    from muster.core.views.work import JobDetail, KernelView, SessionDetail, TaskDetail

SHOWN = 10
"""Tasks that are shown unless more are asked for."""
MAX_TASKS_AS_JSON = 1000
_NOTEWORTHY = (
    TaskState.FAILED,
    TaskState.WORKER_FAILED,
    TaskState.UNSCHEDULABLE,
    TaskState.RUNNING,
    TaskState.BUILDING,
    TaskState.ASSIGNED,
    TaskState.PENDING,
    TaskState.KILLED,
    TaskState.SUCCEEDED,
)
"""The states that a person looks for first."""


@on_cluster
def show(
    target: Target,
    ref: AnyRef,
    tasks: Annotated[
        bool, Option("--tasks", help="List the tasks by index, not the noteworthy few.")
    ] = False,
    limit: Annotated[
        int, Option("--limit", "-n", min=1, max=1000, help="Tasks listed by --tasks.")
    ] = 100,
    offset: Annotated[
        int, Option("--offset", min=0, help="Tasks left out before those listed by --tasks.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Show a record, such as a job, one task of it, or an agent."""
    from muster.core.views.work import JobDetail

    subject = parse_ref(ref)
    console = stdout()
    with target.client() as client, suggesting(client, ref):
        if subject.index is not None and not subject.is_session:
            task = client.task(subject.ref, subject.index)
            parts: Any = task if as_json else [attempts_table(console, [task], time.time())]
        elif not isinstance(found := client.show(subject.ref), JobDetail):
            parts = found if as_json else parts_of(console, found, time.time())
        elif as_json:
            if not tasks:
                _print_with_tasks(client, found)
                return
            parts = client.tasks(found.id, offset=offset, limit=limit).items
        else:
            page = client.tasks(found.id, offset=offset, limit=limit) if tasks else None
            shown = _noteworthy(client, found) if page is None else page.items
            went_wrong = failures_of(client, found)
            listed_from = offset if tasks else None
            parts = job_parts(console, found, shown, time.time(), went_wrong, listed_from)
    if as_json:
        print_json(parts)
        return
    write(console, *parts)


def parts_of(console: Console, found: "RecordView", now: float) -> list[RenderableType]:
    """A record that is no job."""
    from muster.core.views.cluster import AgentView
    from muster.core.views.notices import NoticeView
    from muster.core.views.work import SessionDetail

    if isinstance(found, SessionDetail):
        return session_parts(console, found, now)
    if isinstance(found, AgentView):
        return agent_parts(found, now)
    if isinstance(found, NoticeView):
        return notice_parts(found, now)
    return plain_parts(found)


def _print_with_tasks(client: "Client", job: "JobDetail") -> None:
    """The job as JSON, and its first tasks under ``tasks``."""
    import msgspec

    tasks = client.tasks(job.id, limit=MAX_TASKS_AS_JSON).items
    print_json(msgspec.to_builtins(job) | {"tasks": tasks})


def _noteworthy(client: "Client", job: "JobDetail") -> list["TaskDetail"]:
    """A few tasks, failed ones first; all tasks by index if they are few."""
    if job.tasks_total <= SHOWN:
        return list(client.tasks(job.id, limit=SHOWN).items)
    found: list[TaskDetail] = []
    for state in _NOTEWORTHY:
        if job.counts.get(state) and len(found) < SHOWN:
            found += client.tasks(job.id, state=state, limit=SHOWN - len(found)).items
    return found


def job_parts(
    console: Console,
    job: "JobDetail",
    tasks: Sequence["TaskDetail"],
    now: float,
    failures: Sequence[str] = (),
    offset: int | None = None,
) -> list[RenderableType]:
    """The job with ``tasks`` of it: by index from the ``offset``-th on, or the few worth noting."""
    parts: list[RenderableType] = [
        Text.assemble((job.name, "bold"), "  ", status(job.state), "  ", (job.id, "dim")),
        fields(
            [
                ("tasks", Text.assemble(f"{job.tasks_total:,}: ", counted(job))),
                ("reason", sentences(job.reason)),
                ("failures", Text("\n".join(failures))),
                ("retry of", job.retry_of),
                ("retried by", ", ".join(job.retried_by)),
                ("command", unbroken(_command(job.spec))),
                ("each asks", _asks(job.spec)),
                ("options", unbroken(_options(job.spec))),
                ("group", job.group),
                ("owner", str(job.owner)),
                ("times", _times(job.submitted_at, job.started_at, job.finished_at, now)),
            ]
        ),
    ]
    if tasks:
        parts += [Text(), attempts_table(console, tasks, now)]
    if len(tasks) < job.tasks_total:
        said = f"{len(tasks):,} of {count(job.tasks_total, 'task')} shown"
        if offset is None:
            said += f"; --tasks lists them, `muster show {job.name}/INDEX` shows one"
        elif (following := offset + len(tasks)) < job.tasks_total:
            said += f"; --tasks --offset {following} lists the next"
        parts.append(Text(said, style="dim"))
    return parts


def session_parts(console: Console, session: "SessionDetail", now: float) -> list[RenderableType]:
    name = Text.assemble((session.name or session.id, "bold"), "  ", status(session.status))
    if session.name:
        name.append(f"  {session.id}", style="dim")
    started, finished = session.started_at, session.finished_at
    return [
        name,
        fields(
            [
                ("reason", sentences(session.reason)),
                ("job", session.job_id),
                ("group", session.group),
                ("owner", str(session.owner)),
                ("re-scheduled", str(session.reschedules) if session.reschedules else None),
                ("times", _times(session.created_at, started, finished, now)),
            ]
        ),
        Text(),
        table(
            console,
            [Column("KERNEL", right=True), *_ATTEMPT_COLUMNS],
            ([str(each.index), *_attempt(each, now)] for each in session.kernels),
        ),
    ]


_ATTEMPT_COLUMNS = (
    Column("STATE"),
    Column("AGENT", shrinks=8),
    Column("GPUS", drops=2),
    Column("STARTED", drops=3),
    Column("RAN", right=True, drops=1),
    Column("EXIT", right=True),
    Column("REASON", flexible=True, wraps=True),
)


def attempts_table(console: Console, tasks: Sequence["TaskDetail"], now: float) -> Table:
    """A line for each attempt; the task's state stands in the line of its last attempt."""
    columns = [Column("TASK", right=True), Column("ATTEMPT", right=True), *_ATTEMPT_COLUMNS]
    rows = (row for task in tasks for row in _attempts(task, now))
    return table(console, columns, rows)


def _attempts(task: "TaskDetail", now: float) -> Iterator[list[Text | str]]:
    for kernel in task.attempts[:-1]:
        yield [str(task.index), str(kernel.attempt), *_attempt(kernel, now)]
    reason = task.reason.sentence if task.reason else ""
    if task.attempts:
        last = task.attempts[-1]
        # The state is the task's, place and times are its attempt's.
        *line, ended = _attempt(last, now)[1:]
        state = status(task.state)
        yield [str(task.index), str(last.attempt), state, *line, reason or ended]
    else:
        yield [str(task.index), "-", status(task.state), "", "", "", "", "", reason]


def _attempt(kernel: "KernelView", now: float) -> list[Text | str]:
    """State, agent, GPUs, start, length, exit code and reason of one kernel."""
    gpus = ",".join(
        f"{share.index}" if share.share >= 1 else f"{share.index}({share.share:g})"
        for share in kernel.devices
    )
    reason = kernel.reason.sentence if kernel.reason else ""
    if not reason and kernel.status is KernelStatus.ERROR:  # what the state means (KERNEL_TABLE)
        reason = f"lost with its agent {kernel.agent or ''}".rstrip()
    return [
        status(shown_state(kernel)),
        kernel.agent or "",
        gpus,
        clock_time(kernel.started_at, now) if kernel.started_at else "",
        ran(kernel.started_at, kernel.ended_at, now),
        exit_text(kernel.exit_code, kernel.signal),
        reason,
    ]


def _command(spec: dict[str, Any]) -> str:
    import shlex

    command = spec.get("command", [])
    if len(command) == 3 and command[:2] == ["/bin/sh", "-c"]:
        return str(command[2])
    return shlex.join(command)


def _asks(spec: dict[str, Any]) -> str:
    from muster.core.specs import JobSpec

    return JobSpec.model_validate(spec).resources.resources().describe()


_SHOWN_ELSEWHERE = frozenset(
    {"kind", "name", "group", "tasks", "command", "resources", "placement"}
)


def _options(spec: dict[str, Any]) -> str:
    """The other fields of the spec; only the names of variables and files."""
    options = {**spec, **spec.get("placement", {})}
    return "; ".join(
        f"{key}={plain(_worded(key, value))}"
        for key, value in options.items()
        if key not in _SHOWN_ELSEWHERE
    )


def _worded(key: str, value: Any) -> str:
    """The value of an option as a person would write it."""
    from muster.core.specs import Constraint, Dependency

    match key:
        case "timeout" | "scheduling_timeout" | "grace":
            return duration(value)
        case "not_before":
            return moment(value)
        case "constraints":
            rules = map(Constraint.model_validate, value)
            return ", ".join(f"{rule} (soft)" if rule.soft else str(rule) for rule in rules)
        case "notify":
            return ", ".join(f"{each['url']}{_on(each.get('on', 'end'))}" for each in value)
        case "after":
            work = map(Dependency.model_validate, value)
            return ", ".join(f"{each.called}:{each.condition}" for each in work)
    if isinstance(value, dict | list | tuple):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _on(ends: str) -> str:
    return "" if ends == "end" else f" ({ends} only)"


def _times(submitted: float, started: float | None, finished: float | None, now: float) -> str:
    said = [f"submitted {moment(submitted)}"]
    if started is not None:
        said.append(f"started {duration(started - submitted)} later")
        ran = duration((finished or now) - started)
        said.append(f"ended after {ran}" if finished else f"{ran} ago")
    elif finished is not None:
        said.append(f"ended {duration(finished - submitted)} later without a start")
    else:
        said.append(f"waiting for {duration(now - submitted)}")
    return ", ".join(said)
