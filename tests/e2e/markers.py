"""Marks that tasks write: append-only lines that prove which attempt ran when, and how it ended."""

from dataclasses import dataclass
from pathlib import Path

from tests.patience import until

from muster.client import Client
from muster.core.states import JobState

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


_WORK = """
code=0
until [ -e "$MARKERS/go" ]; do sleep 0.05; done
"""


class Work:
    """A task that runs until it is let go, and leaves marks of its attempts."""

    def __init__(self, client: Client, directory: Path, name: str = "work") -> None:
        self._client = client
        self.markers = directory / name
        self.markers.mkdir()
        (self.markers / "lines").touch()
        self.job = client.submit(
            name=name,
            command=marked(_WORK),
            env={"MARKERS": str(self.markers)},
            resources={"cpu": 1},
        ).id
        until(lambda: self.marks("begin"))

    def marks(self, what: str) -> list[Mark]:
        return [mark for mark in read_marks(self.markers) if mark.what == what]

    def ran(self, agents: set[str]) -> None:
        """Let it go; it succeeds, one attempt after the other on these agents."""
        (self.markers / "go").touch()
        assert self._client.wait(self.job, 60.0).state == JobState.SUCCEEDED
        assert self.marks("overlap") == []
        attempts = self._client.task(self.job, 0).attempts
        assert {attempt.agent for attempt in attempts} == agents

    @property
    def agent(self) -> str | None:
        return self._client.task(self.job, 0).attempts[-1].agent
