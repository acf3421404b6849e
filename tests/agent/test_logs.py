"""Logs as the agent reads them: by offsets in all that was ever written, over rotations."""

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.agent import logs
from muster.agent.logs import LogFiles
from muster.agent.removed_outputs import RemovedOutputs
from muster.core.ids import KernelId
from muster.core.reasons.of_files import OutputTooOld
from muster.wire.calls import (
    LogChunk,
    LogRequest,
    StderrNotApart,
)
from muster.wire.messages import (
    KernelKey,
)
from muster.wire.transport import LOG_WINDOW_BYTES, SHORT_OUTPUT_BYTES

KEY: KernelKey = (KernelId("krn-1"), 2)


def none_removed(directory: Path) -> RemovedOutputs:
    return RemovedOutputs(directory / "removed-outputs")


@dataclass
class Writer:
    """Writes a kernel's log as the supervisor does, a step of a rotation at a time if need be."""

    directory: Path
    everything: bytes = b""
    steps: list[str] = field(default_factory=list)

    @property
    def log(self) -> Path:
        return self.directory / "krn-1.2.log"

    @property
    def older(self) -> Path:
        return self.directory / "krn-1.2.log.1"

    def write(self, data: bytes) -> None:
        self.everything += data
        with self.log.open("ab") as file:
            file.write(data)

    def note_rotation(self) -> None:
        inode = self.log.stat().st_ino
        (self.directory / "krn-1.2.log.start").write_text(f"{len(self.everything)} {inode}")

    def rotate(self) -> None:
        self.note_rotation()
        self.log.replace(self.older)

    @property
    def kept_from(self) -> int:
        sizes = [path.stat().st_size for path in (self.older, self.log) if path.exists()]
        return len(self.everything) - sum(sizes)


def request(**fields: object) -> LogRequest:
    return LogRequest(*KEY, **fields)  # type: ignore[arg-type]


def read(directory: Path, *, live: bool = False, **fields: object) -> LogChunk:
    files = LogFiles(directory, lambda _key: live, none_removed(directory))
    return asyncio.run(files.read(request(**fields)))


def test_stderr_alone_is_read_where_it_is_kept_apart(tmp_path: Path) -> None:
    Writer(tmp_path).write(b"out\nwrong\n")
    (tmp_path / "krn-1.2.err").write_bytes(b"wrong\n")
    assert read(tmp_path, stderr=True) == LogChunk(0, b"wrong\n", eof=True)
    assert read(tmp_path, stderr=True, offset=-3) == LogChunk(3, b"ng\n", eof=True)
    assert read(tmp_path).data == b"out\nwrong\n"


def test_stderr_alone_is_not_taken_for_empty_where_it_was_kept_together(tmp_path: Path) -> None:
    with pytest.raises(StderrNotApart, match="stderr: apart"):
        read(tmp_path, stderr=True)
    assert read(tmp_path, stderr=True, live=True) == LogChunk(0, b"", eof=False), "not yet begun"
    Writer(tmp_path).write(b"both")
    with pytest.raises(StderrNotApart, match="kept together"):
        read(tmp_path, stderr=True, live=True)


def test_kernel_that_wrote_nothing_has_an_empty_log(tmp_path: Path) -> None:
    assert read(tmp_path) == LogChunk(0, b"", eof=True)
    assert read(tmp_path, live=True) == LogChunk(0, b"", eof=False)


def test_log_of_one_file_is_read_from_any_offset(tmp_path: Path) -> None:
    Writer(tmp_path).write(b"one two")
    assert read(tmp_path) == LogChunk(0, b"one two", eof=True)
    assert read(tmp_path, offset=4) == LogChunk(4, b"two", eof=True)
    assert read(tmp_path, offset=-3) == LogChunk(4, b"two", eof=True)
    assert read(tmp_path, offset=-100) == LogChunk(0, b"one two", eof=True)
    assert read(tmp_path, limit_bytes=3) == LogChunk(0, b"one", eof=False)
    assert read(tmp_path, offset=50) == LogChunk(50, b"", eof=True)


def test_read_is_never_longer_than_a_window(tmp_path: Path) -> None:
    Writer(tmp_path).write(b"x" * (LOG_WINDOW_BYTES + 1))
    assert len(read(tmp_path, limit_bytes=2**40).data) == LOG_WINDOW_BYTES


def test_offset_that_is_no_longer_kept_moves_to_what_is(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for data in (b"gone ", b"kept ", b"new"):
        writer.write(data)
        if data != b"new":
            writer.rotate()
    assert read(tmp_path) == LogChunk(5, b"kept new", eof=True)


def test_rotation_that_was_never_noted_counts_from_what_is_kept(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.write(b"old ")
    writer.log.replace(writer.older)
    writer.write(b"new")
    assert read(tmp_path) == LogChunk(0, b"old new", eof=True)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "", ".", "a/b", "x" * 200])
def test_kernel_whose_name_is_no_file_name_has_no_log(tmp_path: Path, name: str) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "secret.1.log").write_text("secret")
    files = LogFiles(tmp_path / "logs", lambda _key: False, none_removed(tmp_path))
    assert asyncio.run(files.read(LogRequest(KernelId(name), 1))).data == b""


STEPS = st.lists(st.binary(max_size=12) | st.sampled_from(["rotate", "note"]), max_size=12)


