"""The process that sends notices: `python -m muster.control.notice.sending`.

Apprise runs here and nowhere else: it takes seconds to import, and its calls may hang. Each attempt
is a fork of this process with a few seconds to live, so that a hanging attempt is killed and holds
up no other. Before its first call an attempt restricts itself: each address to which the library
connects is checked at the moment of the connection, also after a redirect. It can read no files
except its own libraries and certificates, and can start no programs.

Its protocol is lines of JSON: the settings and then errands on standard input, the fate of each
errand on standard output.
"""

import contextlib
import json
import logging
import os
import re
import resource
import selectors
import signal
import site
import socket
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType
from typing import Any

from muster.control.notice.addresses import Reach

MAX_LINE = 64 * 1024
MAX_MEMORY_BYTES = 1024**3
"""The memory of an attempt, because a channel may answer without end."""
_STATUS = re.compile(r"error=(\d{3})\b")


class Fate(StrEnum):
    """The fate of an attempt."""

    TAKEN = "taken"
    REFUSED = "refused"  # by the channel
    UNREACHABLE = "unreachable"
    FORBIDDEN = "forbidden"  # an address, a file or a service that is not allowed
    NOT_UNDERSTOOD = "not understood"  # the URL
    TIMED_OUT = "timed out"
    NOT_INSTALLED = "not installed"


@dataclass(frozen=True, slots=True)
class SendingSettings:
    """``attempt_s`` is how long an attempt may take."""

    attempt_s: int
    schemes: frozenset[str]
    reach: Reach


class AttemptForbidden(PermissionError):
    """An attempt tried something that is forbidden to attempts."""


class _Enclosure:
    """The audit hook of an attempt; ``broken`` describes the first call that it forbade."""

    def __init__(self, reach: Reach) -> None:
        self.broken = ""
        self._reach = reach
        trusted = ssl.get_default_verify_paths()
        self._readable = tuple(
            os.path.realpath(path) + "/"
            for path in (sys.prefix, sys.base_prefix, *site.getsitepackages(), *sys.path)
            if path and path != "/"
        )
        self._readable += ("/etc/ssl/", "/usr/share/zoneinfo/", "/usr/share/ca-certificates/")
        kept = (trusted.openssl_cafile, "/dev/null", "/dev/urandom", "/etc/localtime")
        self._files = frozenset((*kept, "/etc/mime.types", "/etc/hosts", "/etc/resolv.conf"))

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        match event:
            case "socket.connect" | "socket.sendto" | "socket.sendmsg":
                self._check_address(arguments[0], arguments[1])
            case "open":
                self._check_file(arguments[0], arguments[1], arguments[2])
            case "socket.bind" | "os.system" | "os.exec" | "os.posix_spawn" | "os.fork":
                self._break("it wished to act on the controller's machine")
            case "subprocess.Popen" | "ctypes.dlopen":
                self._break("it wished to run a program")

    def _check_address(self, used: socket.socket, address: Any) -> None:
        if used.family not in (socket.AF_INET, socket.AF_INET6):
            self._break("it wished for a socket of the machine itself")
        if address is not None:
            refusal = self._reach.refusal(str(address[0]))
            if refusal is not None:
                self._break(f"the address {refusal}")

    def _check_file(self, path: Any, mode: Any, flags: Any) -> None:
        if isinstance(path, int):
            return
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        real = os.path.realpath(os.fsdecode(path))
        known = real in self._files or f"{real}/".startswith(self._readable)
        if real != "/dev/null" and (writes or not known):
            self._break("it wished for a file of the controller's machine")

    def _break(self, why: str) -> None:
        self.broken = self.broken or why
        raise AttemptForbidden(why)


