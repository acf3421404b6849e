"""A job as `muster show` tells it, and tasks of it."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from muster.cli.described.kernels import COLUMNS, cells
from muster.cli.described.record import environment, heading, sentences, times
from muster.cli.ends import failures_of
from muster.cli.follow.conclusion import counted
from muster.cli.kinds.job import LISTED
from muster.cli.screen import Column, fields, status, table, unbroken
from muster.cli.streams import plain
from muster.cli.words import count, duration, moment, sentence_of
from muster.core.states import TaskState

if TYPE_CHECKING:
    from muster.cli.kinds.kind import Shown
    from muster.client import Client
    from muster.core.views.work import JobDetail, TaskDetail, TaskView

SHOWN = 10
"""Tasks that are shown unless more are asked for."""
MAX_VALUES_TOLD = 8
"""Values of a parameter that are all told; of more, some."""
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


def described(
    console: Console, client: "Client", job: "JobDetail", shown: "Shown", now: float
) -> Sequence[RenderableType]:
    """The job with the noteworthy few of its tasks or all of them, or one task."""
    if shown.part is not None:
        return [attempts_table(console, [client.task(job.id, shown.part)], now)]
    tasks: Sequence[TaskDetail]
    if shown.every:
        limit = LISTED if shown.limit is None else shown.limit
        page = client.tasks(job.id, where=shown.where or None, offset=shown.offset, limit=limit)
        tasks, listed = page.items, page.total if shown.where else job.tasks_total
    else:
        tasks, listed = _noteworthy(client, job), job.tasks_total
    offset = shown.offset if shown.every else None
    return job_parts(console, job, tasks, now, failures_of(client, job), offset, listed)


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
    listed: int | None = None,
) -> list[RenderableType]:
    """The job with ``tasks`` of it: by index from the ``offset``-th on, or the few worth noting;
    there are so many ``listed`` ones in all, all of the job's unless given."""
    listed = job.tasks_total if listed is None else listed
    parts: list[RenderableType] = [
        heading(job.name, job.state, job.id),
        fields(
            [
                ("tasks", Text.assemble(f"{job.tasks_total:,}: ", counted(job).drawn())),
                ("reason", sentences(job.reason)),
                ("left", _left(job)),
                ("failures", Text("\n".join(failures))),
                ("remarks", Text("\n".join(plain(each.sentence) for each in job.remarks))),
                ("retry of", job.retry_of),
                ("retried by", ", ".join(job.retried_by)),
                ("command", unbroken(_command(job.spec))),
                ("run by", _interpreter(job.spec)),
                ("each asks", _asks(job.spec)),
                ("env", environment([job.spec])),
                ("options", unbroken(_options(job.spec))),
                ("spec", sentences(job.spec_cut)),
                ("group", job.group),
                ("owner", str(job.owner)),
                ("times", times(job.submitted_at, job.started_at, job.finished_at, now)),
            ]
        ),
    ]
    if tasks:
        parts += [Text(), attempts_table(console, tasks, now)]
    if not listed:
        parts.append(Text("no task has these values", style="dim"))
    if len(tasks) < listed:
        said = f"{len(tasks):,} of {count(listed, 'task')} shown"
        if offset is None:
            said += f"; --tasks lists them, `muster show {job.name}/INDEX` shows one"
        elif (following := offset + len(tasks)) < listed:
            said += f"; --tasks --offset {following} lists the next"
        parts.append(Text(said, style="dim"))
    return parts


def _left(job: "JobDetail") -> str | None:
    """That processes of a job which has ended may still run."""
    if not job.kernels_left:
        return None
    said = f"{count(job.kernels_left, 'kernel')} may still run, and hold their room"
    return f"{said}: `muster why {job.name}`"


def attempts_table(console: Console, tasks: Sequence["TaskDetail"], now: float) -> Table:
    """A line for each attempt; the task's state stands in the line of its last attempt."""
    columns = [Column("TASK", right=True), Column("ATTEMPT", right=True), *COLUMNS]
    has_values = any(task.parameters for task in tasks)
    if has_values:
        columns.insert(1, Column("PARAMETERS"))
    rows: list[list[Text | str]] = []
    for task in tasks:
        for row in _attempts(task, now):
            if has_values:
                row.insert(1, plain(values_of(task)))
            rows.append(row)
    return table(console, columns, rows)


