"""The prober: it has replicas' addresses watched by a process of its own.

It connects to no address but the hosts and ports of its orders. These are the addresses that
agents have, and ports of replicas on their machines; users decide on paths, headers and bodies of
requests, and hear of an answer its status and the value of one metric.
"""

import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict

from muster.core.serving.probes import MAX_DETAIL, TOLD_AT_ONCE, ProbeOrder, ProbeResult

log = logging.getLogger(__name__)

MAX_WATCHED = 20_000
AGAIN_S = 5.0
"""The shortest time between the beginnings of two processes."""
SILENT_S = 10.0
"""Seconds without a line of the process, which says one each second, after which it counts as
hanging and is replaced."""
WRITE_S = 10.0
"""Seconds for which the process may leave orders unread while the pipe is full."""
CLOSE_S = 5.0
MAX_READ = 1024 * 1024
TOLD_TOGETHER = 100
_OF_COMMANDS = ("kernel", "kernel_generation")
"""Fields of a target that the probing process, which probes ports, does not know."""
_PROGRAM = (sys.executable, "-P", "-m", "muster.probing.process")
_KEPT = ("PATH", "LANG", "LC_ALL", "PYTHONPATH")
"""Variables that the process gets: no proxy and no secret is among them."""


class Prober:
    """Has addresses probed, and reports results. Its thread and its process begin with the first
    route; the process ends when there was none for a while.

    Args:
        report: takes results, on a thread of the prober's.
        most: routes that are watched at a time; further ones are refused until others go.
        at_once: results in a row of one kind that are told at once; later ones are told once a
            second.
    """

    def __init__(
        self,
        report: Callable[[Sequence[ProbeResult]], None],
        most: int = MAX_WATCHED,
        at_once: int = TOLD_AT_ONCE,
    ) -> None:
        self._report = report
        self._most = most
        self._at_once = at_once
        self._lock = threading.Lock()
        self._wished = threading.Condition(self._lock)
        self._watched: dict[str, ProbeOrder] = {}
        self._changed: dict[str, None] = {}  # routes of which the process has to be told
        self._is_full = False
        self._closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._began_s = -AGAIN_S  # of the prober's thread alone
        self._thread: threading.Thread | None = None
        self._listener: threading.Thread | None = None

    def obey(self, orders: Iterable[ProbeOrder]) -> None:
        """Have addresses be probed, or no longer."""
        with self._lock:
            for order in orders:
                self._take(order)
            if not self._changed or self._closed:
                return
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="prober", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the machine has no thread left
                    log.warning("nothing is probed: %s", error)
                    return
                self._thread = thread
            self._wished.notify()

    def close(self) -> None:
        """End process and threads; nothing is reported afterwards, unless that is under way."""
        with self._lock:
            self._closed = True
            self._wished.notify()
            if self._process is not None:
                _kill(self._process)
        for thread in (self._thread, self._listener):
            if thread is not None and thread is not threading.current_thread():
                thread.join(CLOSE_S)

    def _take(self, order: ProbeOrder) -> None:
        known = self._watched.get(order.route)
        if known is not None and known.generation > order.generation:
            return
        if known == order or (known is None and order.target is None):
            return
        if order.target is None:
            del self._watched[order.route]
            self._is_full = False
        elif known is None and len(self._watched) >= self._most:
            if not self._is_full:
                log.error("route %s is not probed: %s are watched", order.route, self._most)
            self._is_full = True
            return
        else:
            self._watched[order.route] = order
        self._changed[order.route] = None

    # -- the prober's thread -------------------------------------------------------------------

    def _run(self) -> None:
        """Tell the process what is wished, and begin one where there is none, until all is
        closed."""
        process: subprocess.Popen[bytes] | None = None  # this thread alone writes to it
        while True:
            with self._lock:
                self._wished.wait_for(self._has_something_to_do)
                if self._closed:
                    break
                is_there = process is not None and process is self._process
            if not is_there:
                _close_orders(process)
                process = self._start()
            if process is not None:
                try:
                    self._tell(process)
                except OSError as error:
                    log.warning("the probing process takes no orders: %s", error)
                    self._end(process)
        _close_orders(process)

    def _has_something_to_do(self) -> bool:
        if self._closed:
            return True
        return bool(self._watched) if self._process is None else bool(self._changed)

    def _start(self) -> subprocess.Popen[bytes] | None:
        """Begin a process, unless all is closed or the machine has none left."""
        with self._lock:
            pause_s = max(0.0, self._began_s + AGAIN_S - time.monotonic())
            if self._wished.wait_for(lambda: self._closed, pause_s):
                return None
        self._began_s = time.monotonic()
        try:
            process = subprocess.Popen(
                (*_PROGRAM, str(self._at_once)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _KEPT if name in os.environ},
                cwd="/",
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            log.warning("nothing is probed: %s", error)
            return None
        listener = threading.Thread(
            target=self._listen, args=(process,), name="results of probes", daemon=True
        )
        with self._lock:
            self._process, self._listener = process, listener
            self._changed = dict.fromkeys(self._watched)
            if self._closed:
                _kill(process)
        try:
            listener.start()
        except RuntimeError as error:  # the machine has no thread left
            log.warning("nothing is probed: %s", error)
            self._end(process)
            process.wait()
        return process

    def _tell(self, process: subprocess.Popen[bytes]) -> None:
        """
        Raises:
            OSError: the process has ended, or does not read.
        """
        with self._lock:
            wishes = [(route, self._watched.get(route)) for route in self._changed]
            self._changed.clear()
        until_s = time.monotonic() + WRITE_S
        for first in range(0, len(wishes), TOLD_TOGETHER):
            orders = b""
            for route, order in wishes[first : first + TOLD_TOGETHER]:
                try:
                    orders += write_order(order or ProbeOrder(route, 0))
                except ValueError as error:  # its text is none that could be sent
                    log.error("route %s cannot be probed: %s", route, type(error).__name__)
            _write(process, orders, until_s)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Have a process be gone, and another begin if one is needed."""
        _kill(process)
        with self._lock:
            if self._process is process:
                self._process = None
                self._wished.notify()

    # -- the thread that listens to a process --------------------------------------------------

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Report the results of a process, until it ends or is silent."""
        assert process.stdout is not None
        unread = b""
        with process.stdout as results:
            while True:
                if not _is_ready(results.fileno(), select.POLLIN, SILENT_S):
                    log.error("the probing process says nothing any more, and is replaced")
                    break
                read = os.read(results.fileno(), MAX_READ)
                if not read:
                    break
                *lines, unread = (unread + read).split(b"\n")
                for line in filter(None, lines):
                    self._hear(line)
            self._end(process)
        if process.wait() != 0 and not self._closed:
            log.error("the probing process ended with %s", process.returncode)

    def _hear(self, line: bytes) -> None:
        now_s = time.monotonic()
        results: list[ProbeResult] = []
        try:
            for told in json.loads(line):
                if isinstance(told, str):
                    log.warning("%s", told)
                    continue
                route, generation, good, streak, completed_s, detail, value, reached = told
                watched = self._watched.get(route)
                if watched is not None and watched.generation == generation:
                    age_s = max(0.0, now_s - completed_s)
                    detail = detail[:MAX_DETAIL]
                    key = (route, generation)
                    results.append(ProbeResult(*key, good, streak, age_s, detail, value, reached))
        except (ValueError, TypeError) as error:
            log.error("the probing process said what cannot be understood: %s", error)
        if results and not self._closed:
            try:
                self._report(results)
            except Exception:
                log.exception("results of probes are lost")


def write_order(order: ProbeOrder) -> bytes:
    """The line in which the probing process is told of a route.

    Raises:
        ValueError: its text is none that could be sent.
    """
    told: dict[str, object] = {"route": order.route, "generation": order.generation}
    if (target := order.target) is not None:
        told |= asdict(target)
        for key in _OF_COMMANDS:
            del told[key]
        told["request"] = target.request.decode("latin-1")
        told["metric_request"] = target.metric_request.decode("latin-1")
    return json.dumps(told).encode() + b"\n"


def _write(process: subprocess.Popen[bytes], rest: bytes, until_s: float) -> None:
    """Write to a process, which has that long to read it.

    Raises:
        OSError: it has ended, or does not read.
    """
    assert process.stdin is not None
    pipe = process.stdin.fileno()
    os.set_blocking(pipe, False)
    while rest:
        if not _is_ready(pipe, select.POLLOUT, until_s - time.monotonic()):
            raise TimeoutError("it does not read them")
        rest = rest[os.write(pipe, rest) :]


def _close_orders(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None and process.stdin is not None:
        process.stdin.close()


def _is_ready(descriptor: int, for_what: int, within_s: float) -> bool:
    """Whether a descriptor is ready in time; unlike ``select``, for any number of descriptors."""
    poll = select.poll()
    poll.register(descriptor, for_what)
    return bool(poll.poll(max(0.0, within_s) * 1000))


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
