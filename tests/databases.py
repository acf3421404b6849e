"""Databases of tests: SQLite's in the directory of the test, and PostgreSQL's on a server that the
first test that wants one starts."""

import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, event
from tests.patience import until

from muster.control.modules import cluster_entities
from muster.store.database import open_engine, sqlite_url
from muster.store.schema import metadata

PROGRAMS = Path("/usr/lib/postgresql")
START_S = 30.0
STOP_S = 30.0
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "autovacuum": "off",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "256MB",
    "log_min_messages": "fatal",
}
assert cluster_entities()  # they declare their tables themselves
_IN_TIME: Mapping[str, Any] = {"connect_timeout": 10, "options": "-c statement_timeout=30s"}
MISSING = "no PostgreSQL server is installed here: on Debian, apt-get install postgresql"

DATABASES = "sqlite", "postgresql"
ON_BOTH = pytest.mark.databases(*DATABASES)
"""Runs tests on both kinds of database, where they open the one at ``url_at``. Other tests of the
store and of control run on SQLite, and on the kind that ``--database`` names."""
ONLY_SQLITE = pytest.mark.databases("sqlite")
"""Runs tests on SQLite alone: they are about what is special about it."""
OF_ITS_OWN = pytest.mark.databases()
"""Runs tests once: they choose their database themselves."""


def programs() -> Path | None:
    """The directory of the newest server's programs on this machine."""
    found = PROGRAMS.glob("*/bin/postgres")
    newest = max(found, key=lambda path: int(path.parts[-3]), default=None)
    if newest is None and (elsewhere := shutil.which("postgres")) is not None:
        newest = Path(elsewhere)
    return newest.parent if newest is not None and newest.with_name("initdb").exists() else None


@dataclass
class Server:
    """A PostgreSQL server of the tests' own, which dies with them. It listens on a socket in its
    directory and on a port of this machine; its superuser is ``muster``, with ``password``."""

    directory: Path
    port: int
    settings: dict[str, str] = field(default_factory=lambda: dict(SETTINGS))
    password: str = "of-the-tests"
    _process: subprocess.Popen[bytes] | None = None
    _names: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _spare: list[str] = field(default_factory=list)
    _migrated: str | None = None

    def make(self) -> None:
        """Make the server's files."""
        secret = self.directory / "password"
        secret.write_text(self.password)
        if os.geteuid() == 0:
            shutil.chown(self.directory, "postgres")
            shutil.chown(secret, "postgres")
        words = ["initdb", "-D", str(self.directory / "data"), "-U", "muster", "-N"]
        words += ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={secret}"]
        words += ["-E", "UTF8", "--locale=C.UTF-8"]
        subprocess.run(
            self._as_server(words), check=True, capture_output=True, cwd="/", timeout=START_S
        )

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        words = ["postgres", "-D", str(self.directory / "data"), "-p", str(self.port)]
        words += ["-k", str(self.directory), "-h", "127.0.0.1"]
        for name, value in self.settings.items():
            words += ["-c", f"{name}={value}"]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._as_server(words), stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/"
            )
        until(self._is_up, START_S)

    def _as_server(self, words: Sequence[str]) -> list[str]:
        """A command as a user whom the server's programs accept, which root is not; it dies with
        this process."""
        place = programs()
        assert place is not None, MISSING
        user = ["--reuid=postgres", "--regid=postgres", "--init-groups"]
        setpriv = ["setpriv", *(user if os.geteuid() == 0 else []), "--pdeathsig=QUIT"]
        return [*setpriv, str(place / words[0]), *words[1:]]

    def _is_up(self) -> bool:
        """
        Raises:
            AssertionError: it has ended.
        """
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "log").read_text()[-2000:]
        with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(self.directory / f".s.PGSQL.{self.port}"))
            return self._can_be_asked()
        return False

    def _can_be_asked(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:  # it is starting up
            return False
        return True

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End the server at once, without a word to its clients, or by another signal."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def url(self, database: str) -> str:
        """The URL of a database, over the server's socket."""
        return f"postgresql://muster@/{database}?host={self.directory}&port={self.port}"

    def tcp_url(self, database: str, password: str | None = None) -> str:
        """The URL of a database, over TCP with a password."""
        return f"postgresql://muster:{password or self.password}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> Any:
        """Execute statements; the answer is the first value of the last one's, if it has any."""
        with psycopg.connect(self.url(database), autocommit=True, **_IN_TIME) as connection:
            cursor = connection.execute(statement)
            while cursor.nextset():
                pass
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None

    @contextmanager
    def hanging(self, backends: Sequence[int]) -> Iterator[None]:
        """Have the server's processes for some connections do nothing, and not end either."""
        try:
            for pid in backends:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:  # one that stayed so would have the server wait for it for ever
            for pid in backends:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def backends(self, database: str) -> list[int]:
        """The server's processes for Muster's connections to a database."""
        return list(
            self.execute(
                "SELECT array_agg(pid) FROM pg_stat_activity WHERE application_name = 'muster' "
                f"AND datname = '{database}'"
            )
        )

    def empty_database(self) -> str:
        """The name of a new database without tables."""
        name = f"empty_{next(self._names)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return name

    def database(self) -> str:
        """The name of a database with Muster's tables, and nothing in them; a new one is a copy of
        the first that was migrated."""
        if self._spare:
            return self._spare.pop()
        if self._migrated is None:
            first = self.empty_database()
            open_engine(self.url(first)).dispose()
            self._migrated = first
        name = f"copy_{next(self._names)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {self._migrated}")
        return name

    def give_back(self, database: str) -> None:
        """Empty a database of ``database``, for another test. One with other tables than Muster's
        is removed."""
        if self.execute(_EMPTY, database) == len(metadata.tables) + 1:
            self._spare.append(database)
        else:
            self.execute(f"DROP DATABASE {database} WITH (FORCE)")


