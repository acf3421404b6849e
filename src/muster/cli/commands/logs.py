"""``muster logs``."""

import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, TypeVar

import click

from muster.cli import kinds
from muster.cli.arguments import Ref, parse_ref
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.exits import ExitCode
from muster.cli.follow.chosen_lines import ChosenLines, line_pattern
from muster.cli.follow.feed import (
    Away,
    Back,
    Feed,
    LostSight,
    OutputEnded,
    TaskOutput,
    away_line,
    back_line,
)
from muster.cli.follow.lines import PrefixedLines
from muster.cli.follow.reading import OutputReading
from muster.cli.follow.status_line import StatusLine
from muster.cli.kinds import deployment
from muster.cli.kinds.kind import WorkKind
from muster.cli.missing_output import never_started, nothing_written, why_no_output
from muster.cli.nearest import suggesting
from muster.cli.parameters import Option
from muster.cli.streams import Line, discard_stdout, plain
from muster.cli.words import count, one
from muster.core.errors import Conflict, MusterError
from muster.core.ids import looks_like_id
from muster.core.resources import format_amount
from muster.core.views.work import MAX_SHORT_OUTPUTS

if TYPE_CHECKING:
    from muster.cli.kinds.kind import Kind
    from muster.cli.kinds.outputs import Outputs
    from muster.client import Client

T = TypeVar("T")

READERS = 8
"""Outputs that are read side by side; each costs a connection, and agents serve a limited
number."""
PIECE_BYTES = 1024 * 1024
WAIT_S = 1.0
"""Seconds between two checks whether the person pressed Ctrl-C."""


@on_cluster
def logs(
    cluster: Cluster,
    ref: Ref,
    follow: Annotated[
        bool,
        Option("--follow", "-f", help="Follow all attempts, from the first until it has ended."),
    ] = False,
    tail: Annotated[
        int | None, Option("--tail", "-n", min=0, help="Show only so many lines of the end.")
    ] = None,
    head: Annotated[
        int | None, Option("--head", min=0, help="Show only so many lines of the beginning.")
    ] = None,
    grep: Annotated[
        str | None,
        Option("--grep", metavar="REGEX", help="Show only lines in which this is found."),
    ] = None,
    attempt: Annotated[
        int | None, Option("--attempt", min=1, help="Show this attempt alone, not the latest.")
    ] = None,
    task: Annotated[
        list[int] | None, Option("--task", "-t", min=0, help="Show this task; may be repeated.")
    ] = None,
    failed: Annotated[bool, Option("--failed", help="Show only the tasks that failed.")] = False,
    stderr_alone: Annotated[
        bool,
        Option("--stderr", help="Show stderr alone, of what was handed in with stderr: apart."),
    ] = False,
    save: Annotated[
        Path | None, Option("--save", metavar="DIR", help="Write a file a task there.")
    ] = None,
    overwrite: Annotated[
        bool, Option("--overwrite", help="With --save, replace files that are there already.")
    ] = False,
) -> None:
    """Show the output of a job, a session, or a deployment.

    Of a deployment, the replicas that are up are shown, and followed to their ends."""
    subject = parse_ref(ref)
    if follow and save is not None:
        raise click.BadParameter("give one of --follow and --save")
    if sum((subject.index is not None, bool(task), failed)) > 1:
        raise click.BadParameter("give one of REF/INDEX, --task and --failed")
    if head is not None and tail is not None:
        raise click.BadParameter("give one of --head and --tail")
    if save is not None and (head is not None or grep is not None):
        raise click.BadParameter("--save writes whole outputs: leave out --head and --grep")
    chosen = ChosenLines(None if grep is None else line_pattern(grep), head)
    if overwrite and save is None:
        raise click.BadParameter("it is for --save", param_hint="--overwrite")
    if looks_like_id(subject.ref) and isinstance(kind := kinds.of_ref(subject.ref), WorkKind):
        _with_parts(kind, kind.outputs, attempt, failed)
    named = [subject.index] if subject.index is not None else list(dict.fromkeys(task or ()))
    try:
        with cluster.client() as client:
            with suggesting(client, ref, [*kinds.work(), deployment.KIND]):
                named_record = client.show(subject.ref)
            found, its_outputs = kinds.of_record(named_record).output_of(client, named_record)
            outputs = _with_parts(kinds.of_record(found), its_outputs, attempt, failed)
            if named and not outputs.has_numbers:
                raise click.BadParameter(
                    f"{outputs.part}s have no numbers: give the id of one", param_hint="REF"
                )
            reading = OutputReading(
                found.id, outputs, attempt, tail, stderr_alone, head if grep is None else None
            )
            several = len(named) > 1 or (not named and outputs.size(found) > 1)
            screen = _Screen(outputs.label_width(found) if several else 0, outputs.label, chosen)
            if follow and not failed:
                every = outputs.indexes(found)
            else:
                every = outputs.begun(client, found, failed=failed)
            indexes = iter(named or every)
            nothing = (
                "no task failed after it had started" if failed else never_started(outputs, found)
            )
            if follow:
                code = _follow(cluster, reading, indexes, screen)
            elif save is not None:
                names = partial(outputs.file_name, found)
                _prepare(save, outputs.part, overwrite=overwrite)
                code = _save(client, reading, indexes, save, names, screen)
            else:
                code = _print(client, reading, indexes, screen, nothing)
            if not (screen.wrote or save):
                sentence: str | None = None
                if not several:
                    only = next(chain(named, outputs.indexes(found)))
                    with suppress(MusterError):  # the output has been shown
                        sentence = why_no_output(client, outputs, found, only)
                if sentence is None and not (follow or screen.told or 0 in (tail, head)):
                    sentence = nothing_written(found)
                if sentence is not None:
                    screen.say(sentence)
    except BrokenPipeError:  # as in `muster logs … | head`
        discard_stdout()
        code = ExitCode.OK
    raise click.exceptions.Exit(code)


