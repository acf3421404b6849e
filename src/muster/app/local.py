"""The commands `muster up`, `down`, `controller` and `agent`."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from muster.agent.identity import identities_in
from muster.agent.supervisor.shutdown import shut_down
from muster.agent.users_directory import require_users_directory
from muster.app.account_options import AS_BEFORE, AccountOptions, option_uids
from muster.app.controller_config import ControllerConfig
from muster.app.database_option import named_database, shown, warnings_of
from muster.app.detached import (
    CannotStart,
    DetachedController,
    has_ended,
    last_words,
)
from muster.app.home import Home, LocalAgentSettings, LocalProxy, Settings, default_home
from muster.app.keeper import is_kept, keeper_of, last_kept, terminate_keeper
from muster.app.kept_process import STOP_TIMEOUT_S
from muster.app.local_agent_settings import (
    agent_configs,
    warnings,
)
from muster.app.local_agents import former_directories, stop_agent
from muster.app.local_parts import LocalParts, wait_for_parts
from muster.app.proxy_config import DEFAULT_PORT as PROXY_PORT
from muster.app.proxy_config import ProxyConfig, proxy_beside, proxy_directory
from muster.app.proxy_keeper import stop_proxy
from muster.app.service import SystemUnit, unit_of
from muster.core.errors import Conflict, MusterError
from muster.core.log_options import LogForm, LogLevel, LogOptions
from muster.providers.local.machine import NotEnded, machines_of_pools

DEFAULT_PORT = 7600
PORTS_TRIED = 50
STOP_GRACE_S = 10.0
FOREGROUND_LOOK_S = 0.1
JOINED_WITHIN_S = 30.0
"""How long `up` waits for its agents and its proxy, all of which start at once."""

_ACCOUNT_OPTIONS = {
    "mapped": "--map-user",
    "source": "--accounts",
    "uid_range": "--uid-range",
    "users_directory": "--users-dir",
    "pids_max": "--pids-max",
    "scratch_max": "--scratch-max",
}


@dataclass(frozen=True, slots=True)
class UpOptions:
    """Options of `muster up`; None means "as the last time", or the default. Amounts and attributes
    are for each agent.

    ``port`` 0 stands for the port of the last time, else 7600 or the next free one; so does
    ``proxy_port``, with 8282.
    """

    home: Path | None = None
    agents: int | None = None
    cpus: str | None = None
    memory: str | None = None
    gpus: str | None = None
    attributes: Mapping[str, str] | None = None
    accounts: AccountOptions = AS_BEFORE
    port: int = 0
    foreground: bool = False
    database: str | None = None
    proxy: bool | None = None
    proxy_port: int = 0
    log_level: LogLevel | None = None
    log_form: LogForm | None = None


@dataclass(frozen=True, slots=True)
class UpReport:
    """A cluster that was started, and where it runs. Agents elsewhere join at ``agent_address``
    with the token in ``join_token_file``. ``parts`` are those of its own machine."""

    url: str
    pid: int
    agents: tuple[str, ...]
    agent_address: str
    join_token_file: Path
    home: Path
    took_s: float
    parts: LocalParts
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DownReport:
    """A cluster that was stopped. ``unit`` is that of systemd which ran its controller, if one
    did."""

    was_running: bool
    stopped_kernels: int
    unit: SystemUnit | None = None


def up(options: UpOptions, ready: Callable[[UpReport], None] = lambda report: None) -> UpReport:
    """Start a cluster on this machine: a controller, agents of its own, and a proxy.

    ``ready`` is called once the controller accepts requests and the others have joined, or after
    ``JOINED_WITHIN_S``. With ``foreground`` the call returns
    when the cluster was stopped by a signal, together with its kernels.

    Raises:
        Conflict: a cluster runs there already; the text names the options that it was not started
            with.
        MusterError: a port is taken, the database cannot be used, or an amount is wrong; nothing
            was started.
    """
    began_s = time.monotonic()
    home = Home(options.home or default_home())
    home.create()
    if home.is_running():
        raise Conflict(_already_running(home, options))
    if is_kept(home):
        raise Conflict(_being_started(home, keeper_of(home)))
    last = home.settings()
    asked, proxy = _agents(last.agents, options), _proxy(last.proxy, options)
    log = LogOptions(options.log_level or last.log.level, options.log_form or last.log.form)
    config = _config(home, last, asked, proxy, options)
    told_to_stop = threading.Event()
    with _on_signals(told_to_stop.set) if options.foreground else nullcontext():
        controller = DetachedController.start(config, log, kept=not options.foreground)
        try:
            running = controller.wait_until_ready(told_to_stop)
            # A port that nobody chose is not kept.
            kept = config.database if options.database is not None else last.database
            port = options.port or last.port
            home.write_settings(Settings(port, running.agent_port, asked, proxy, kept, log))
            names = tuple(agent.name for agent in config.agents)
            parts = wait_for_parts(home, names, proxy.is_started, told_to_stop, JOINED_WITHIN_S)
        except BaseException:
            controller.end()
            if told_to_stop.is_set() and not home.is_running():
                _stop_rest(home)
            raise
        report = UpReport(
            url=running.url,
            pid=running.pid,
            agents=names,
            agent_address=running.agent_address,
            join_token_file=home.join_token_file,
            home=home.path,
            took_s=time.monotonic() - began_s,
            parts=parts,
            warnings=(*warnings(config.agents, running.users), *warnings_of(options.database)),
        )
        ready(report)
        if options.foreground:
            _stay(controller, home, told_to_stop)
    return report


def _config(
    home: Home, last: Settings, asked: LocalAgentSettings, proxy: LocalProxy, options: UpOptions
) -> ControllerConfig:
    """The settings of the controller, with its agents and its proxy.

    Raises:
        MusterError: see ``up``.
    """
    agents = agent_configs(home, asked)
    if asked.accounts.users_directory is not None:
        require_users_directory(Path(asked.accounts.users_directory))
    database = named_database(options.database, home)
    uid_range = asked.accounts.uid_range
    port = options.port or last.port or DEFAULT_PORT
    return ControllerConfig(
        home,
        port=port,
        ports_tried=1 if options.port else PORTS_TRIED,
        agent_port=last.agent_port or agent_port_after(port),
        agent_ports_tried=PORTS_TRIED,
        agents=agents,
        former_agents=(*identities_in(former_directories(home, len(agents))),),
        proxy=_proxy_config(home, proxy) if proxy.is_started else None,
        database=database,
        uids=option_uids(uid_range) if uid_range is not None else None,
    )


def _being_started(home: Home, keeper: int | None) -> str:
    """Why nothing answers yet where a keeper is at work: a first start, or one after a crash."""
    kept = last_kept(home)
    if keeper is None or kept is None or kept.pid != keeper or not kept.crashes:
        by = "" if keeper is None else f" (by process {keeper})"
        return f"another `muster up` was faster: the cluster on {home.path} is being started{by}"
    return (
        f"the cluster on {home.path} is being started again after a crash (by process "
        f"{keeper}): see {home.log}, or end it with `muster down`"
    )


def _already_running(home: Home, options: UpOptions) -> str:
    """A sentence on the cluster that runs, and on the options that it was not started with."""
    running, settings = home.running(), home.settings()
    if running is None:
        return home.already_running()
    agents = settings.agents
    differing = [
        f"{option} {asked}"
        for option, asked, runs in (
            ("--agents", options.agents, running.agents),
            ("--cpus", options.cpus, agents.cpus),
            ("--memory", options.memory, agents.memory),
            ("--gpus", options.gpus, agents.gpus),
            ("--attribute", _written(options.attributes), _written(agents.attributes)),
            ("--port", options.port or None, running.port),
            ("--proxy-port", options.proxy_port or None, settings.proxy.port),
            ("--database", shown(options.database), running.database),
        )
        if asked is not None and asked != runs
    ]
    differing += [
        _ACCOUNT_OPTIONS[name]
        for name, asked in options.accounts.written().items()
        if asked != getattr(agents.accounts, name)
    ]
    if options.proxy not in (None, settings.proxy.is_started):
        differing.append("--proxy" if options.proxy else "--no-proxy")
    if not differing:
        return home.already_running()
    with_agents = f"{running.agents} agent{'' if running.agents == 1 else 's'}"
    return (
        f"a cluster already runs on {home.path} at {running.url} (process {running.pid}) with "
        f"{with_agents}, to which {' '.join(differing)} was not applied: stop it with "
        f"`muster down` first"
    )


def _written(attributes: Mapping[str, str] | None) -> str | None:
    """The attributes as a person writes them after the option."""
    if attributes is None:
        return None
    texts = sorted(f"{name}={value}" for name, value in attributes.items())
    return " --attribute ".join(texts) or "none"


def agent_port_after(port: int) -> int:
    """The port for agents where only the one for people is known."""
    return port + 1 if port < 65535 else DEFAULT_PORT + 1


def _agents(last: LocalAgentSettings, options: UpOptions) -> LocalAgentSettings:
    """The agents of the last time, changed by the options of this time.

    Raises:
        MusterError: too few or too many.
    """
    asked = LocalAgentSettings(
        count=last.count if options.agents is None else options.agents,
        cpus=options.cpus or last.cpus,
        memory=options.memory or last.memory,
        gpus=options.gpus or last.gpus,
        attributes=last.attributes if options.attributes is None else options.attributes,
        accounts=options.accounts.over(last.accounts),
    )
    if not 0 <= asked.count <= 1000:
        raise MusterError(f"--agents is {asked.count}: expected 0 to 1000")
    return asked


def _proxy(last: LocalProxy, options: UpOptions) -> LocalProxy:
    """The proxy of the last time, changed by the options of this time. A port that nobody chose is
    not kept.

    Raises:
        MusterError: a port for a proxy that is not wanted.
    """
    if options.proxy is False and options.proxy_port:
        raise MusterError("--proxy-port and --no-proxy contradict each other: leave one out")
    if (started := options.proxy) is None:
        started = last.is_started or options.proxy_port > 0
    return LocalProxy(started, options.proxy_port or last.port)


def _proxy_config(home: Home, proxy: LocalProxy) -> ProxyConfig:
    tried = 1 if proxy.port else PORTS_TRIED
    return proxy_beside(home, port=proxy.port or PROXY_PORT, ports_tried=tried)


def _stay(controller: DetachedController, home: Home, told_to_stop: threading.Event) -> None:
    """Wait for a signal or the controller's end; then stop all of its processes.

    Raises:
        CannotStart: it ended by itself.
    """
    while not controller.has_ended():
        if told_to_stop.wait(FOREGROUND_LOOK_S):
            controller.end()
    _stop_rest(home)
    if not told_to_stop.is_set():
        raise CannotStart(f"the controller has ended: {last_words(home)}")


def _stop_rest(home: Home) -> None:
    """A controller that was killed leaves its agents behind, and agents their kernels."""
    asyncio.run(_stop_parts(home))
    _stop_kernels(home, STOP_GRACE_S)


@contextmanager
def _on_signals(act: Callable[[], None]) -> Iterator[None]:
    signums = (signal.SIGINT, signal.SIGTERM)
    before = {signum: signal.signal(signum, lambda *_: act()) for signum in signums}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def down(
    home: Path | None = None, keep_kernels: bool = False, timeout_s: float = 30.0
) -> DownReport:
    """Stop the cluster of this machine: controller, its agents and, unless kept, their kernels and
    the machines of local pools.

    Kernels that are stopped are started again by the next ``up``, at the cost of their preemption
    budget.

    Raises:
        MusterError: the cluster does not stop in time, or somebody else may have prepared the
            directory.
    """
    place = Home(home or default_home())
    place.require_own()
    was_running = place.is_running() or is_kept(place)
    running = place.running() if place.is_running() else None
    unit = None if running is None else unit_of(running.pid)
    if was_running:
        _stop_controller(place, timeout_s)
    # A controller that was killed leaves its agents behind.
    asyncio.run(_stop_parts(place, keep_machines=keep_kernels))
    place.forget_running()
    stopped = 0 if keep_kernels else _stop_kernels(place, timeout_s)
    return DownReport(was_running, stopped, unit)


def _stop_controller(home: Home, timeout_s: float) -> None:
    """Tell the controller to end, and wait until its process is gone, which is a little after the
    lock is free.

    Raises:
        MusterError: the controller does not end in time.
    """
    terminate_keeper(home)  # first, or it would start another controller
    told = home.terminate()
    process = None
    if told is not None:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(told)
    deadline_s = time.monotonic() + timeout_s
    while home.is_running() or is_kept(home) or (process is not None and not has_ended(process)):
        if time.monotonic() > deadline_s:
            raise MusterError(_does_not_stop(home, told, timeout_s))
        time.sleep(0.02)


def _does_not_stop(home: Home, told: int | None, timeout_s: float) -> str:
    if told is not None:
        return f"the controller (process {told}) does not stop within {timeout_s:.0f} s"
    return (
        f"the controller does not stop within {timeout_s:.0f} s: {home.path} is held by a process "
        f"that this command does not take for a controller that is ready, or cannot see from here, "
        f"as one in another container: stop it there"
    )


async def _stop_parts(home: Home, *, keep_machines: bool = False) -> None:
    """End the home's agents and proxy and, unless kept, the agents of machines of local pools,
    which nobody but their provider would start again.

    Raises:
        MusterError: a machine's agent does not end.
    """
    machines = [] if keep_machines else machines_of_pools(home.providers)
    try:
        await asyncio.gather(
            stop_proxy(proxy_directory(home)),
            *(stop_agent(directory) for directory in home.agent_directories()),
            *(asyncio.to_thread(machine.stop, STOP_TIMEOUT_S) for machine in machines),
        )
    except NotEnded as error:
        raise MusterError(f"{error}; try again") from None


def _stop_kernels(home: Home, timeout_s: float) -> int:
    """End the supervisors of the home's agents and machines, and with them their kernels; the
    answer is how many kernels ran.

    Raises:
        MusterError: a supervisor does not end in time, or cannot be ended.
    """
    of_machines = (each.agent_directory for each in machines_of_pools(home.providers))
    directories = [*home.agent_directories(), *(path for path in of_machines if path.is_dir())]
    grace_s = min(STOP_GRACE_S, timeout_s / 2)
    end = partial(shut_down, grace_s=grace_s, timeout_s=timeout_s)
    try:
        with ThreadPoolExecutor(max_workers=min(len(directories), 32) or 1) as pool:
            return sum(pool.map(end, directories))
    except OSError as error:  # a TimeoutError is one
        raise MusterError(f"{error}; try again") from None
