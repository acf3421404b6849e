"""``muster logs``."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Protocol

import click
from rich.text import Text

from muster.cli.arguments import Ref, job_or_session, parse_ref
from muster.cli.exits import ExitCode
from muster.cli.follow.feed import (
    Away,
    Back,
    Feed,
    LostSight,
    Output,
    OutputEnded,
    away_line,
    back_line,
)
from muster.cli.follow.lines import PrefixedLines, last_lines, prefix_width
from muster.cli.follow.status_line import StatusLine
from muster.cli.nearest import suggesting
from muster.cli.parameters import Option
from muster.cli.screen import plain, stderr
from muster.cli.target import Target, on_cluster
from muster.cli.words import count
from muster.core.errors import Conflict, MusterError

if TYPE_CHECKING:
    from muster.client import Client

MAX_SHOWN = 8
"""Tasks or kernels whose output is shown together."""
LINE_BYTES = 1024
"""How long lines are taken to be when so many of them are asked for."""
MIN_TAIL_BYTES = 64 * 1024
WAIT_S = 1.0
"""Between two looks whether the person pressed Ctrl-C."""


@on_cluster
def logs(
    target: Target,
    ref: Ref,
    follow: Annotated[
        bool,
        Option("--follow", "-f", help="All attempts, from the first until it has ended."),
    ] = False,
    tail: Annotated[
        int | None, Option("--tail", "-n", min=0, help="Only so many lines of the end.")
    ] = None,
    attempt: Annotated[
        int | None, Option("--attempt", min=1, help="This attempt alone, not the latest.")
    ] = None,
) -> None:
    """Show the output of a job's tasks, or of a session's kernels."""
    from muster.core.views import JobView

    subject = parse_ref(ref)
    no_attempts = click.BadParameter("a session has no attempts", param_hint="--attempt")
    if subject.is_session and attempt is not None:
        raise no_attempts
    with target.client() as client:
        with suggesting(client, ref):
            found = job_or_session(client, subject)
        is_job = isinstance(found, JobView)
        if attempt is not None and not is_job:
            raise no_attempts
        total = found.tasks_total if isinstance(found, JobView) else len(found.kernels)
        shown = [subject.index] if subject.index is not None else [*range(min(total, MAX_SHOWN))]
        if subject.index is None and total > len(shown):
            what = "task" if is_job else "kernel"
            stderr().print(
                Text(f"the first {len(shown)} of {count(total, what)}; {ref}/INDEX is another")
            )
        lines = PrefixedLines(prefix_width(total) if len(shown) > 1 else 0)
        read = _reader(found.id, is_job, attempt, tail)
        if not follow:
            _print(client, read, shown, lines)
            return
    raise click.exceptions.Exit(_follow(target, read, shown, lines))


class Read(Protocol):
    """The output of the task or kernel with this index."""

    def __call__(self, client: "Client", index: int, follow: bool) -> Iterator[bytes]: ...


def _reader(id_: str, is_job: bool, attempt: int | None, tail: int | None) -> Read:
    def pieces(
        client: "Client", index: int, tail_bytes: int | None, follow: bool
    ) -> Iterator[bytes]:
        if not is_job:
            return client.session_logs(id_, kernel=index, tail_bytes=tail_bytes, follow=follow)
        every = follow and attempt is None and tail is None
        return client.logs(
            id_,
            task=index,
            attempt=1 if every else attempt,
            tail_bytes=tail_bytes,
            follow=follow,
            retries=every or None,
        )

    def read(client: "Client", index: int, follow: bool) -> Iterator[bytes]:
        if tail is None:
            yield from pieces(client, index, None, follow)
            return
        asked_bytes = max(MIN_TAIL_BYTES, tail * LINE_BYTES)
        try:
            data = b"".join(pieces(client, index, asked_bytes, False))
        except Conflict:  # it has not started: all that comes is new
            if not follow:
                raise
            data = b""
        end = last_lines(data, tail)
        if not follow:
            yield end
        elif len(end) == len(data) < asked_bytes:  # all there is
            yield from pieces(client, index, None, True)
        elif not end:
            yield from pieces(client, index, 0, True)
        else:
            # What came meanwhile moves the window; so it begins one byte before the lines, and
            # what it has of a line that began earlier is left out.
            window = pieces(client, index, len(end) + 1, True)
            yield from _after_first_newline(window, len(end) + 1)

    return read


def _after_first_newline(pieces: Iterator[bytes], within: int) -> Iterator[bytes]:
    """Leave out all up to the first newline, if there is one in so many bytes."""
    held = b""
    for piece in pieces:
        held += piece
        if len(held) >= within:
            break
    yield held[held.find(b"\n", 0, within) + 1 :]
    yield from pieces


def _print(client: "Client", read: Read, shown: Sequence[int], lines: PrefixedLines) -> None:
    screen = StatusLine(stderr())
    for index in shown:
        try:
            for data in read(client, index, False):
                screen.output(lines.add(index, data))
        except MusterError as error:
            if len(shown) == 1:
                raise
            screen.say(Text(f"{index}: {plain(str(error))}"))
        screen.output(lines.finish(index))


def _follow(target: Target, read: Read, shown: Sequence[int], lines: PrefixedLines) -> int:
    screen = StatusLine(stderr())
    code, drawn = ExitCode.OK, False
    with Feed(target) as feed:
        for index in shown:
            feed.follow_task(partial(read, index=index, follow=True), index)
        left = set(shown)
        while left:
            match feed.next(WAIT_S):
                case Output(index, data):
                    screen.output(lines.add(index, data))
                case OutputEnded(index, error):
                    left.discard(index)
                    screen.output(lines.finish(index))
                    if error is not None:
                        if len(shown) == 1 or isinstance(error, LostSight):
                            screen.clear()
                            raise error
                        screen.say(Text(f"{index}: {plain(str(error))}"))
                        code = ExitCode.FAILED
                case Away(url):
                    line = Text(away_line(url))
                    if not (drawn := screen.show(line)):
                        screen.say(line)
                case Back(url):
                    screen.clear()
                    if not drawn:
                        screen.say(Text(back_line(url)))
    return code