def _with_parts(
    kind: "Kind[Any, Any]", outputs: "Outputs[Any] | None", attempt: int | None, failed: bool
) -> "Outputs[Any]":
    """The outputs of a record of this kind.

    Raises:
        click.BadParameter: it has no output, or an option asks for something that it has not.
    """
    if outputs is None:
        raise click.BadParameter(f"{one(kind.name)} has no output", param_hint="REF")
    if not outputs.has_attempts and (attempt is not None or failed):
        hint = "--failed" if attempt is None else "--attempt"
        raise click.BadParameter(f"{one(kind.name)} has no tasks and attempts", param_hint=hint)
    return outputs


# -- showing ---------------------------------------------------------------------------------------


class _Screen:
    """Output on stdout, each line with its task's label if there are several; notes on stderr."""

    def __init__(self, width: int, label: Callable[[int], str], chosen: ChosenLines) -> None:
        self.chosen = chosen
        self._width = width
        self._label = label
        self._lines = PrefixedLines(width, label)
        self._cut: dict[int, int] = {}
        self._shortened: dict[int, int] = {}
        self.line = StatusLine()
        self.wrote = self.told = False

    def output(self, index: int, data: bytes) -> None:
        self.wrote |= bool(data)
        if gone := self._cut.pop(index, 0):
            self.note(index, f"{format_amount('memory', gone)} before this were rotated away")
        if looked := self._shortened.pop(index, 0):
            size = format_amount("memory", looked)
            self.note(index, f"there are fewer lines in the last {size}, of which the first is cut")
        self.line.output(self._lines.add(index, self.chosen.add(index, data)))

    def bars(self) -> None:
        """Show the states of progress bars that are due."""
        self.line.output(self._lines.bars(time.monotonic()))

    def finish(self, index: int) -> None:
        rest = self._lines.add(index, self.chosen.finish(index))
        self.line.output(rest + self._lines.finish(index))

    def note(self, index: int, said: str) -> None:
        self.say(f"{self._label(index)}: {said}" if self._width else said)

    def say(self, said: str) -> None:
        self.told = True
        self.line.say(Line(plain(said)))

    def cut(self, index: int, size: int) -> None:
        """Note that so many bytes are gone before the next piece; the note is printed with that
        piece."""
        self._cut[index] = self._cut.get(index, 0) + size

    def shortened(self, index: int, size: int) -> None:
        """Note that the next piece begins in the middle of a line, because so many bytes were
        looked at; the note is printed with that piece."""
        self._shortened[index] = size


def _print(
    client: "Client", reading: OutputReading, indexes: Iterator[int], screen: _Screen, nothing: str
) -> int:
    """Show one output after the other, or say that there is ``nothing``; several are read ahead."""
    first, second = next(indexes, None), next(indexes, None)
    if first is None:
        screen.say(nothing)
        return ExitCode.OK
    if second is None:  # shown as it comes; its failure is the command's
        for data in reading.read(client, first, screen):
            screen.output(first, data)
            if screen.chosen.is_full(first):
                break
        screen.finish(first)
        return ExitCode.OK

    def fetch(index: int) -> IO[bytes]:
        with ExitStack() as failing:
            file = failing.enter_context(tempfile.TemporaryFile())
            for data in reading.read(client, index, screen):
                file.write(data)
            failing.pop_all()
        file.seek(0)
        return file

    code = ExitCode.OK
    for index, fetched in _fetched(client, reading, chain((first, second), indexes), fetch):
        try:
            if isinstance(fetched, bytes):
                screen.output(index, fetched)
                screen.finish(index)
                continue
            with closing(fetched.result()) as file:
                while data := file.read(PIECE_BYTES):
                    screen.output(index, data)
        except MusterError as error:
            screen.note(index, str(error))
            code = ExitCode.FAILED
        screen.finish(index)
    return code


