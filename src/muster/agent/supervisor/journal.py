"""The journal: facts that must survive the death of the supervisor, the agent or both.

An append-only file of JSON lines. It is written before a spawn (the intent) and before an event is
sent, without fsync: it has to survive the death of processes, and an orderly reboot. If a loss of
power takes its end, kernels whose ends it held count as lost. Lines:

    {"boot": id, "next_seq": n, "acked": n}           a supervisor began, or the file was compacted
    {"accepted": [[id, generation, shape], …]}        these may have processes from here on
    {"events": […], "running": [id, generation, pid, low, high]}
                                                      numbered events of one moment, kept together;
                                                      `running` beside a start: the main process and
                                                      bounds of its start time in clock ticks
    {"running": […]}                                  the same, in a compacted file
    {"acked": n}                                      the agent has the events up to n
"""

# os and not pathlib: see the docstring of the package.
# ruff: noqa: PTH105, PTH108

import json
import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from muster.agent.supervisor import clock
from muster.agent.supervisor.kernel import Event, OwnKernel
from muster.agent.supervisor.protocol import Key, encode

_COMPACT_BYTES = 4 << 20
_COMPACT_IDLE_BYTES = 64 << 10
_READ_BYTES = 256 << 10
_MAX_PENDING = 20_000  # lines that wait for room on the disk
_REWRITE_RETRY_S = 1.0


@dataclass(slots=True)
class Survivor:
    """A kernel without an end in the journal of a dead supervisor."""

    key: Key
    shape: str
    pid: int = 0  # 0: its spawn was not recorded
    born_ticks: tuple[int, int] = (0, 0)


