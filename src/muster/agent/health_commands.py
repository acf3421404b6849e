"""The results of probes by command, which loops beside the replicas' programs write down
(``muster.core.serving.health_command``)."""

import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.agent.accounts import MachineAccounts
from muster.agent.supervisor.protocol import file_name
from muster.core.ids import looks_like_id
from muster.core.serving.health_command import MAX_RESULT_BYTES, RESULT_FILE, found_by
from muster.core.serving.probes import (
    MAX_DETAIL,
    MAX_OF_AGENT,
    ProbeOrder,
    ProbeResult,
    ProbeTarget,
)
from muster.core.text import made_text

LOOK_S = 0.25
"""How often the files are looked at."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

ScratchOf = Callable[[str, int], Path | None]


@dataclass(slots=True)
class _Watched:
    order: ProbeOrder
    target: ProbeTarget
    number: int = 0  # of the last probe
    good: bool = False
    streak: int = 0


class HealthCommands:
    """Reads the results of probes by command on a thread of its own.

    Args:
        report: takes results, on that thread.
        scratch_of: see ``RouteProbes``.
    """

    def __init__(
        self, report: Callable[[Sequence[ProbeResult]], None], scratch_of: ScratchOf
    ) -> None:
        self._report = report
        self._scratch_of = scratch_of
        self._lock = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def obey(self, orders: Sequence[ProbeOrder]) -> None:
        """Have the results of these routes be read, or no longer."""
        with self._lock:
            for order in orders:
                target = order.target
                if target is None or not target.kernel:
                    self._watched.pop(order.route, None)
                elif order.route in self._watched or len(self._watched) < MAX_OF_AGENT:
                    self._watched[order.route] = _Watched(order, target)
            if self._watched and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="health", daemon=True)
                self._thread.start()

    def forget(self) -> None:
        """Have nothing be read."""
        with self._lock:
            self._watched.clear()

    def close(self) -> None:
        """End the thread."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(LOOK_S):
            with self._lock:
                watched = [*self._watched.values()]
            found = [result for each in watched if (result := self._look(each)) is not None]
            if found:
                self._report(found)

    def _look(self, watched: _Watched) -> ProbeResult | None:
        """The last probe of a route; None if it was told."""
        target = watched.target
        scratch = self._scratch_of(target.kernel, target.kernel_generation)
        read = None if scratch is None else read_result(scratch)
        if read is None or read[0] == watched.number:
            return None
        number, code, line, age_s = read
        good = code == 0
        more = number - watched.number if number > watched.number > 0 else 1
        watched.streak = watched.streak + more if good is watched.good else 1
        watched.number, watched.good = number, good
        detail = made_text(found_by(code, line, target.timeout_s), MAX_DETAIL)
        order = watched.order
        return ProbeResult(order.route, order.generation, good, watched.streak, age_s, detail)


def scratch_of(directory: Path, accounts: MachineAccounts) -> ScratchOf:
    """Finds scratch directories of kernels, in places in which nobody but the supervisor makes any.

    Args:
        directory: the agent's.
        accounts: in whose places are those of kernels that run as other users.
    """

    def find(kernel: str, generation: int) -> Path | None:
        if not looks_like_id(kernel):
            return None
        name = file_name((kernel, generation))
        places = [directory / "kernels", *accounts.scratch_directories()]
        return next((place / name for place in places if (place / name).is_dir()), None)

    return find


def read_result(scratch: Path) -> tuple[int, int, str, float] | None:
    """The number of the last probe, its exit code, the last line of its output, and its age in
    seconds; None if there is none, or something else than a plain file. The replica may write there
    what it likes: no link is followed, and no more is read than a result has."""
    try:
        folder_fd = os.open(scratch, _FOLDER)
        try:
            file_fd = os.open(RESULT_FILE, _FILE, dir_fd=folder_fd)
        finally:
            os.close(folder_fd)
        with os.fdopen(file_fd, "rb", buffering=0) as file:
            status = os.fstat(file_fd)
            if not stat.S_ISREG(status.st_mode):
                return None
            text = file.read(MAX_RESULT_BYTES).decode(errors="replace")
        first, _, line = text.partition("\n")
        number, code = map(int, first.split())
    except (OSError, ValueError):
        return None
    said = "".join(each if each.isprintable() else " " for each in line).strip()
    return number, code, said, max(0.0, time.time() - status.st_mtime)
