"""Events of a job, from several connections at once, in one bounded queue."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from muster.cli.cluster import Cluster
from muster.core.errors import MusterError

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.work import JobView

MAX_EVENTS = 256
_LOOK_S = 0.2
"""How often the writer of a full queue checks whether it is still wanted."""


class Changed(msgspec.Struct, frozen=True):
    """The job's state or counts changed, for the last time if ``job.ended``."""

    job: "JobView"


class TaskOutput(msgspec.Struct, frozen=True):
    """A piece of the output of the task with this index."""

    task: int
    data: bytes


class OutputEnded(msgspec.Struct, frozen=True):
    """There will be no more output of the task, because of ``error`` if one is given."""

    task: int
    error: Exception | None = None


class Lost(msgspec.Struct, frozen=True):
    """The job can no longer be watched."""

    error: Exception


class Away(msgspec.Struct, frozen=True):
    """The controller at this URL does not answer; requests go on."""

    url: str


class Back(msgspec.Struct, frozen=True):
    """The controller at this URL answers again."""

    url: str


Event = Changed | TaskOutput | OutputEnded | Lost | Away | Back


class LostSight(MusterError):
    """The controller did not come back while its work was followed."""

    def __init__(self, unreachable: Exception) -> None:
        super().__init__(f"{unreachable}; nothing is lost, what was handed in is kept")


def away_line(url: str, what: str = "the job") -> str:
    return f"no controller answers at {url}; still trying (Ctrl-C leaves {what} alone)"


def back_line(url: str) -> str:
    return f"the controller at {url} answers again"


class Feed:
    """Threads that wait for the cluster, and the queue that they fill.

    A slow reader slows the connections down; nothing is dropped and nothing piles up. Leaving the
    ``with`` block abandons the threads, which end with the next data of their connections, or with
    the process.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
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
        """The next event; None if none comes in time."""
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def job_ended(self) -> bool:
        """Whether the watched job has ended; the event may still wait in the queue."""
        return self._job_ended.is_set()

    def watch_job(self, job_id: str) -> None:
        """Report every change of the job, until it has ended."""

        def watch(client: "Client") -> None:
            ended = client.wait(job_id, on_change=lambda job: self._put(Changed(job)))
            self._job_ended.set()
            self._put(Changed(ended))

        self._start(watch, Lost)

    def follow_task(self, read: "Callable[[Client], Iterator[bytes]]", task: int) -> None:
        """Report a task's output as ``read`` yields it."""

        def follow(client: "Client") -> None:
            for data in read(client):
                if self._closed.is_set():
                    return
                self._put(TaskOutput(task, data))
            self._put(OutputEnded(task))

        self._start(follow, lambda error: OutputEnded(task, error))

    def _start(
        self, work: "Callable[[Client], None]", failed: Callable[[Exception], Event]
    ) -> None:
        def run() -> None:
            from muster.client import Unreachable

            try:
                with self._cluster.client(on_contact=lambda on: self._heard(client, on)) as client:
                    work(client)
            except Unreachable as error:
                self._put(failed(LostSight(error)))
            except Exception as error:  # passed to the thread that shows it
                self._put(failed(error))

        threading.Thread(target=run, daemon=True).start()

    def _heard(self, client: "Client", answers: bool) -> None:
        """Report when the first connection has no answer, and when the last has one again."""
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