class _Heard(logging.Handler):
    """Keeps the status of an HTTP answer from the library's log, and nothing else of it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.status: int | None = None
        self.connects = True

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if found := _STATUS.search(message):
            self.status = int(found[1])
        if "onnect" in message:
            self.connects = False


def attempt(
    apprise: ModuleType, errand: dict[str, str], settings: SendingSettings
) -> dict[str, Any]:
    """Send one notice, in a process of its own; the answer is its fate."""
    if errand["url"].partition("://")[0].lower() not in settings.schemes:
        return {"fate": Fate.FORBIDDEN, "detail": "the service is not allowed"}
    heard = _Heard()
    logger = logging.getLogger("apprise")
    logger.handlers[:] = [heard]
    logger.propagate = False
    asset = apprise.AppriseAsset(
        http_redirects=False, storage_mode=apprise.PersistentStoreMode.MEMORY, async_mode=False
    )
    enclosure = _Enclosure(settings.reach)
    sys.addaudithook(enclosure)
    channel = _channel(apprise, errand["url"], asset)
    if channel is None:
        if enclosure.broken:
            return {"fate": Fate.FORBIDDEN, "detail": enclosure.broken}
        return {"fate": Fate.NOT_UNDERSTOOD}
    sender = apprise.Apprise(asset=asset)
    sender.add(channel)
    taken = bool(
        sender.notify(
            title=errand["title"],
            body=errand["body"],
            notify_type=errand["tone"],
            body_format=apprise.NotifyFormat.TEXT,
        )
    )
    if taken:
        return {"fate": Fate.TAKEN}
    if heard.status is not None:  # the channel was asked, whatever else failed on the way
        return {"fate": Fate.REFUSED, "status": heard.status}
    if enclosure.broken:
        return {"fate": Fate.FORBIDDEN, "detail": enclosure.broken}
    return {"fate": Fate.REFUSED if heard.connects else Fate.UNREACHABLE}


def _channel(apprise: ModuleType, url: str, asset: Any) -> Any:
    """The service that a URL means, None if it means none. A web address that belongs to no known
    service is a webhook that takes JSON."""
    scheme, _, rest = url.partition("://")
    found = apprise.Apprise.instantiate(url, asset=asset)
    if found is None and scheme.lower() in ("http", "https"):
        webhook = "jsons" if scheme.lower() == "https" else "json"
        found = apprise.Apprise.instantiate(f"{webhook}://{rest}", asset=asset)
    return found


@dataclass(slots=True)
class _Attempt:
    """An attempt under way, and its answer so far."""

    key: str
    pid: int
    answer: bytes = b""


class Sender:
    """Reads errands, forks attempts, tells their fates."""

    def __init__(
        self, settings: SendingSettings, carry_out: Callable[[dict[str, str]], Any]
    ) -> None:
        self._settings = settings
        self._carry_out = carry_out
        self._selector = selectors.DefaultSelector()
        self._attempts: dict[int, _Attempt] = {}

    def run(self, errands: int) -> None:
        """Work until no errands come any more and no attempt is under way.

        Args:
            errands: the descriptor from which they are read.
        """
        self._selector.register(errands, selectors.EVENT_READ)
        rest, reads = b"", True
        while reads or self._attempts:
            for key, _ in self._selector.select():
                if key.fd != errands:
                    self._read_answer(key.fd)
                    continue
                data = os.read(errands, MAX_LINE)
                if not data or len(rest) > MAX_LINE:
                    self._selector.unregister(errands)
                    reads = False
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._begin(json.loads(line))

    def _begin(self, errand: dict[str, str]) -> None:
        answers, answer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(answers)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # a service may print; these are no fates
            self._live_and_die(errand, answer)
        os.close(answer)
        self._attempts[answers] = _Attempt(errand["key"], pid)
        self._selector.register(answers, selectors.EVENT_READ)

    def _live_and_die(self, errand: dict[str, str], answer: int) -> None:
        """The whole life of an attempt, which SIGALRM ends at the latest, wherever it hangs."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(self._settings.attempt_s)
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
        try:
            os.write(answer, json.dumps(self._carry_out(errand)).encode())
        except BaseException:
            os.write(answer, json.dumps({"fate": Fate.REFUSED}).encode())
        finally:
            os._exit(0)

    def _read_answer(self, descriptor: int) -> None:
        attempt = self._attempts[descriptor]
        data = os.read(descriptor, 4096)
        attempt.answer += data
        if data:
            return
        self._selector.unregister(descriptor)
        os.close(descriptor)
        del self._attempts[descriptor]
        with contextlib.suppress(ChildProcessError):
            os.waitpid(attempt.pid, 0)
        told = json.loads(attempt.answer) if attempt.answer else {"fate": Fate.TIMED_OUT}
        print(json.dumps({"key": attempt.key, **told}), flush=True)  # noqa: T201 # its answers


def main() -> None:
    os.nice(10)
    with open(0, "rb", buffering=0, closefd=False) as errands:  # later lines stay in the pipe
        given = json.loads(errands.readline(MAX_LINE))
    reach = Reach(given["loopback"], given["private"])
    settings = SendingSettings(given["attempt_s"], frozenset(given["schemes"]), reach)
    try:
        import apprise

        apprise.Apprise.instantiate("json://localhost")  # all services are imported before a fork
    except ImportError:
        Sender(settings, lambda errand: {"fate": Fate.NOT_INSTALLED}).run(0)
        return
    Sender(settings, lambda errand: attempt(apprise, errand, settings)).run(0)


if __name__ == "__main__":
    main()
