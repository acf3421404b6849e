"""What happens to a job, from several connections at once, as one bounded queue of events."""

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.cli.target import Target
from muster.core.errors import MusterError

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views import JobView

MAX_EVENTS = 256
_LOOK_S = 0.2
"""How often a full queue's writer looks whether it is still wanted."""


@dataclass(frozen=True, slots=True)
class Changed:
    """The job's state or counts changed; ``job.ended`` says that it was the last time."""

    job: "JobView"


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of the output of the task with this index."""

    task: int
    data: bytes


@dataclass(frozen=True, slots=True)
class OutputEnded:
    """There will be no more output of the task; ``error`` says why if that is no good end."""

    task: int
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The job can no longer be watched."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Away:
    """The controller at this URL does not answer; it is asked on."""

    url: str


@dataclass(frozen=True, slots=True)
class Back:
    """The controller at this URL answers again."""

    url: str


Event = Changed | Output | OutputEnded | Lost | Away | Back


class LostSight(MusterError):
    """The controller did not come back while its work was followed."""

    def __init__(self, unreachable: Exception) -> None:
        super().__init__(f"{unreachable}; nothing is lost, what was handed in is kept")


def away_line(url: str) -> str:
    return f"no controller answers at {url}; still trying (Ctrl-C leaves the job alone)"


def back_line(url: str) -> str:
    return f"the controller at {url} answers again"


class Feed:
    """Threads that wait for the cluster, and the one queue that they fill.

    A reader that is slow slows the connections down; nothing is dropped and nothing piles up.
    Leaving the ``with`` block abandons the threads: they end when their connections have something
    to say, or with the process.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._events: queue.Queue[Event] = queue.Queue(MAX_EVENTS)
        self._closed = threading.Event()
        self._job_ended = threading.Event()
        self._contact = threading.Lock()
        self._unanswered: set[int] = set()  # threads whose requests have had no answer

    def __enter__(self) -> "Feed":
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()

    def next(self, timeout_s: float) -> Event | None:
        """The next event; None if there is none in time."""
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def job_ended(self) -> bool:
        """Whether the job that is watched has, although the event may still wait in the queue."""
        return self._job_ended.is_set()

    def watch_job(self, job_id: str) -> None:
        """Have every change of the job reported, until it has ended."""

        def watch(client: "Client") -> None:
            ended = client.wait(job_id, on_change=lambda job: self._put(Changed(job)))
            self._job_ended.set()
            self._put(Changed(ended))

        self._start(watch, Lost)

    def follow_task(self, read: "Callable[[Client], Iterator[bytes]]", task: int) -> None:
        """Have a task's output reported as ``read`` yields it."""

        def follow(client: "Client") -> None:
            for data in read(client):
                if self._closed.is_set():
                    return
                self._put(Output(task, data))
            self._put(OutputEnded(task))

        self._start(follow, lambda error: OutputEnded(task, error))

    def _start(
        self, work: "Callable[[Client], None]", failed: Callable[[Exception], Event]
    ) -> None:
        def run() -> None:
            from muster.client import Unreachable

            try:
                with self._target.client(on_contact=lambda on: self._heard(client, on)) as client:
                    work(client)
            except Unreachable as error:
                self._put(failed(LostSight(error)))
            except Exception as error:  # carried to the thread that shows it
                self._put(failed(error))

        threading.Thread(target=run, daemon=True).start()

    def _heard(self, client: "Client", answers: bool) -> None:
        """Report the first of the connections that has no answer, and the last that has one."""
        thread = threading.get_ident()
        with self._contact:
            before = bool(self._unanswered)
            if answers:
                self._unanswered.discard(thread)
            else:
                self._unanswered.add(thread)
            if before != bool(self._unanswered):
                self._put(Back(client.url) if answers else Away(client.url))

    def _put(self, event: Event) -> None:
        while not self._closed.is_set():
            try:
                self._events.put(event, timeout=_LOOK_S)
            except queue.Full:
                continue
            return