def values_of(task: "TaskView") -> str:
    """The values of a task's parameters, as a person writes them."""
    return " ".join(f"{name}={value}" for name, value in task.parameters.items())


def _attempts(task: "TaskDetail", now: float) -> Iterator[list[Text | str]]:
    for kernel in task.attempts[:-1]:
        yield [str(task.index), str(kernel.attempt), *cells(kernel, now)]
    reason = sentence_of(task.reason) if task.reason else ""
    if task.attempts:
        last = task.attempts[-1]
        # The state is the task's, place and times are its attempt's.
        *line, ended = cells(last, now)[1:]
        state = status(task.state)
        yield [str(task.index), str(last.attempt), state, *line, reason or ended]
    else:
        yield [str(task.index), "-", status(task.state), "", "", "", "", "", reason]


def _command(spec: dict[str, Any]) -> str:
    import shlex

    from muster.core.specs.first_line import interpreter_in

    command = spec.get("command", [])
    if interpreter_in(command) is not None:
        return str(command[-1])
    return shlex.join(command)


def _interpreter(spec: dict[str, Any]) -> str:
    """The interpreter of a command that was written as text; empty for any other."""
    from muster.core.specs.first_line import interpreter_in

    return interpreter_in(spec.get("command", [])) or ""


def _asks(spec: dict[str, Any]) -> str:
    from muster.core.specs import JobSpec
    from muster.core.specs.amounts import STORED

    return JobSpec.model_validate(spec, context=STORED).resources.resources().describe()


_SHOWN_ELSEWHERE = frozenset(
    {
        "kind",
        "name",
        "group",
        "tasks",
        "command",
        "resources",
        "placement",
        "environment",
        "env",
    }
)
_DURATIONS = frozenset(
    {
        "timeout",
        "scheduling_timeout",
        "grace",
        "check_timeout",
        "return_timeout",
        "restart_timeout",
    }
)


def _options(spec: dict[str, Any]) -> str:
    """The other fields of the spec; only the names of files."""
    options = {**spec, **spec.get("placement", {})}
    return "; ".join(
        f"{key}={plain(_worded(key, value))}"
        for key, value in options.items()
        if key not in _SHOWN_ELSEWHERE
    )


def _worded(key: str, value: Any) -> str:
    """The value of an option as a person would write it."""
    from muster.core.specs import Constraint, Dependency
    from muster.core.task_ranges import TaskRanges

    match key:
        case _ if key in _DURATIONS:
            return duration(value)
        case "only":
            return TaskRanges.parse(str(value)).in_steps()
        case "not_before":
            return moment(value)
        case "constraints":
            rules = map(Constraint.model_validate, value)
            return ", ".join(f"{rule} (soft)" if rule.soft else str(rule) for rule in rules)
        case "notify":
            return ", ".join(f"{each['url']}{_on(each.get('on', 'end'))}" for each in value)
        case "matrix":
            return _of_matrix(value)
        case "after":
            work = map(Dependency.model_validate, value)
            return ", ".join(f"{each.called}:{each.condition}" for each in work)
        case "recovery" if isinstance(value, dict):
            fields = (f"{each} {_worded(each, found)}" for each, found in value.items())
            return ", ".join(fields) or "true"
    if isinstance(value, dict | list | tuple):
        return ", ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of_matrix(matrix: dict[str, Any]) -> str:
    """The parameters with their values; exceptions from the grid by their number."""
    told = []
    for name, values in matrix.items():
        if name in ("exclude", "include"):
            told.append(f"{name} {count(len(values), 'point')}")
        else:
            told.append(f"{name} {_few(values)}")
    return ", ".join(told)


def _few(values: str | list[str]) -> str:
    """The values of a parameter; of many the first and the last."""
    if isinstance(values, str):
        return values
    if len(values) > MAX_VALUES_TOLD:
        return f"{values[0]}|{values[1]}|…|{values[-1]} ({len(values):,})"
    return "|".join(values)


def _on(ends: str) -> str:
    return "" if ends == "end" else f" ({ends} only)"
