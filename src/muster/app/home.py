"""A controller's data directory: its files, and the lock on it.

lock             held by the controller that runs on it
muster.db        state, unless that is in another database
settings.json    ports and local agents, so that the next start is like the last
client.json      URL and an administrator's token, for clients on this machine
ca.pem, ca.key   the cluster's own authority, if it has one; server.pem, server.key: issued by it
join-token       the token with which agents join
controller.json  the running controller: pid and addresses
controller.log
agents/NAME/     a local agent's own directory
proxy/           the proxy's own directory
providers/POOL/  what the provider of a pool keeps
"""

import json
import os
import signal
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from muster.agent.supervisor import lock_file
from muster.app.account_options import AS_BEFORE, AccountOptions
from muster.core.errors import Conflict, Hindered
from muster.core.host_port import parted
from muster.core.log_options import DEFAULT_LOG, LogOptions
from muster.files import NotOwn, check_own, make_directory, open_own, write_whole


class UnusableHome(Hindered):
    """The data directory cannot be used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class RunningController:
    """The controller that runs on a home."""

    pid: int
    url: str
    agent_address: str
    version: str
    started_at: float
    agents: int = 0
    """Agents that the controller starts itself."""
    users: int = 1
    """Users when the controller started."""
    database: str = ""
    """The database, without its password."""
    proxy: bool | None = None
    """Whether the controller starts a proxy itself; None is not known, as of an earlier version."""

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def agent_port(self) -> int:
        return int(parted(self.agent_address)[1])


@dataclass(frozen=True, slots=True)
class LocalAgentSettings:
    """The agents that a controller starts on its own machine, all alike; None means that the agent
    finds the amount out. ``attributes`` are added to the attributes that it finds out."""

    count: int = 1
    cpus: str | None = None
    memory: str | None = None
    gpus: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    accounts: AccountOptions = AS_BEFORE


@dataclass(frozen=True, slots=True)
class LocalProxy:
    """The proxy that a controller starts on its own machine, if it does; ``port`` 0 means the first
    free one."""

    is_started: bool = True
    port: int = 0


@dataclass(frozen=True, slots=True)
class Settings:
    port: int = 0
    agent_port: int = 0
    agents: LocalAgentSettings = LocalAgentSettings()
    proxy: LocalProxy = LocalProxy()
    database: str | None = None
    """The URL of the database, with its password if that was given; None is the home's own."""
    log: LogOptions = DEFAULT_LOG


def default_home() -> Path:
    return Path(os.environ.get("MUSTER_HOME") or Path.home() / ".muster")