def _prepare(directory: Path, part: str, *, overwrite: bool) -> None:
    """Make the directory for outputs.

    Raises:
        Conflict: it has outputs already, which may be other work's.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if not overwrite and (there := next(directory.glob(f"{part}-*.log"), None)) is not None:
        raise Conflict(
            f"{directory} has output already, such as {there.name}: give another directory, or "
            "--overwrite"
        )


def _save(
    client: "Client",
    reading: OutputReading,
    indexes: Iterator[int],
    directory: Path,
    name: Callable[[int], str],
    screen: _Screen,
) -> int:
    """Write a file for each output; their names are made of indexes and ids alone."""

    def write(index: int, pieces: Iterable[bytes]) -> int:
        path = directory / name(index)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(path, "wb", opener=lambda name, _: os.open(name, flags, 0o644)) as file:
            return sum(map(file.write, pieces))

    def fetch(index: int) -> int:
        return write(index, reading.read(client, index, screen))

    files = size = 0
    code = ExitCode.OK
    for index, written in _fetched(client, reading, indexes, fetch):
        try:
            if isinstance(written, bytes):
                size += write(index, [written])
            else:
                size += written.result()
            files += 1
            screen.output(index, b"")
        except MusterError as error:
            screen.note(index, str(error))
            code = ExitCode.FAILED
    click.echo(f"saved {count(files, 'file')} in {directory} ({format_amount('memory', size)})")
    return code


def _fetched(
    client: "Client", reading: OutputReading, indexes: Iterator[int], fetch: Callable[[int], T]
) -> Iterator[tuple[int, "bytes | Future[T]"]]:
    """For each index, in order, its output, if that is short and came together with others, or else
    the result of ``fetch``."""
    while asked := [*islice(indexes, MAX_SHORT_OUTPUTS)]:
        short = reading.short(client, asked)
        others = _side_by_side((each for each in asked if each not in short), fetch)
        for index in asked:
            yield (index, short[index]) if index in short else next(others)


def _side_by_side(
    indexes: Iterator[int], fetch: Callable[[int], T]
) -> Iterator[tuple[int, "Future[T]"]]:
    """The results for each index, in order; a few are fetched at a time."""
    under_way: deque[tuple[int, Future[T]]] = deque()
    with ThreadPoolExecutor(READERS) as pool:
        try:
            under_way += ((index, pool.submit(fetch, index)) for index in islice(indexes, READERS))
            while under_way:
                index, fetched = under_way.popleft()
                yield index, fetched
                under_way += ((each, pool.submit(fetch, each)) for each in islice(indexes, 1))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _follow(
    cluster: Cluster, reading: OutputReading, indexes: Iterator[int], screen: _Screen
) -> int:
    """Show several outputs as they grow; when one ends the next begins."""
    code, drawn = ExitCode.OK, False
    left: set[int] = set()
    several = False

    def follow_next(feed: Feed, most: int) -> None:
        for index in islice(indexes, most):
            left.add(index)
            read = partial(reading.read, index=index, notes=screen, follow=True)
            feed.follow_task(read, index)

    def over(feed: Feed, index: int) -> None:
        left.discard(index)
        screen.finish(index)
        follow_next(feed, 1)

    with Feed(cluster) as feed:
        follow_next(feed, READERS)
        several = len(left) > 1
        while left:
            event = feed.next(WAIT_S)
            screen.bars()
            match event:
                case TaskOutput(index, data) if index in left:
                    screen.output(index, data)
                    if screen.chosen.is_full(index):
                        over(feed, index)
                case OutputEnded(index, error) if index in left:
                    over(feed, index)
                    if error is not None:
                        if not several or isinstance(error, LostSight):
                            screen.line.clear()
                            raise error
                        screen.note(index, str(error))
                        code = ExitCode.FAILED
                case Away(url):
                    line = Line(away_line(url))
                    if not (drawn := screen.line.show(line)):
                        screen.line.say(line)
                case Back(url):
                    screen.line.clear()
                    if not drawn:
                        screen.line.say(Line(back_line(url)))
    return code