_EMPTY = """\
    DO $$ DECLARE each text; BEGIN
        SET LOCAL lock_timeout = '5s';
        FOR each IN SELECT tablename FROM pg_tables WHERE schemaname = 'public'
            AND tablename NOT IN ('alembic_version', 'fence')
        LOOP EXECUTE format('DELETE FROM %I', each); END LOOP;
        UPDATE fence SET epoch = 0, commits = 0, holder = '', since = 0, home = '', renews_s = 0,
            others_until = 0;
    END $$;
    SELECT count(*) FROM pg_tables WHERE schemaname = 'public'
"""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def why_not() -> str | None:
    """Why no server can be started here; None if one can."""
    if programs() is None:
        return MISSING
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return "a PostgreSQL server does not run as root, and there is no user `postgres`"
    return None


@contextmanager
def running_server(settings: Mapping[str, str] = MappingProxyType(SETTINGS)) -> Iterator[Server]:
    """A server, until the end of the block; the test is skipped where none can be had."""
    if (why := why_not()) is not None:
        pytest.skip(why)
    # Not below pytest's directories, which only their owner may enter.
    directory = Path(tempfile.mkdtemp(prefix="muster-postgresql-", dir="/tmp"))
    server = Server(directory, _free_port(), dict(settings))
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory)


_DIES = """\
import os, signal
from sqlalchemy import Engine, event
left = {statements}

@event.listens_for(Engine, "before_cursor_execute")
def _count(connection, cursor, statement, *_):
    global left
    if statement.lstrip().startswith(("CREATE", "ALTER", "UPDATE", "INSERT")):
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

{program}
"""


def die_half_way(program: str, statements: int) -> None:
    """Run a Python program that dies before this one of its statements that change a database."""
    words = [sys.executable, "-c", _DIES.format(statements=statements, program=program)]
    died = subprocess.run(words, check=False, capture_output=True, timeout=60.0)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()


_migrated: list[bytes] = []
_of_paths: dict[Path, str] = {}
_server: Server | None = None


def url_at(path: Path) -> str:
    """The URL of the database of a test, or of a part of one, whose directory is ``path``: the same
    one each time. A new one has Muster's tables."""
    if _server is None:
        return migrated_url(path / "muster.db")
    if path not in _of_paths:
        _of_paths[path] = _server.database()
    return _server.url(_of_paths[path])


def migrated_url(file: Path) -> str:
    """The URL of SQLite's database in ``file``; a new one is a copy of the first that was
    migrated."""
    url = sqlite_url(file)
    if not file.exists():
        if not _migrated:
            open_engine(url).dispose()  # all is in one file then
            _migrated.append(file.read_bytes())
        file.write_bytes(_migrated[0])
    return url


def open_unsynced(url: str) -> Engine:
    """An engine, whose commits wait for no disk if it is SQLite's: no machine of a test within one
    process loses power, and what a process wrote is there when it is killed. So are the settings
    of the tests' server."""
    engine = open_engine(url)
    if engine.dialect.name == "sqlite":
        opened = engine.raw_connection()  # the one by which it was looked at
        assert opened.driver_connection is not None
        _never_wait(opened.driver_connection, None)
        opened.close()
        event.listen(engine, "connect", _never_wait)
    return engine


def _never_wait(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA synchronous=OFF")


def empty_url_at(path: Path) -> str:
    """The URL of a new database without any tables."""
    if _server is not None:
        return _server.url(_server.empty_database())
    path.mkdir(exist_ok=True)
    return sqlite_url(path / "muster.db")


@contextmanager
def on_server(server: Server) -> Iterator[None]:
    """Have ``url_at`` give databases of this server, which are emptied at the end."""
    global _server
    _server = server
    try:
        yield
    finally:
        _server = None
        for name in _of_paths.values():
            server.give_back(name)
        _of_paths.clear()
