"""An HAProxy of one's own, with the frame of docs/traffic.md around what Muster writes."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from muster.app.home import Home

PROGRAM = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
"""Debian keeps it where only administrators look."""
START_S = 20.0
_PAGE = Path(__file__).parents[1] / "docs" / "traffic.md"


def free_port() -> int:
    """A port that nobody has, for what may be killed and started again: below those that the system
    gives to clients, of which one that looks for it meanwhile may get that very port for its own
    end, and above those at which a cluster begins to look for one."""
    while True:
        with socket.socket() as free, suppress(OSError):
            port = random.randrange(10_000, 30_000)
            free.bind(("127.0.0.1", port))
            return port


class Haproxy:
    """A master and its workers, with all their files in one folder.

    Attributes:
        port: at which its frontend takes requests.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.port = free_port()
        frame = _PAGE.read_text().partition("```haproxy\n")[2].partition("```")[0]
        frame = frame.replace("/etc/haproxy/muster", str(place)).replace("/run/haproxy", str(place))
        (place / "frame.cfg").write_text(frame.replace("bind :80", f"bind 127.0.0.1:{self.port}"))
        (place / "muster.cfg").touch()
        (place / "muster.map").touch()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def keys(self) -> dict[str, object]:
        """The keys of `haproxy` in traffic.yaml with which Muster drives it."""
        return {
            "socket": f"{self.place}/admin.sock",
            "file": f"{self.place}/muster.cfg",
            "master": f"{self.place}/master.sock",
        }

    def start(self) -> None:
        """
        Raises:
            TimeoutError: it does not answer in time.
        """
        assert PROGRAM is not None
        master = self.place / "master.sock"
        files = ["-f", str(self.place / "frame.cfg"), "-f", str(self.place / "muster.cfg")]
        with (self.place / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, "-W", "-S", str(master), *files], stdout=log, stderr=log
            )
        deadline_s = time.monotonic() + START_S
        while not self._answers():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"haproxy does not start: see {self.place}/log")
            time.sleep(0.01)

    def kill(self) -> None:
        """End it at once, workers too."""
        if self._process is None:
            return
        workers = self._workers()
        self._process.kill()
        self._process.wait()
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        self._process = None

    def _answers(self) -> bool:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as api:
            api.connect(f"{self.place}/admin.sock")
            return True
        return False

    def _workers(self) -> list[int]:
        assert self._process is not None
        pid = self._process.pid
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def home_with_haproxy() -> Iterator[tuple[Home, Haproxy]]:
    """The home of a cluster to be started, with an HAProxy that it is to drive; both are gone at
    the end.

    Raises:
        TimeoutError: HAProxy does not start in time.
        MusterError: the home cannot be made.
    """
    with tempfile.TemporaryDirectory(prefix="muster-demo-") as directory:
        home, place = Home(Path(directory) / "home"), Path(directory) / "haproxy"
        home.create()
        place.mkdir()
        balancer = Haproxy(place)
        (home.path / "traffic.yaml").write_text(json.dumps({"haproxy": balancer.keys}))
        try:
            balancer.start()
            yield home, balancer
        finally:
            balancer.kill()
