"""A cluster of real processes in a directory of its own, whose parts can be killed and started."""

import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import psycopg
from tests.patience import until

from muster.agent.config import USERS_DIRECTORY, AgentConfig, default_users_directory
from muster.app.agent_process import dump_config
from muster.app.controller_config import ControllerConfig, dump_controller
from muster.app.home import Home, RunningController
from muster.app.local import down
from muster.client import Client
from muster.store.database import sqlite_url

CONTROLLER = ("-m", "muster.app.controller_process")
AGENT = ("-m", "muster.app.agent_process")

# Below the ports that the system gives to clients: while nobody listens on such a port, one that
# tries to connect to it may be given that very port for its own end, and then nobody can listen.
PORTS = range(10_000, 18_000)
START_TIMEOUT_S = 60.0


def agent(name: str, **fields: Any) -> AgentConfig:
    """An agent of a cluster, which fills in where it lives and whom it talks to."""
    return AgentConfig(Path(), "", name, **fields)


def lines_told(stderr: str) -> list[str]:
    """The lines of a command's stderr, but for the one that says on a slow machine what it is
    about."""
    return [line for line in stderr.splitlines() if not line.endswith(" …")]


def free_ports(count: int) -> list[int]:
    """Ports on which nobody listens now, from a random place on."""
    found: list[int] = []
    start = random.randrange(len(PORTS))
    for step in range(len(PORTS)):
        port = PORTS[(start + step) % len(PORTS)]
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")


def client_of(home: Home) -> Client:
    """A client of the administrator whose token the home keeps."""
    known = home.client()
    return Client(known["url"], known["token"])