@given(STEPS, st.integers(-60, 60), st.integers(0, 60))
def test_read_gives_what_was_written_at_its_offset(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[bytes | str],
    offset: int,
    limit_bytes: int,
) -> None:
    writer = Writer(tmp_path_factory.mktemp("logs"))
    noted = False
    for step in steps:
        if isinstance(step, bytes):
            if noted and step:
                writer.log.replace(writer.older)  # a rotation that was noted goes on first
                noted = False
            writer.write(step)
        elif writer.log.exists() and writer.log.stat().st_size and not noted:
            writer.note_rotation()
            noted = step == "note"
            if not noted:
                writer.log.replace(writer.older)
    chunk = read(writer.directory, offset=offset, limit_bytes=limit_bytes)
    asked = offset if offset >= 0 else max(0, len(writer.everything) + offset)
    assert chunk.offset == max(asked, writer.kept_from)
    assert chunk.data == writer.everything[chunk.offset :][:limit_bytes]
    assert chunk.eof == (chunk.offset + len(chunk.data) >= len(writer.everything))


def test_rotation_between_opening_the_two_files_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = Writer(tmp_path)
    writer.write(b"first ")
    writer.rotate()
    writer.write(b"second ")
    opened: list[str] = []
    real_open = os.open

    def interrupting_open(path: Path, flags: int) -> int:
        if Path(path).parent == tmp_path:
            opened.append(Path(path).name)
        if opened == ["krn-1.2.log.1", "krn-1.2.log"]:
            opened.append("and so on")
            writer.rotate()
            writer.write(b"third")
        return real_open(path, flags)

    monkeypatch.setattr(os, "open", interrupting_open)
    assert read(tmp_path) == LogChunk(6, b"second third", eof=True)


async def test_following_waits_for_output_and_for_the_end(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    live = {KEY}
    files = LogFiles(tmp_path, live.__contains__, none_removed(tmp_path))
    first = asyncio.create_task(files.read(request(follow=True)))
    await asyncio.sleep(0)
    assert not first.done()
    writer.write(b"one")
    assert await first == LogChunk(0, b"one", eof=False)
    last = asyncio.create_task(files.read(request(offset=3, follow=True)))
    await asyncio.sleep(0)
    live.clear()
    files.ended(KEY)
    assert await last == LogChunk(3, b"", eof=True)


async def test_following_answers_with_nothing_when_nothing_is_written_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOG_WAIT_S", 0.05)
    files = LogFiles(tmp_path, lambda _key: True, none_removed(tmp_path))
    assert await files.read(request(follow=True)) == LogChunk(0, b"", eof=False)


@pytest.mark.parametrize("name", ["krn-1.2.log", "krn-1.2.log.1", "krn-1.2.log.start"])
@pytest.mark.parametrize("plant", ["fifo", "link"])
def test_what_is_planted_for_a_log_is_neither_followed_nor_waited_for(
    tmp_path: Path, name: str, plant: str
) -> None:
    """A FIFO without a writer held the agent up for good."""
    Writer(tmp_path).write(b"output")
    (tmp_path / name).unlink(missing_ok=True)
    if plant == "fifo":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / "secret").write_text("secret")
        (tmp_path / name).symlink_to("secret")

    with pytest.raises(OSError, match=r"no regular file|symbolic links|Too many levels"):
        read(tmp_path)


def test_short_outputs_are_whole_and_others_are_left_out(tmp_path: Path) -> None:
    removed = none_removed(tmp_path)
    why = OutputTooOld(at="2026-01-01T00:00:00+00:00", kept_s=60.0)
    contents = {
        "silent": None,
        "short": b"one\n",
        "largest": b"x" * SHORT_OUTPUT_BYTES,
        "long": b"x" * (SHORT_OUTPUT_BYTES + 1),
        "removed": None,
        "link": None,
    }
    names = {name: (KernelId(name), 1) for name in contents}
    for name, data in contents.items():
        if data is not None:
            (tmp_path / f"{name}.1.log").write_bytes(data)
    (tmp_path / "link.1.log").symlink_to(tmp_path / "short.1.log")
    removed.note({names["removed"]: why})
    files = LogFiles(tmp_path, lambda _key: False, removed)
    found = asyncio.run(files.short([*names.values()]))
    assert found == {
        names["silent"]: b"",
        names["short"]: b"one\n",
        names["largest"]: b"x" * SHORT_OUTPUT_BYTES,
    }


def test_short_outputs_of_one_reply_have_a_window_in_all(tmp_path: Path) -> None:
    names = [(KernelId(f"k{number}"), 1) for number in range(20)]
    for name, _ in names[:-1]:
        (tmp_path / f"{name}.1.log").write_bytes(b"x" * SHORT_OUTPUT_BYTES)
    files = LogFiles(tmp_path, lambda _key: False, none_removed(tmp_path))
    found = asyncio.run(files.short(names))
    assert sum(map(len, found.values())) == LOG_WINDOW_BYTES
    assert found[names[-1]] == b"", "a silent one costs nothing"


def test_log_whose_beginning_was_rotated_away_is_not_short(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for piece in (b"first ", b"second ", b"third"):
        writer.write(piece)
        writer.rotate()
    files = LogFiles(tmp_path, lambda _key: True, none_removed(tmp_path))
    assert asyncio.run(files.short([KEY])) == {}


def test_removed_log_is_answered_with_the_reason(tmp_path: Path) -> None:
    removed = none_removed(tmp_path)
    why = OutputTooOld(at="2026-01-01T00:00:00+00:00", kept_s=60.0)
    removed.note({KEY: why})
    files = LogFiles(tmp_path, lambda _key: False, removed)
    found = asyncio.run(files.read(LogRequest(*KEY)))
    assert (found.removed, found.data, found.eof) == (why, b"", True)
    other = asyncio.run(files.read(LogRequest(KEY[0], 3)))
    assert other.removed is None
