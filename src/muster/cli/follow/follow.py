"""Following a job to its end."""

import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from muster.cli.cluster import Cluster
from muster.cli.exits import ExitCode
from muster.cli.follow.conclusion import conclusion
from muster.cli.follow.exit_code import exit_code, first_failed
from muster.cli.follow.feed import (
    Away,
    Back,
    Changed,
    Event,
    Feed,
    Lost,
    OutputEnded,
    TaskOutput,
    away_line,
    back_line,
)
from muster.cli.follow.interrupt import Choice, Interrupts, ask, told_to_end
from muster.cli.follow.lines import PrefixedLines, prefix_width
from muster.cli.follow.reading import OutputReading, Unnoted
from muster.cli.follow.status_line import StatusLine
from muster.cli.kinds.job import TaskOutputs
from muster.cli.streams import Line, discard_stdout, plain, state_word
from muster.cli.words import count, sentence_of, shorten, waits, without_durations
from muster.core.errors import Conflict, MusterError
from muster.core.states import JobState, TaskState
from muster.core.views.work import MAX_SHORT_OUTPUTS

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.work import JobView

MAX_FOLLOWED = 8
"""Tasks whose output is shown at once; it costs a connection each."""
MAX_SHOWN = 10_000
"""Tasks of a job all of whose output is shown; of a larger job that of the first few is."""
TICK_S = 0.2
ASK_WHY_AFTER_S = 1.0
ASK_WHY_EVERY_S = 5.0
WHY_TIMEOUT_S = 3.0
DRAIN_S = 5.0
"""How long output may take to arrive once the job has ended."""

FAILED_TAIL_LINES = 20
"""How much output is shown of a failed task that was not followed."""


class FollowEnding(msgspec.Struct, frozen=True):
    """How following ended; if not ``job.ended`` the job goes on by itself."""

    job: "JobView"
    exit_code: int


