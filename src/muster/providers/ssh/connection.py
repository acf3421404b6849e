"""One question to one host, over SSH: it is answered, or not, within a time."""

import asyncio
import json
import logging
import secrets
import shlex
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import asyncssh

from muster.core.text import made_text, printable
from muster.providers.ssh.host_list import Host
from muster.providers.ssh.settings import SshSettings

ANSWER_S = 12.0
"""The time for an answer once the host has let us in, beside that of the work itself."""
CLOSE_S = 1.0
AT_ONCE = 128
"""Connections at a time."""
MAX_OUTPUT = 1024 * 1024
"""Bytes of what a host prints, beside the answer too."""
_MAX_WORDS = 300
_NOT_STARTED = (126, 127)
"""Exit codes of a shell that finds no command, or may not run it."""
_READ = 65536

_BOOTSTRAP = (
    "import sys; exec(compile(sys.stdin.read(int(sys.stdin.readline())), 'muster', 'exec'))"
)
"""The program that a host's Python starts with: it reads the number of characters of a program, and
the program, from its standard input; the input of that program follows there."""
_PROGRAM = Path(__file__).with_name("on_host.py").read_text()

logging.getLogger("asyncssh").setLevel(logging.WARNING)  # it tells of each connection

Result = TypeVar("Result")


class Fault(StrEnum):
    """The kind of thing that is wrong with a host, or with us."""

    AWAY = "away"  # it cannot be reached
    DENIED = "denied"  # it does not let us in or do that, or is not the host that we know
    BUSY = "busy"  # it is another's
    WRONG = "wrong"  # the settings of the pool do not suit it
    FAILED = "failed"  # something went wrong there; what was asked may be half done
    UNANSWERED = "unanswered"  # what was asked may be done
    BROKE_OFF = "broke off"  # the same, and it has begun


MAY_BE_DONE = frozenset({Fault.FAILED, Fault.UNANSWERED, Fault.BROKE_OFF})
"""Faults that do not exclude that what was asked has been done."""
_REFUSALS = {
    "busy": Fault.BUSY,
    "permission": Fault.DENIED,
    "wrong": Fault.WRONG,
    "failed": Fault.FAILED,
}


class HostFault(Exception):
    """The answer that was none.

    Args:
        told: the words of the host or the library, cut to a length that can be shown.
    """

    def __init__(self, fault: Fault, told: str) -> None:
        self.fault = fault
        self.told = printable(made_text(" ".join(told.split()), _MAX_WORDS))
        super().__init__(f"{fault}: {self.told}")


class Door:
    """How hosts of a pool are entered: a key, and the keys by which hosts are known.

    Raises:
        HostFault: the files on the controller cannot be used.
    """

    def __init__(self, settings: SshSettings) -> None:
        self._settings = settings
        self._options: dict[str, Any] = {
            "config": None,
            "gss_host": None,
            "preferred_auth": ["publickey"],
            "connect_timeout": settings.connect_timeout,
            "login_timeout": settings.connect_timeout,
            "keepalive_interval": 5,
            "compression_algs": None,
            "known_hosts": self._known_hosts(),
        }
        if settings.key_file is not None:
            self._options |= {"client_keys": [self._key()], "agent_path": None}

    async def ask(
        self, host: Host, request: Mapping[str, Any], takes_s: float, end_s: float
    ) -> dict[str, Any]:
        """Have a host carry out a request.

        Args:
            takes_s: how long it may take there.
            end_s: when nobody waits for the answer any more, in the time of the event loop.

        Raises:
            HostFault: it did not, or nobody knows.
        """
        mark = f"muster-{secrets.token_hex(8)} "
        limit_s = takes_s + ANSWER_S
        text = json.dumps({**request, "mark": mark, "limit_s": round(limit_s)})
        asked = False
        now_s = asyncio.get_running_loop().time
        connected_s = min(now_s() + self._settings.connect_timeout, end_s)
        try:
            async with asyncio.timeout_at(connected_s) as limit:
                async with self._connection(host) as connection:
                    asked = True
                    limit.reschedule(min(now_s() + limit_s, end_s))
                    payload = f"{len(_PROGRAM)}\n{_PROGRAM}{text}".encode()
                    return await _answer(connection, self._command(), payload, mark)
        except TimeoutError:
            if asked:
                raise HostFault(Fault.UNANSWERED, "did not answer in time") from None
            raise HostFault(Fault.AWAY, "does not let us in in time") from None
        except asyncssh.HostKeyNotVerifiable as error:
            raise HostFault(
                Fault.DENIED,
                f"its host key is not the one that is known ({error.reason}): it was installed "
                f"anew, or another machine answers in its place",
            ) from None
        except asyncssh.PermissionDenied as error:
            raise HostFault(Fault.DENIED, f"does not let us in: {error.reason}") from None
        except (OSError, asyncssh.Error) as error:
            fault = Fault.UNANSWERED if asked else Fault.AWAY
            raise HostFault(fault, str(error) or type(error).__name__) from None

    @asynccontextmanager
    async def _connection(self, host: Host) -> AsyncIterator[asyncssh.SSHClientConnection]:
        user = host.user or self._settings.user
        named = {} if user is None else {"username": user}
        connection = await asyncssh.connect(
            host.address, host.port or self._settings.port, **self._options, **named
        )
        try:
            yield connection
        finally:
            connection.abort()
            with suppress(TimeoutError, OSError, asyncssh.Error):
                async with asyncio.timeout(CLOSE_S):
                    await connection.wait_closed()

    def _command(self) -> str:
        words = [self._settings.python, "-c", _BOOTSTRAP]
        return shlex.join(["sudo", "-n", "--", *words] if self._settings.sudo else words)

    def _key(self) -> asyncssh.SSHKey:
        """
        Raises:
            HostFault: it cannot be read, or others could read it.
        """
        path = self._settings.path(self._settings.key_file or "")
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & 0o077:
                raise HostFault(
                    Fault.DENIED, f"others may read {path} ({mode:o}): chmod 600 {path}"
                )
            return asyncssh.read_private_key(path)
        except OSError as error:
            raise HostFault(Fault.DENIED, f"cannot read {path}: {error.strerror}") from None
        except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
            raise HostFault(
                Fault.DENIED, f"{path} is no key without a passphrase: {error}"
            ) from None

    def _known_hosts(self) -> asyncssh.SSHKnownHosts:
        """
        Raises:
            HostFault: they cannot be read.
        """
        settings = self._settings
        if settings.known_hosts is None:
            return asyncssh.import_known_hosts("\n".join(settings.host_keys))
        path = settings.path(settings.known_hosts)
        try:
            return asyncssh.read_known_hosts(str(path))
        except OSError as error:
            raise HostFault(Fault.DENIED, f"cannot read {path}: {error.strerror}") from None
        except ValueError as error:
            raise HostFault(Fault.DENIED, f"{path} has no known hosts: {error}") from None