@dataclass(slots=True)
class Replay:
    """The contents of a journal when it was opened."""

    boot_id: str = ""
    next_seq: int = 1
    acked_seq: int = 0
    survivors: dict[Key, Survivor] = field(default_factory=dict)
    unacknowledged: deque[Event] = field(default_factory=deque)


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events that are safe in the journal and are sent together."""

    last_seq: int
    text: str  # the events as JSON, without the brackets


class Journal:
    """The open journal of a living supervisor."""

    def __init__(self, path: str, boot_id: str, fd: int, size_bytes: int, replay: Replay) -> None:
        self._path = path
        self._boot_id = boot_id
        self._fd = fd
        self._size_bytes = size_bytes
        self._compact_at_bytes = max(_COMPACT_BYTES, 2 * size_bytes)
        self.last_seq = replay.next_seq - 1
        self.acked_seq = replay.acked_seq
        self.compactions = 0  # offsets into the file are good only within one of these
        self.failing = False
        self._pending: list[str] = []
        self._pending_batches: list[EventBatch] = []
        self._unwritten: list[EventBatch] = []  # sent already, though the disk had no room for them
        self._intents_pending = False
        self._must_rewrite = False  # too many lines waited: they went, only a new file has it all
        self._rewrite_at_s = 0.0

    @classmethod
    def open(cls, path: str, boot_id: str) -> tuple[Self, Replay]:
        """Open or create the journal; also returns its contents.

        Raises:
            OSError: the journal cannot be opened or read.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        replay, size_bytes = _replay(fd)
        os.ftruncate(fd, size_bytes)  # cut a torn last line off
        return cls(path, boot_id, fd, size_bytes, replay), replay

    @property
    def unacknowledged_count(self) -> int:
        return self.last_seq - self.acked_seq

    def begin(self) -> None:
        """Write that this supervisor, on this boot, writes from here on."""
        self._pending.append(encode(self._header()) + "\n")

    def accept(self, kernels: Iterable[OwnKernel]) -> None:
        """Note the intent to start these kernels; `write_intents` must follow before a spawn."""
        accepted = [(*kernel.key, kernel.shape) for kernel in kernels]
        if accepted:
            self._pending.append(encode({"accepted": accepted}) + "\n")
            self._intents_pending = True

    def record(self, events: list[Event], running: OwnKernel | None = None) -> None:
        """Number events of one moment; `running` is the kernel that one of them says started."""
        for event in events:
            self.last_seq += 1
            event["seq"] = self.last_seq
        text = encode(events)
        started = f',"running":{_running(running)}' if running is not None else ""
        self._pending.append(f'{{"events":{text}{started}}}\n')
        self._pending_batches.append(EventBatch(self.last_seq, text[1:-1]))

    def acknowledge(self, seq: int) -> None:
        self.acked_seq = seq
        if self._unwritten:
            self._unwritten = [batch for batch in self._unwritten if batch.last_seq > seq]
        self._pending.append(f'{{"acked":{seq}}}\n')

    def write_intents(self) -> bool:
        """Write accepted intents to the file; False if that fails, and then nothing may be
        spawned."""
        return not self._intents_pending or self._write()

    def write(self) -> list[EventBatch]:
        """Write everything to the file, and return the events that may be sent now.

        While the disk is full events may be sent all the same: a kernel that has ended must not run
        again because its end could not be noted. If the supervisor dies before there is room, its
        kernels are reported as lost to a controller that knows their ends already.
        """
        if self._pending:
            self._write()
        fresh, self._pending_batches = self._pending_batches, []
        if self.failing:
            self._unwritten += fresh
        return fresh

    def read(self, offset: int, after_seq: int) -> tuple[list[EventBatch], int]:
        """The next written events after `after_seq`, from a place in the file, and the next place.

        No events and the same place mean the end; events that wait for room come last. The place is
        valid until the next compaction.
        """
        batches = []
        if offset >= self._size_bytes:
            return [batch for batch in self._unwritten if batch.last_seq > after_seq], offset
        for line in self._lines_at(offset):
            offset += len(line)
            events = _parse(line).get("events") if line.startswith(b'{"events"') else None
            if events and events[-1]["seq"] > after_seq:
                batches.append(EventBatch(events[-1]["seq"], encode(events)[1:-1]))
        return batches, offset

    def compact_if_due(self, live: Collection[OwnKernel]) -> None:
        """Rewrite the file without finished kernels, once it has grown or nothing live is left in
        it."""
        if self._must_rewrite:
            if (now_s := clock.now_s()) >= self._rewrite_at_s:
                self._rewrite_at_s = now_s + _REWRITE_RETRY_S
                self._rewrite(live)
            return
        if self._pending or self._size_bytes < _COMPACT_IDLE_BYTES:
            return
        if self._size_bytes < self._compact_at_bytes and (live or self.unacknowledged_count):
            return
        self._rewrite(live)

    def _rewrite(self, live: Collection[OwnKernel]) -> None:
        new_path = f"{self._path}.new"
        new_fd = -1
        try:
            new_fd = os.open(new_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            size_bytes = 0
            for chunk in self._compacted(live):
                _write_all(new_fd, chunk, size_bytes)
                size_bytes += len(chunk)
            os.replace(new_path, self._path)
        except OSError:  # the disk is full: the old file is used on, and compacted later
            if new_fd >= 0:
                os.close(new_fd)
                os.unlink(new_path)
            self._compact_at_bytes = 2 * self._size_bytes
            return
        os.close(self._fd)
        self._fd = new_fd
        self._size_bytes = size_bytes
        self._compact_at_bytes = max(_COMPACT_BYTES, 2 * size_bytes)
        self.compactions += 1
        self._wrote()

    def _compacted(self, live: Collection[OwnKernel]) -> Iterator[bytes]:
        yield (encode(self._header()) + "\n").encode()
        accepted = [(*kernel.key, kernel.shape) for kernel in live]
        yield (encode({"accepted": accepted}) + "\n").encode()
        for kernel in live:  # a queued kernel has pid 0, which stands for none
            yield f'{{"running":{_running(kernel)}}}\n'.encode()
        offset, seq = 0, self.acked_seq
        while True:
            batches, next_offset = self.read(offset, seq)
            yield "".join(f'{{"events":[{batch.text}]}}\n' for batch in batches).encode()
            if next_offset == offset:
                return
            offset = next_offset

    def _lines_at(self, offset: int) -> list[bytes]:
        """The next whole lines, with their newlines: at least one if there is any."""
        size = _READ_BYTES
        while True:
            data = os.pread(self._fd, min(size, self._size_bytes - offset), offset)
            end = data.rfind(b"\n") + 1
            if end or len(data) < size:
                return data[:end].splitlines(keepends=True)
            size *= 2

    def _header(self) -> dict[str, object]:
        return {"boot": self._boot_id, "next_seq": self.last_seq + 1, "acked": self.acked_seq}

    def _write(self) -> bool:
        if self._must_rewrite:
            self._pending.clear()
            return False
        data = "".join(self._pending).encode()
        try:
            _write_all(self._fd, data, self._size_bytes)
        except OSError:
            self.failing = True
            self._must_rewrite = len(self._pending) > _MAX_PENDING
            return False
        self._size_bytes += len(data)
        self._wrote()
        return True

    def _wrote(self) -> None:
        self.failing = self._must_rewrite = self._intents_pending = False
        self._pending.clear()
        self._unwritten.clear()


def _running(kernel: OwnKernel) -> str:
    # No encoder, because this is done for each kernel and an id needs no escapes.
    kernel_id, generation = kernel.key
    low, high = kernel.born_ticks
    return f'["{kernel_id}",{generation},{kernel.pid},{low},{high}]'


def _write_all(fd: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written


def _replay(fd: int) -> tuple[Replay, int]:
    """Fold the lines of a journal; also returns where the last complete one ends."""
    replay = Replay()
    offset = 0
    with os.fdopen(os.dup(fd), "rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            offset += len(line)
            _fold(replay, _parse(line))
    return replay, offset


def _parse(line: bytes) -> dict[str, Any]:
    """A line as an object; empty if something else has written there, because the other lines are
    still valid."""
    try:
        parsed = json.loads(line)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _fold(replay: Replay, line: dict[str, Any]) -> None:
    match line:
        case {"boot": str(boot_id), "next_seq": int(next_seq), "acked": int(acked_seq)}:
            replay.boot_id = boot_id
            replay.next_seq = max(replay.next_seq, next_seq)
            replay.acked_seq = max(replay.acked_seq, acked_seq)
        case {"accepted": list(accepted)}:
            for kernel_id, generation, shape in accepted:
                key = (kernel_id, generation)
                replay.survivors[key] = Survivor(key, shape)
        case {"acked": int(acked_seq)}:
            replay.acked_seq = acked_seq
    while replay.unacknowledged and replay.unacknowledged[0]["seq"] <= replay.acked_seq:
        replay.unacknowledged.popleft()
    for event in line.get("events", ()):
        replay.unacknowledged.append(event)
        replay.next_seq = event["seq"] + 1
        if event["kind"] not in ("created", "started"):
            replay.survivors.pop((event["kernel"], event["generation"]), None)
    if "running" in line:
        kernel_id, generation, pid, low, high = line["running"]
        survivor = replay.survivors.get((kernel_id, generation))
        if survivor is not None:
            survivor.pid, survivor.born_ticks = pid, (low, high)