class JobFollower:
    """Shows a job's progress on stderr and its tasks' output on stdout.

    Args:
        shown: the tasks whose output is shown, of more than MAX_SHOWN the first; none for the
            progress alone.
        quiet: whether only output and errors are shown.
    """

    def __init__(
        self, cluster: Cluster, job: "JobView", shown: Iterable[int], *, quiet: bool = False
    ) -> None:
        self._cluster = cluster
        self._job = job
        self._quiet = quiet
        self._shown = frozenset(islice(shown, MAX_SHOWN + 1))
        self._all_shown = len(self._shown) <= MAX_SHOWN
        if not self._all_shown:
            self._shown = frozenset(sorted(self._shown)[:MAX_FOLLOWED])
        self._to_follow = iter(sorted(self._shown))
        self._open: set[int] = set()  # the tasks whose output is being followed
        self._lines = PrefixedLines(prefix_width(job.task_count) if job.tasks_total > 1 else 0)
        self._screen = StatusLine()
        self._began_s = time.monotonic()
        self._quiet_since_s = self._began_s
        self._follow_s = self._began_s
        self._ask_why_s = self._began_s + ASK_WHY_AFTER_S
        self._why = ""
        self._away: str | None = None  # the URL at which nobody answers
        self._tick = 0
        self._cancelled = False

    def run(self) -> FollowEnding:
        """Follow until the job has ended and its output is shown, or the person detaches.

        Raises:
            MusterError: the job cannot be watched any more.
        """
        with Interrupts() as interrupts:
            ended = self._followed(interrupts)
            if not ended and interrupts.told_to_end is not None:
                return self._told_to_end(interrupts.told_to_end)
        return self._ended() if ended or self._job.ended else self._detached()

    def _followed(self, interrupts: Interrupts) -> bool:
        """Whether the job ended; otherwise the person detached, or nobody looks any more.

        Raises:
            MusterError: the job cannot be watched any more.
        """
        try:
            with Feed(self._cluster) as feed:
                return self._follow(feed, interrupts)
        except KeyboardInterrupt:
            return False
        except BrokenPipeError:  # as after `muster run … | head`
            discard_stdout()
            return False
        except OSError:  # the terminal is gone
            if interrupts.told_to_end is None:
                raise
            return False

    def _follow(self, feed: Feed, interrupts: Interrupts) -> bool:
        """Whether the job ended; otherwise the person detached."""
        self._introduce()
        feed.watch_job(self._job.id)
        self._follow_next(feed, MAX_FOLLOWED)
        while not self._finished():
            self._take(feed.next(TICK_S))
            self._follow_instead(feed)
            if interrupts.told_to_end is not None:
                return False
            if interrupts.take():
                with interrupts.raised():
                    choice = self._choose(feed)
                if choice is Choice.DETACH:
                    return False
        self._show_rest()
        return True

    def _follow_instead(self, feed: Feed) -> None:
        """Follow other tasks in place of those whose output has ended, unless the job has ended,
        when the rest is read together. A pause between them leaves the controller to short tasks,
        of which it starts more than anybody could follow."""
        now_s = time.monotonic()
        if not self._job.ended and now_s >= self._follow_s:
            self._follow_s = now_s + TICK_S
            self._follow_next(feed, MAX_FOLLOWED - len(self._open))

    def _follow_next(self, feed: Feed, most: int) -> None:
        """Follow so many of the next tasks, if so many are left."""
        for task in islice(self._to_follow, most):
            self._open.add(task)
            feed.follow_task(_reader(self._job.id, task), task)

    def _introduce(self) -> None:
        short = shorten([self._job.id])[self._job.id]
        if not self._screen.enabled:
            self._say(Line(f"{self._job.name} ({short}) accepted"))
        if self._shown and not self._all_shown:
            self._say(
                Line(
                    f"showing the output of the first {MAX_FOLLOWED} of "
                    f"{count(self._job.tasks_total, 'task')}: see the others with "
                    f"`muster logs {self._job.name}`"
                ),
                True,
            )

    # -- events ----------------------------------------------------------------------------------

    def _take(self, event: Event | None) -> None:
        now_s = time.monotonic()
        if event is not None:
            self._quiet_since_s = now_s
        match event:
            case Changed(job):
                self._changed(job)
            case TaskOutput(task, data):
                self._screen.output(self._lines.add(task, data))
            case OutputEnded(task, error):
                self._output_ended(task, error)
            case Away(url):
                self._away = url
                if self._quiet or not self._show_progress(now_s):
                    self._say(Line(away_line(url)), True)
            case Back(url):
                self._away = None
                if self._quiet or not self._show_progress(now_s):
                    self._say(Line(back_line(url)), True)
            case Lost(error):
                self._screen.clear()
                raise error
        self._screen.output(self._lines.bars(now_s))
        if self._stands_still() and now_s >= self._ask_why_s and not self._away:
            self._ask_why_s = now_s + ASK_WHY_EVERY_S
            self._learn_why()
        if not self._quiet and not self._job.ended:
            self._tick += 1
            self._show_progress(now_s)

    def _show_progress(self, now_s: float) -> bool:
        """Show the progress, if there is a place for it on the screen; the answer says so."""
        if not self._screen.enabled:
            return False
        if self._away:
            return self._screen.show(Line(away_line(self._away)))
        from muster.cli.follow.progress import progress  # with rich, which draws it

        return self._screen.show(progress(self._job, now_s - self._began_s, self._why, self._tick))

    def _changed(self, job: "JobView") -> None:
        moved = job.state is not self._job.state
        self._job = job
        if not self._stands_still():
            self._why = ""
        if moved and not job.ended and not self._screen.enabled:
            self._say(Line(f"{job.name} ", state_word(job.state)))

    def _stands_still(self) -> bool:
        """Whether no task runs: all wait for a place, or are on a silent agent."""
        return not (self._job.ended or self._job.counts.get(TaskState.RUNNING))

    def _output_ended(self, task: int, error: Exception | None) -> None:
        self._open.discard(task)
        self._screen.output(self._lines.finish(task))
        # Conflict: the job ended before the task started, so it has no output to miss.
        if error is not None and not isinstance(error, Conflict):
            self._say(Line(f"the output of task {task} is not shown: {plain(str(error))}"), True)

    def _learn_why(self) -> None:
        with suppress(MusterError), self._cluster.client(WHY_TIMEOUT_S) as client:
            reasons = client.why(self._job.id).reasons
            why = sentence_of(reasons[0]) if reasons else ""
            news = without_durations(why) != without_durations(self._why)
            if why and news and not self._screen.enabled:
                self._say(Line(waits(self._job.name, plain(why))))
            self._why = why

    def _finished(self) -> bool:
        if not self._job.ended:
            return False
        return not self._open or time.monotonic() - self._quiet_since_s > DRAIN_S

    # -- Ctrl-C ----------------------------------------------------------------------------------

    def _choose(self, feed: Feed) -> Choice:
        self._screen.clear()
        # The job is being cancelled already, or no controller answers: no more waiting.
        if self._cancelled or self._away:
            return Choice.DETACH
        from muster.cli.screen import stderr

        choice = ask(stderr(), feed.job_ended)
        if choice is Choice.CANCEL:
            self._cancelled = True
            self._say(Line(f"cancelling {self._job.name}"))
            with self._cluster.client() as client:
                client.cancel(self._job.id)
        return choice

    # -- ends ------------------------------------------------------------------------------------

    def _show_rest(self) -> None:
        """Show the output of the tasks that were not followed, of a job that has ended."""
        with self._cluster.client() as client:
            while tasks := [*islice(self._to_follow, MAX_SHORT_OUTPUTS)]:
                short = self._short(client, tasks)
                for task in tasks:
                    self._show(client, task, short.get(task))

    def _short(self, client: "Client", tasks: Sequence[int]) -> Mapping[int, bytes]:
        """The outputs of those of these tasks that were run once and wrote little."""
        with suppress(MusterError):  # what is missing is read by itself
            found = client.short_outputs(self._job.id, tasks).items
            return {each.task: each.data for each in found if each.attempt == 1}
        return {}

    def _show(self, client: "Client", task: int, whole: bytes | None) -> None:
        pieces = _reader(self._job.id, task)(client) if whole is None else (whole,)
        failed: MusterError | None = None
        try:
            for piece in pieces:
                self._screen.output(self._lines.add(task, piece))
        except MusterError as error:
            failed = error
        self._output_ended(task, failed)

    def _told_to_end(self, by: signal.Signals) -> FollowEnding:
        def say(line: Line) -> None:
            self._screen.clear()
            self._say(line, True)

        return FollowEnding(
            self._job, told_to_end(by, self._cluster, self._job.id, self._job.name, say)
        )

    def _detached(self) -> FollowEnding:
        if self._away:
            self._say(
                Line(
                    f"{self._job.name} is left alone: once the controller answers, `muster show "
                    f"{self._job.name}` says what became of it"
                ),
                True,
            )
            return FollowEnding(self._job, ExitCode.INTERRUPTED)
        self._say(
            Line(
                f"{self._job.name} goes on: `muster logs -f {self._job.name}` shows its output, "
                f"`muster cancel {self._job.name}` stops it"
            )
        )
        return FollowEnding(self._job, ExitCode.NOT_ENDED)

    def _ended(self) -> FollowEnding:
        self._screen.clear()
        if self._open:
            self._say(
                Line(f"output may be missing: see it with `muster logs {self._job.name}`"), True
            )
        failed, code = None, int(ExitCode.FAILED)
        try:
            with self._cluster.client() as client:
                failed = first_failed(client, self._job)
                code = exit_code(client, self._job, failed)
                if failed is not None and self._shown and failed.index not in self._shown:
                    self._show_end_of_output(client, failed.index)
        except MusterError as error:  # the end of the job is known all the same
            self._say(Line(f"how its tasks ended cannot be read: {plain(str(error))}"), True)
        # A single task's own reason says it all; the job's counts tasks.
        why = failed.reason if failed and self._job.tasks_total == 1 else self._job.reason
        self._say(conclusion(self._job, why), self._job.state is not JobState.SUCCEEDED)
        return FollowEnding(self._job, code)

    def _show_end_of_output(self, client: "Client", task: int) -> None:
        reading = OutputReading(self._job.id, TaskOutputs(), tail=FAILED_TAIL_LINES)
        with suppress(MusterError):
            shown = b"".join(reading.read(client, task, Unnoted()))
            self._screen.output(self._lines.add(task, shown) + self._lines.finish(task))

    def _say(self, line: Line, important: bool = False) -> None:
        if important or not self._quiet:
            self._screen.say(line)


def _reader(job_id: str, task: int) -> "Callable[[Client], Iterator[bytes]]":
    """A reader of the task's output from its first attempt on: attempts that fail at once may be
    over before anybody looks."""
    return lambda client: client.logs(job_id, task=task, attempt=1, follow=True, retries=True)