class Home:
    """Paths and small files of a data directory, which is for its owner only."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        self.database = self.path / "muster.db"
        self.authority = self.path / "ca.pem"
        self.log = self.path / "controller.log"
        self.client_file = self.path / "client.json"
        self.join_token_file = self.path / "join-token"
        self.providers = self.path / "providers"
        self._lock_file = self.path / "lock"
        self._running_file = self.path / "controller.json"
        self._settings_file = self.path / "settings.json"
        self.accounts_file = self.path / "accounts.json"

    def require_own(self) -> None:
        """Refuse a directory that somebody else may have prepared: what is in it names processes
        that are ended, files that are written, and programs' settings. One that is not there yet is
        nobody's.

        Raises:
            UnusableHome: it is another user's, or others may have put something into it, or may
                replace it.
        """
        try:
            check_own(self.path)
        except FileNotFoundError:
            return
        except NotOwn as error:
            raise UnusableHome(f"cannot use {self.path} as data directory: {error}") from None
        except OSError as error:
            raise UnusableHome(
                f"cannot use {self.path} as data directory: {error.strerror}"
            ) from None

    def create(self) -> None:
        """Make the directory, and close it and its files to others.

        Raises:
            UnusableHome: it cannot be made or written, or somebody else may have prepared it.
        """
        try:
            self.require_own()
            make_directory(self.path)
            self.require_own()
            for directory in self.path, self.path / "agents", self.providers:
                make_directory(directory, is_set=True)
            for path in self.path.iterdir():
                status = path.lstat()
                if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
                    path.chmod(0o600)
        except OSError as error:
            raise UnusableHome(
                f"cannot use {self.path} as data directory: {error.strerror}; choose another "
                f"with --home"
            ) from None

    def agent_directory(self, name: str) -> Path:
        return self.path / "agents" / name

    def agent_directories(self) -> list[Path]:
        with suppress(OSError):
            return sorted(path for path in (self.path / "agents").iterdir() if _is_own(path))
        return []

    # -- one controller --------------------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory for this process.

        Raises:
            Conflict: a controller runs on it.
            UnusableHome: it cannot be written, or somebody else may have prepared it.
        """
        self.require_own()
        try:
            lock = lock_file.take(self._lock_file)
        except lock_file.Taken as taken:
            raise Conflict(self._held_by(taken.holder)) from None
        except OSError as error:
            raise UnusableHome(f"cannot write {self._lock_file}: {error.strerror}") from None
        try:
            yield
        finally:
            os.close(lock)

    def lock_id(self) -> str:
        """A text that distinguishes the lock of this directory, which is held, from all others on
        this machine: directories in two containers may have the same path."""
        found = self._lock_file.stat()
        return f"{found.st_dev:x}-{found.st_ino:x}"

    def already_running(self) -> str:
        running = self.running()
        who = f" at {running.url} (process {running.pid})" if running else ""
        return f"a cluster already runs on {self.path}{who}: stop it with `muster down`"

    def _held_by(self, holder: int | None) -> str:
        """Why the directory cannot be held: a controller's record names another process if a
        command of `muster db` is at work, or a controller that is about to be ready."""
        running = self.running()
        if holder is None or running is None or running.pid == holder:
            return self.already_running()
        return (
            f"process {holder} holds {self.path}: a command of `muster db`, which will end, or a "
            f"controller that starts, which `muster down` stops"
        )

    def is_running(self) -> bool:
        """Whether a process holds the lock."""
        return lock_file.is_held(self._lock_file)

    def terminate(self) -> int | None:
        """Tell the controller that runs to end; the answer is its process. None where none runs, or
        it is still starting, or runs where it cannot be seen from here: the number in its record is
        not believed alone."""
        running = self.running()
        if running is None:
            return None
        told = lock_file.signal_holder(self._lock_file, signal.SIGTERM, only=running.pid)
        return running.pid if told else None

    def running(self) -> RunningController | None:
        """The description of itself by the controller that runs, or ran last."""
        found = _read_json(self._running_file)
        try:
            return RunningController(**found) if found else None
        except TypeError:
            return None

    def write_running(self, running: RunningController) -> None:
        write_private(self._running_file, json.dumps(asdict(running)))

    def forget_running(self) -> None:
        self._running_file.unlink(missing_ok=True)

    # -- small files -----------------------------------------------------------------------------

    def settings(self) -> Settings:
        """The settings of the last start; the defaults before the first.

        Raises:
            UnusableHome: the file cannot be read, or is damaged.
        """
        import msgspec

        path = self._settings_file
        try:
            return msgspec.json.decode(path.read_bytes(), type=Settings)
        except FileNotFoundError:
            return Settings()
        except OSError as error:
            raise UnusableHome(f"cannot read {path}: {error.strerror}") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnusableHome(
                f"{path} is damaged ({error}): mend it, or remove it and name the options of "
                f"`muster up` again"
            ) from None

    def write_settings(self, settings: Settings) -> None:
        """
        Raises:
            UnusableHome: they cannot be written.
        """
        text = json.dumps(asdict(settings))
        write_private(self._settings_file, text, is_synced=True)

    def client(self) -> dict[str, Any]:
        """URL and token for clients on this machine; empty before the first start."""
        return _read_json(self.client_file)

    def write_client(self, url: str, token: str, authority: Path | None) -> None:
        """
        Raises:
            UnusableHome: it cannot be written.
        """
        ca = {"ca": str(authority)} if authority else {}
        write_private(self.client_file, json.dumps({"url": url, "token": token, **ca}))

    def join_token(self) -> str | None:
        with suppress(OSError):
            return self.join_token_file.read_text().strip() or None
        return None


def _is_own(path: Path) -> bool:
    """Whether this is a directory, no link, and this user's: an earlier version may have let others
    write where it is."""
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def open_log(path: Path) -> BinaryIO:
    """Open a file that only its owner may read, to write at its end.

    Raises:
        OSError: it cannot be opened, or is not this user's alone.
    """
    file = os.fdopen(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab")
    os.fchmod(file.fileno(), 0o600)  # the file may have been there already
    return file


def write_private(path: Path, text: str, *, is_synced: bool = False) -> None:
    """Write a file that only its owner may read, whole or not at all; see ``write_whole``.

    Raises:
        UnusableHome: it cannot be written.
    """
    try:
        write_whole(path, text, is_synced=is_synced)
    except OSError as error:
        raise UnusableHome(f"cannot write {path}: {error.strerror}") from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