async def _answer(
    connection: asyncssh.SSHClientConnection, command: str, payload: bytes, mark: str
) -> dict[str, Any]:
    """
    Raises:
        HostFault: there is none.
        OSError, asyncssh.Error: the connection broke.
    """
    process = await connection.create_process(command, encoding=None)
    process.stdin.write(payload)
    process.stdin.write_eof()
    words = asyncio.create_task(_words(process.stderr))
    begun = False
    try:
        async for answer in _answers(process.stdout, mark.encode()):
            if "refused" in answer:
                raise HostFault(_REFUSALS[answer["refused"]], answer["told"])
            if "begun" not in answer:
                return answer
            begun = True
        if begun:
            raise HostFault(Fault.BROKE_OFF, "broke off before it answered")
        async with asyncio.timeout(CLOSE_S):
            await process.wait_closed()
            said = await words
    except TimeoutError:
        said = ""
    except (OSError, asyncssh.Error) as error:
        if begun:
            raise HostFault(Fault.BROKE_OFF, f"broke off before it answered: {error}") from None
        raise
    finally:
        words.cancel()
    code = process.exit_status
    if said.startswith("sudo:"):
        fault = Fault.DENIED
    else:
        fault = Fault.WRONG if code in _NOT_STARTED else Fault.FAILED
    raise HostFault(fault, f"Python there ended with {code} and did not answer: {said}")


async def _answers(output: asyncssh.SSHReader[bytes], mark: bytes) -> AsyncIterator[dict[str, Any]]:
    """The lines of a host's output that are answers. What its shell prints before is passed over.

    Raises:
        HostFault: it prints too much.
    """
    read, buffer = 0, b""
    while chunk := await output.read(_READ):
        read += len(chunk)
        if read > MAX_OUTPUT:
            raise HostFault(Fault.UNANSWERED, "prints without an end: look at its shell's rc files")
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            if line.startswith(mark):
                yield json.loads(line[len(mark) :])


async def _words(errors: asyncssh.SSHReader[bytes]) -> str:
    """The beginning of what a host says on standard error, which is read to its end: what nobody
    reads would stop the host."""
    said = b""
    while chunk := await errors.read(_READ):
        said += chunk[: _MAX_WORDS - len(said)]
    return said.decode(errors="replace")


def ask_all(
    hosts: Iterable[Host], ask: Callable[[Host, float], Awaitable[Result]], within_s: float
) -> dict[Host, Result | HostFault]:
    """The answers of hosts that are asked side by side, in an event loop of its own.

    Args:
        ask: is told when it has to end, in the time of the event loop.
        within_s: that moment from now.
    """
    # Not asyncio.run, which waits for threads that look up names, however long they take.
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(AT_ONCE, "muster-ssh-names"))
    try:
        return loop.run_until_complete(_ask_all([*hosts], ask, within_s))
    finally:
        loop.close()


async def _ask_all(
    hosts: Sequence[Host], ask: Callable[[Host, float], Awaitable[Result]], within_s: float
) -> dict[Host, Result | HostFault]:
    free = asyncio.Semaphore(AT_ONCE)
    end_s = asyncio.get_running_loop().time() + within_s
    late = HostFault(Fault.AWAY, "was not asked: other hosts took too long")
    answers: dict[Host, Result | HostFault] = dict.fromkeys(hosts, late)

    async def one(host: Host) -> None:
        async with free:
            if asyncio.get_running_loop().time() > end_s:
                return
            answers[host] = HostFault(Fault.UNANSWERED, "took too long")
            try:
                answers[host] = await ask(host, end_s)
            except HostFault as fault:
                answers[host] = fault
            except (ValueError, KeyError, TypeError) as error:
                answers[host] = HostFault(Fault.UNANSWERED, f"answers nonsense: {error}")

    with suppress(TimeoutError):
        async with asyncio.timeout_at(end_s + CLOSE_S), asyncio.TaskGroup() as group:
            for host in hosts:
                group.create_task(one(host))
    return answers
