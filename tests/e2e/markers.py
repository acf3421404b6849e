"""What tasks write of themselves: append-only lines that prove who ran when, and how it ended."""

from dataclasses import dataclass
from pathlib import Path

# A task holds a lock for as long as any process of it lives, so whoever cannot have it says that
# another attempt is still there. /proc/uptime is a clock that costs no process.
_PRELUDE = """
say() {
    read -r now _ </proc/uptime
    echo "$MUSTER_JOB_NAME $MUSTER_TASK_INDEX $MUSTER_ATTEMPT $$ $1 $now $2" >>"$MARKERS/lines"
}
exec 9>"$MARKERS/$MUSTER_JOB_NAME.$MUSTER_TASK_INDEX.lock"
flock -n 9 || say overlap
say begin
"""


def marked(body: str) -> list[str]:
    """A command that runs ``body``, a shell script that leaves its exit code in ``code``, and
    notes its begin and end in the directory $MARKERS."""
    return ["/bin/sh", "-c", f"{_PRELUDE}\n{body}\nsay end $code\nexit $code"]


@dataclass(frozen=True, slots=True)
class Mark:
    """One line. ``at`` is in seconds since the boot; ``exit_code`` comes with an end."""

    job: str
    task: int
    attempt: int
    pid: int
    what: str
    at: float
    exit_code: int | None = None


def read_marks(directory: Path) -> list[Mark]:
    """All marks, in the order in which they were written."""
    marks = []
    for line in (directory / "lines").read_text().splitlines():
        job, task, attempt, pid, what, at, *code = line.split()
        marks.append(
            Mark(
                job,
                int(task),
                int(attempt),
                int(pid),
                what,
                float(at),
                int(code[0]) if code else None,
            )
        )
    return marks
