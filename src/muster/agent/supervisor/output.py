"""Output of kernels: one pipe for each, for stdout and stderr, drained into a rotated log file.

One pipe has both in the order in which they were written, which two cannot have: a pipe does not
tell when its bytes came. A kernel whose order keeps stderr apart has a second pipe. Its log has
both in the order in which they were read, and another log what came through the second pipe alone.
"""

# os and not pathlib: see the docstring of the package.

import errno
import math
import os
import stat
from contextlib import suppress

from muster.agent.supervisor import clock
from muster.agent.supervisor.loop import READABLE, Loop

_READ_BYTES = 64 << 10
# A flooding kernel may write this much in a window; then its pipe fills up and it has to wait.
_WINDOW_S = 0.01
_WINDOW_BYTES = 1 << 20
# The most that a pipe can hold once no process of the kernel is left; more comes from a stranger.
_MAX_REST_BYTES = 2 << 20


class Output:
    """One kernel's pipe and its log, which is made with the first byte.

    The log is rotated so that the newest `max_bytes` at least are kept, and twice that at most.
    Output that cannot be written (a full disk) is dropped and counted; the kernel never notices.
    """

    __slots__ = (
        "_log_bytes",
        "_log_fd",
        "_max_bytes",
        "_name",
        "_outputs",
        "_owner",
        "_quota_bytes",
        "_read_fd",
        "_rotated_bytes",
        "_window_end_s",
        "dropped_bytes",
        "stderr",
        "write_fd",
    )

    def __init__(self, outputs: "OutputPipes", name: str, max_bytes: int, owner: str) -> None:
        self._outputs = outputs
        self._name = name
        self._max_bytes = max_bytes
        self._owner = owner
        self._log_fd = -1
        self._log_bytes = 0
        self._rotated_bytes = 0  # written before the present file
        self._window_end_s = 0.0
        self._quota_bytes = 0
        self.dropped_bytes = 0
        self.stderr: Output | None = None  # if it is kept apart; else it goes to this one
        # The writing end stays open here too. Otherwise the end of each kernel would wake the loop
        # twice: for SIGCHLD, and for the end of the pipe.
        self._read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        try:
            os.set_blocking(self._read_fd, False)
            outputs.loop.watch(self._read_fd, self.drain)
        except OSError:
            os.close(self._read_fd)
            os.close(self.write_fd)
            raise

    @property
    def write_fds(self) -> tuple[int, ...]:
        """The writing ends for stdout and, if it is kept apart, for stderr."""
        return (self.write_fd,) if self.stderr is None else (self.write_fd, self.stderr.write_fd)

    def drain(self) -> None:
        """Move the bytes of one read from the pipe to the log."""
        try:
            data = os.read(self._read_fd, _READ_BYTES)
        except BlockingIOError:
            return
        self._log(data)
        now_s = clock.now_s()
        if now_s >= self._window_end_s:
            self._window_end_s = now_s + _WINDOW_S
            self._quota_bytes = _WINDOW_BYTES
        self._quota_bytes -= len(data)
        if self._quota_bytes <= 0:
            self._outputs.pause(self, self._read_fd, self._window_end_s)

    def finish(self) -> None:
        """Take the rest from the pipe and close everything, when no writer is left."""
        os.close(self.write_fd)
        rest_bytes = 0
        with suppress(BlockingIOError):  # a process outside of the kernel's tree holds the pipe
            while rest_bytes < _MAX_REST_BYTES and (data := os.read(self._read_fd, _READ_BYTES)):
                rest_bytes += len(data)
                self._log(data)
        self._outputs.close(self, self._read_fd)
        if self.stderr is not None:
            self.stderr.finish()
        if self._log_fd >= 0:
            os.close(self._log_fd)

    def _log(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            if self._log_fd < 0 or self._log_bytes + len(rest) > self._max_bytes:
                self._open_log(len(rest))
            while rest:
                written = os.write(self._log_fd, rest)
                self._log_bytes += written
                rest = rest[written:]
        except OSError:
            self.dropped_bytes += len(rest)

    def _open_log(self, needed_bytes: int) -> None:
        """Open the log for `needed_bytes` more, over a new file if the old one has no room.

        Raises:
            OSError: the log cannot be opened; the next chunk tries again.
        """
        if self._log_fd >= 0:
            os.close(self._log_fd)
            self._log_fd = -1
        log_fd = self._outputs.open_file(self._name, os.O_APPEND)
        self._log_bytes = os.fstat(log_fd).st_size
        if self._owner:
            self._note_owner()
        if self._log_bytes and self._log_bytes + needed_bytes > self._max_bytes:
            self._note_rotation(os.fstat(log_fd).st_ino)
            os.close(log_fd)
            folder = self._outputs.directory_fd
            os.replace(self._name, self._name + ".1", src_dir_fd=folder, dst_dir_fd=folder)
            self._rotated_bytes += self._log_bytes
            log_fd = self._outputs.open_file(self._name, os.O_APPEND)
            self._log_bytes = 0
        self._log_fd = log_fd

    def _note_owner(self) -> None:
        """Write beside the log whose it is, once, as the target of a link: that takes one call, no
        room, and goes with the log."""
        with suppress(OSError):  # it is there from an earlier supervisor, or the disk is full
            folder = self._outputs.directory_fd
            os.symlink(self._owner, self._name + ".owner", dir_fd=folder)
        self._owner = ""

    def _note_rotation(self, inode: int) -> None:
        """Write beside the log at which offset of the whole output the next file will begin, and
        after which inode: readers count from the kernel's start, and may come between any two steps
        of a rotation."""
        with suppress(OSError):  # a full disk: the rotation itself makes room
            note_fd = self._outputs.open_file(self._name + ".start", os.O_TRUNC)
            try:
                os.write(note_fd, f"{self._rotated_bytes + self._log_bytes} {inode}".encode())
            finally:
                os.close(note_fd)


class _Stderr(Output):
    """The pipe of stderr that is kept apart, with the log of that alone, which is made at once: so
    that there is one says that it is kept apart. What it writes goes to the log of both, too."""

    __slots__ = ("_both",)

    def __init__(self, outputs: "OutputPipes", name: str, max_bytes: int, both: Output) -> None:
        super().__init__(outputs, name, max_bytes, "")
        self._both = both
        with suppress(OSError):  # a full disk: the first chunk tries again
            self._open_log(0)

    def _log(self, data: bytes) -> None:
        self._both._log(data)
        super()._log(data)


class OutputPipes:
    """The pipes of all kernels, among them pipes that are paused because their kernels flood
    them."""

    def __init__(self, loop: Loop, directory: str) -> None:
        self.loop = loop
        self.directory_fd = os.open(
            directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        )
        self._paused: dict[Output, tuple[int, float]] = {}

    def open(
        self, name: str, max_bytes: int, owner: str = "", *, stderr_apart: bool = False
    ) -> Output:
        """A pipe whose output goes to `<name>.log`; beside it stands whose it is. With
        `stderr_apart` it has a second one, whose output goes to `<name>.err`, too.

        Raises:
            OSError: no descriptor is left.
        """
        output = Output(self, f"{name}.log", max_bytes, owner)
        if stderr_apart:
            try:
                output.stderr = _Stderr(self, f"{name}.err", max_bytes, output)
            except OSError:
                output.finish()
                raise
        return output

    def open_file(self, name: str, flags: int) -> int:
        """Open a file of the directory to write: never through a link, never waiting for a reader.

        Raises:
            OSError: it cannot be opened, or is no regular file.
        """
        flags |= os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(name, flags, 0o600, dir_fd=self.directory_fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, f"{name} is no regular file")
        return fd

    def pause(self, output: Output, read_fd: int, until_s: float) -> None:
        self.loop.wait_for(read_fd, 0)
        self._paused[output] = read_fd, until_s

    def close(self, output: Output, read_fd: int) -> None:
        self._paused.pop(output, None)
        self.loop.close(read_fd)

    def resume(self, now_s: float) -> float:
        """Read again from pipes whose pause is over; returns the seconds until the next pause
        ends."""
        if not self._paused:
            return math.inf
        for output, (read_fd, until_s) in list(self._paused.items()):
            if until_s <= now_s:
                del self._paused[output]
                self.loop.wait_for(read_fd, READABLE)
        return min((until_s - now_s for _fd, until_s in self._paused.values()), default=math.inf)