class Cluster:
    """A controller and agents, each a process that the test started itself.

    Everything runs with the home in its command line or environment, so that ``survivors`` finds
    whatever was left behind.
    """

    def __init__(
        self, path: Path, agents: Sequence[AgentConfig] = (), database: str | None = None
    ) -> None:
        self.home = Home(path)
        self.home.create()
        self._database = database  # a PostgreSQL URL; None is SQLite's in the home
        self.port, self.agent_port = free_ports(2)
        # Not in the home, which nobody but root can enter.
        self.users_directory = default_users_directory()
        self.environment = {
            **{name: value for name, value in os.environ.items() if name[:7] != "MUSTER_"},
            "MUSTER_HOME": str(self.home.path),
            "MUSTER_USERS_DIR": str(self.users_directory),
        }
        self._configs: dict[str, AgentConfig] = {}
        for config in agents:
            self.add(config)
        self._controller: subprocess.Popen[bytes] | None = None
        self._agents: dict[str, subprocess.Popen[bytes]] = {}

    # -- parts -----------------------------------------------------------------------------------

    def through(self, name: str, port: int) -> None:
        """Have an agent look for the controller at another port."""
        self._configs[name] = replace(self._configs[name], controller=f"127.0.0.1:{port}")

    def add(self, config: AgentConfig) -> Path:
        """One more agent, to be started; its directory."""
        directory = self.home.agent_directory(config.name)
        users = config.users_directory
        self._configs[config.name] = replace(
            config,
            directory=directory,
            controller=f"127.0.0.1:{self.agent_port}",
            accounts={os.environ.get("USER") or "admin": "root", **config.accounts},
            users_directory=self.users_directory if users == USERS_DIRECTORY else users,
        )
        return directory

    @property
    def agents(self) -> list[str]:
        return list(self._configs)

    def start(self, group: dict[str, Any] | None = None) -> None:
        """Start everything, and wait until all agents have said who they are; they begin under the
        policy of ``group``, if one is given."""
        self.start_controller()
        self.running()
        with self.client() as client:
            if group is not None:
                client.put_group(group)
            for name in self._configs:
                self.start_agent(name)
            until(lambda: [a.status for a in client.agents()] == ["ALIVE"] * len(self._configs))

    def start_controller(self) -> subprocess.Popen[bytes]:
        config = ControllerConfig(
            self.home, port=self.port, agent_port=self.agent_port, database=self._database
        )
        self._controller = self._spawn(CONTROLLER, dump_controller(config), self.home.log)
        return self._controller

    def running(self) -> RunningController:
        """The controller's account of itself once it is ready."""

        def ready() -> RunningController | None:
            process = self._controller
            assert process is not None, "it was started"
            assert process.poll() is None, self.home.log.read_text()[-2000:]
            running = self.home.running()
            return running if running is not None and running.pid == process.pid else None

        return until(ready, START_TIMEOUT_S)

    def kill_controller(self) -> None:
        self._kill(self._controller)

    def start_agent(self, name: str) -> None:
        """Start an agent; the controller must have run once, because it makes the join token."""
        config = replace(self._configs[name], token=self.home.join_token())
        self._agents[name] = self._spawn(
            AGENT, dump_config(config), config.directory.with_suffix(".log")
        )

    def kill_agent(self, name: str) -> None:
        self._kill(self._agents[name])

    def reboot(self, name: str, boot_id: str) -> None:
        """Have an agent's machine be lost, and its agent begin again in a boot of another name."""
        self.lose(name)
        self._configs[name] = replace(self._configs[name], boot_id=boot_id)
        self.start_agent(name)

    def log_tails(self, length: int) -> list[str]:
        """The ends of the logs of all parts, each so many bytes at most."""
        agents = (self.home.agent_directory(name).with_suffix(".log") for name in self._configs)
        logs = (path for path in (self.home.log, *agents) if path.exists())
        ends = {path.name: path.read_bytes()[-length:] for path in logs}
        return [f"{name}: ...{end.decode(errors='replace')}" for name, end in ends.items()]

    def lose(self, name: str) -> None:
        """Have everything of an agent's machine end at once."""
        self.kill_agent(name)
        self.kill_supervisor(name)
        ours = b"MUSTER_SUPERVISOR=" + os.fsencode(self._configs[name].directory)
        for pid, _, environment in processes_naming(self.home.path):
            if ours in environment:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def kill_supervisor(self, name: str) -> int:
        """SIGKILL for the process that outlives the agent; its process id."""
        return self.signal_supervisor(name, signal.SIGKILL)

    def signal_supervisor(self, name: str, number: signal.Signals) -> int:
        """A signal for the process that outlives the agent; its process id."""
        path = self._configs[name].directory

        def signalled() -> int | None:
            ends = [b"--dir", os.fsencode(path)]
            found = [pid for pid, command, _ in processes_naming(path) if command[-2:] == ends]
            if len(found) != 1:
                return None  # one that finds it taken is about to leave
            with suppress(ProcessLookupError):  # it was that one
                os.kill(found[0], number)
                return found[0]
            return None

        return until(signalled)  # its agent may just be starting it again

    def client(self, token: str | None = None) -> Client:
        """A client of an administrator, or of whoever has the token."""
        known = self.home.client()
        return Client(f"http://127.0.0.1:{self.port}", token or known["token"])

    def add_user(self, name: str, role: str = "user") -> str:
        """A new user of the running cluster; the secret of a token of theirs."""
        with self.client() as admin:
            admin.add_user(name)
            return admin.create_token("test", role=role, user=name).secret

    @property
    def database_url(self) -> str:
        return self._database or sqlite_url(self.home.database)

    def query(self, sql: str, *parameters: object) -> list[tuple[object, ...]]:
        """Rows of the database, read beside the controller."""
        if self._database is not None:
            with psycopg.connect(self._database) as server:
                return server.execute(sql.replace("?", "%s"), parameters).fetchall()
        database = f"file:{self.home.database}?mode=ro"
        with closing(sqlite3.connect(database, uri=True)) as connection:
            return connection.execute(sql, parameters).fetchall()

    # -- processes -------------------------------------------------------------------------------

    def _spawn(self, command: Sequence[str], settings: str, log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=self.environment,
                cwd="/",
                start_new_session=True,
            )
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write(settings.encode())
            process.stdin.close()
        return process

    def _kill(self, process: subprocess.Popen[bytes] | None) -> None:
        assert process is not None, "it was started"
        process.kill()
        process.wait()

    def kernels(self) -> list[int]:
        """The processes of kernels."""
        return [
            pid
            for pid, _, environment in processes_naming(self.home.path)
            if any(entry.startswith(b"MUSTER_KERNEL_ID=") for entry in environment)
        ]

    def close(self) -> None:
        """Stop everything; whatever is left then is killed, and is a failure."""
        for process in (self._controller, *self._agents.values()):
            if process is not None:
                process.terminate()
        for process in (self._controller, *self._agents.values()):
            if process is not None:
                process.wait(START_TIMEOUT_S)
        down(self.home.path)
        assert_no_survivors(self.home.path)


_TRACKER = b"multiprocessing.resource_tracker"


def processes_naming(path: Path) -> Iterator[tuple[int, list[bytes], list[bytes]]]:
    """Processes with ``path`` in their command line or environment: pid, and both. Not among them
    are this process and those that started it."""
    needle = os.fsencode(path)
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in own:
            continue
        try:
            command = (entry / "cmdline").read_bytes()
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if _TRACKER in command:
            continue  # of the test process itself, with which it ends
        if needle in command or needle in environment:
            yield (
                int(entry.name),
                command.rstrip(b"\0").split(b"\0"),
                environment.rstrip(b"\0").split(b"\0"),
            )


def assert_no_survivors(path: Path) -> None:
    """Nothing that names ``path`` runs any longer. Whatever does is killed, then it fails."""
    deadline_s = time.monotonic() + 20.0
    while found := [(pid, command) for pid, command, _ in processes_naming(path)]:
        if time.monotonic() > deadline_s:
            for pid, _ in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"left behind: {found}")
        time.sleep(0.02)


@contextmanager
def started(cluster: Cluster, group: dict[str, Any] | None = None) -> Iterator[Cluster]:
    """The cluster runs, and afterwards nothing of it does."""
    try:
        cluster.start(group)
        yield cluster
    finally:
        cluster.close()
