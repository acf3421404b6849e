"""`muster doctor`: checks of this machine and its cluster, and remedies for faults."""

import os
import pwd
import resource
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from muster.agent.cgroup_limits import ROOT as CGROUPS
from muster.agent.gpus import find_gpus
from muster.agent.health.check import CheckedMachine
from muster.agent.health.found import check_class, check_names
from muster.agent.identity import AGENT_LOG
from muster.agent.port_rules import find_nft
from muster.agent.trouble import read_trouble
from muster.app.database_option import VARIABLE, named_database, running_elsewhere
from muster.app.doctor_certificates import certificate_checks
from muster.app.doctor_check import Check as Check
from muster.app.home import Home, RunningController, UnusableHome, default_home
from muster.app.keeper import STEADY_S, KeeperRecord, keeper_of, last_kept
from muster.app.local_agents import former_directories, holder
from muster.app.proxy_config import LOG_FILE, proxy_directory, running_proxy
from muster.client import Client
from muster.client.errors import Silent
from muster.core.clock import LEAP_S, NOT_CONFIRMED, said_leap, said_suspended
from muster.core.errors import MusterError
from muster.core.resources import Device
from muster.core.states import AgentStatus
from muster.core.text import count, duration

HEALTH_TIMEOUT_S = 5.0
"""How long the controller may take to tell its health."""
LEAST_DISK_BYTES = 2**30
LEAST_OPEN_FILES = 1024


def checks(home: Path | None = None) -> Iterator[Check]:
    """Check everything that a cluster on this machine needs. Nothing is changed."""
    place = Home(home or default_home())
    yield _python()
    yield Check("sqlite", True, sqlite3.sqlite_version)
    is_own = True
    try:
        place.require_own()
        yield _data_directory(place)
        yield from _database(place)
        yield from _settings(place)
    except UnusableHome as error:  # what is in it is not believed either
        is_own = False
        yield Check("data directory", False, str(error), "choose another with --home")
    yield _disk(place)
    yield _open_files()
    yield _limits()
    yield _users()
    yield _ports()
    devices = find_gpus().devices
    yield _gpus(devices)
    yield _health_checks(devices)
    if is_own:
        yield _controller(place)
        yield from _clock(place)
        yield from _uids(place)
        yield _proxy(place)
        proxy = running_proxy(proxy_directory(place))
        yield from certificate_checks(place, _running(place), proxy)
        yield from _balancers(place)
        yield from _agents(place)
        yield from _joined(place)


def _python() -> Check:
    return Check("python", sys.version_info >= (3, 11), sys.version.split()[0])


def _data_directory(home: Home) -> Check:
    if not home.path.exists():
        return Check(
            "data directory", None, f"{home.path} is not there yet", "`muster up` makes it"
        )
    mode = home.path.stat().st_mode & 0o777
    if mode & 0o077:
        remedy = f"chmod 700 {home.path}"
        return Check("data directory", False, f"{home.path} is open to others ({mode:o})", remedy)
    if not os.access(home.path, os.W_OK):
        return Check("data directory", False, f"{home.path} cannot be written", "choose --home")
    return Check("data directory", True, str(home.path))


def _database(home: Home) -> Iterator[Check]:
    """The database, where it is another than the home's own."""
    try:
        if (other := running_elsewhere(home)) is not None:
            said = f"{other}, which was named to the controller alone: {VARIABLE} has it looked at"
            yield Check("database", None, said)
            return
        url = named_database(None, home)
        if url is not None:
            from muster.store.database import shown_url
            from muster.store.database.reading import EmptyDatabase, reading

            with suppress(EmptyDatabase), reading(url):
                pass
            yield Check("database", True, shown_url(url))
    except MusterError as error:
        yield Check("database", False, str(error))


_SETTINGS_FILES = (
    ("notices.yaml", "muster.control.notice.settings"),
    ("health.yaml", "muster.control.health.rebooting.settings"),
    ("traffic.yaml", "muster.control.deployment.publishing.settings"),
)


def _settings(home: Home) -> Iterator[Check]:
    """The files of settings that are there, as a controller that starts reads them."""
    try:
        home.settings()
    except MusterError as error:
        yield Check("settings.json", False, str(error))
    for name, module in _SETTINGS_FILES:
        if not (home.path / name).exists():
            continue
        try:
            import_module(module).load_settings(home.path)
        except MusterError as error:
            remedy = f"mend {home.path / name}: a controller does not start with it"
            yield Check(name, False, str(error), remedy)
        else:
            yield Check(name, True, "is understood; a controller reads it when it starts")


def _disk(home: Home) -> Check:
    place = next(path for path in (home.path, *home.path.parents) if path.exists())
    free = shutil.disk_usage(place).free
    detail = f"{free / 2**30:.1f} GiB free at {place}"
    remedy = "" if free >= LEAST_DISK_BYTES else "free some space: state and logs are kept there"
    return Check("disk", free >= LEAST_DISK_BYTES, detail, remedy)


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard == resource.RLIM_INFINITY or hard >= LEAST_OPEN_FILES
    return Check("open files", enough, f"{soft} (at most {hard})", "raise `ulimit -n`")


def _limits() -> Check:
    version_2 = (CGROUPS / "cgroup.controllers").exists()
    controllers = [CGROUPS] if version_2 else [CGROUPS / "cpu", CGROUPS / "memory"]
    writable = all(os.access(path, os.W_OK) for path in controllers)
    version = "cgroup v2" if version_2 else "cgroup v1"
    if writable:
        return Check("limits", True, f"{version}: cpu and memory limits are enforced")
    return Check(
        "limits",
        None,
        f"{version} is not writable: kernels run without cpu and memory limits",
        "run agents as root, or delegate a cgroup to them",
    )


def _ports() -> Check:
    if os.getuid() != 0:
        detail = "not root: ports of kernels are open to everybody on this machine"
        return Check("ports", None, detail, "run agents as root, with nftables")
    if find_nft() is None:
        return Check(
            "ports",
            None,
            "nft is not installed: any user's kernel reaches the replicas of private deployments "
            "on its own machine, around the proxy",
            "install nftables; `muster agents --json` shows in `ports` what an agent found",
        )
    return Check("ports", True, "nftables: reserved ports are their owners' on each machine")


def _users() -> Check:
    if os.getuid() == 0:
        detail = "root: agents run kernels as their owners, each user with a uid of its own"
        return Check("users", True, detail)
    return Check(
        "users",
        None,
        f"not root: whoever may submit work to agents here acts as {_own_name()}",
        "run agents as root if others than you submit",
    )


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


def _gpus(found: Sequence[Device]) -> Check:
    if not found:
        return Check("gpus", None, "none found by NVML", "declare some with --gpus 4xH100")
    return Check("gpus", True, f"{len(found)}: {', '.join(sorted({d.model for d in found}))}")


def _health_checks(devices: Sequence[Device]) -> Check:
    """The checks by which an agent of this machine finds out whether it is healthy."""
    machine = CheckedMachine(devices=tuple(devices))
    applying: list[str] = []
    for name in check_names():
        try:
            if check_class(name)().applies(machine):
                applying.append(name)
        except Exception as error:  # a plug-in may raise anything
            why = f"{name}: {error}"
            return Check("health checks", False, why, "mend the plug-in, or remove it")
    said = ", ".join(applying)
    if devices and "dcgm" not in applying:
        return Check("health checks", None, f"{said}; dcgmi is not installed, so dcgm is left out")
    return Check("health checks", True, said)


def _controller(home: Home) -> Check:
    running = home.running()
    kept, keeper = last_kept(home), keeper_of(home)
    crashed = ""
    if kept is not None and kept.crashes:
        ago = duration(max(time.time() - kept.last_at, 0.0))
        times = count(kept.crashes, "time")
        crashed = f"; crashed {times}, last with {kept.last_end} {ago} ago"
    if home.is_running() and running is not None:
        by = f", kept alive by process {keeper}" if keeper is not None else ""
        said = f"{running.url} (process {running.pid}{by}){crashed}"
        if trouble := _trouble(home, running):
            return Check("controller", False, f"{said}; {trouble}", f"see {home.log}")
        is_well = None if crashed and _is_steady(kept) else not crashed
        return Check("controller", is_well, said, f"see {home.log} for why it crashed")
    if keeper is not None:
        trouble = read_trouble(home.path)
        said = f"is being started again by process {keeper}{crashed}"
        said += f"; {trouble}" if trouble else ""
        return Check("controller", False, said, f"see {home.log}")
    if running is not None:
        died = f"died (process {running.pid}, {running.url}){crashed}"
        died += "; given up" if kept is not None and kept.gave_up else ""
        return Check("controller", False, died, "run `muster up` again: nothing is lost")
    return Check("controller", None, "does not run here", "start one with `muster up`")


def _is_steady(kept: KeeperRecord | None) -> bool:
    """Whether the last crash is so long ago that the keeper counts anew."""
    return kept is None or time.time() - kept.last_at >= STEADY_S


def _clock(home: Home) -> Iterator[Check]:
    """The time of day, where it is not that of the controller, which may be asked."""
    running = home.running()
    if running is None or not home.is_running():
        return
    with suppress(MusterError), _client(home, running) as client:
        told = client.cluster()
        leap_s = told.clock_leap_s
        if told.clock_suspended_s >= LEAP_S and told.clock_confirmed:
            leap_s -= told.clock_suspended_s
            remedy = "start the controller again: its time goes on by the boot clock then"
            yield Check("clock", False, said_suspended(told.clock_suspended_s), remedy)
        if not told.clock_confirmed:
            remedy = (
                "set the clocks of this machine and of the agents' machines, and start the "
                "controller again: it believes its time of day where an agent agrees"
            )
            yield Check("clock", False, f"{said_leap(leap_s)}; {NOT_CONFIRMED}", remedy)
        elif abs(leap_s) >= LEAP_S:
            remedy = "set the clock of this machine; if it is right, the next boot makes them agree"
            yield Check("clock", False, said_leap(leap_s), remedy)


def _uids(home: Home) -> Iterator[Check]:
    """The uids that the controller gives to users, which may be asked."""
    running = home.running()
    if running is None or not home.is_running():
        return
    with suppress(MusterError), _client(home, running) as client:
        told = client.cluster()
        if told.uids:  # older controllers give none
            left = f"{count(told.uids_left, 'uid')} of {told.uids} left for users"
            remedy = "start the controller with a larger --uid-range: users keep what they have"
            yield Check("uids", told.uids_left > 0, left, remedy)


def _running(home: Home) -> RunningController | None:
    """The controller that runs on the home."""
    return home.running() if home.is_running() else None


def _joined(home: Home) -> Iterator[Check]:
    """The agents of the cluster, wherever they run, as the controller finds them."""
    running = _running(home)
    if running is None:
        return
    with suppress(MusterError), _client(home, running) as client:
        agents = client.cluster().agents
        said = ", ".join(f"{number} {status.lower()}" for status, number in sorted(agents.items()))
        is_well = agents.get(AgentStatus.ALIVE, 0) > 0
        remedy = "`muster agents invite` tells how a machine joins, `muster agents` lists them"
        yield Check("agents of the cluster", is_well or None, said or "none has joined", remedy)


def _balancers(home: Home) -> Iterator[Check]:
    """The balancers outside Muster, as the controller finds them."""
    running = _running(home)
    if running is None:
        return
    with suppress(MusterError), _client(home, running) as client:
        for name, complaint in client.cluster().balancers.items():
            remedy = f"see docs/traffic.md; {home.path / 'traffic.yaml'} says where it is"
            yield Check(f"balancer {name}", not complaint, complaint or "follows", remedy)


def _client(home: Home, running: RunningController) -> Client:
    kept = home.client()
    url, token = kept.get("url", running.url), kept.get("token", "none")
    return Client(url, token, ca=kept.get("ca"), timeout_s=HEALTH_TIMEOUT_S)


def _proxy(home: Home) -> Check:
    directory = proxy_directory(home)
    if (proxy := running_proxy(directory)) is not None:
        return Check("proxy", True, f"{proxy.url} (process {proxy.pid})")
    try:
        is_wished = home.settings().proxy.is_started
    except MusterError as error:
        return Check("proxy", False, "it is not known whether it should run", str(error))
    if not is_wished:
        return Check("proxy", None, "does not run, as was wished", "`muster up --proxy` starts it")
    if not home.is_running():
        return Check("proxy", None, "does not run", "`muster up` starts it")
    running = home.running()
    if running is not None and running.proxy is False:
        said = "the controller that runs starts none; `muster service install proxy` does"
        return Check("proxy", None, said)
    return Check("proxy", False, "does not run", f"see {directory / LOG_FILE}")


def _trouble(home: Home, running: RunningController) -> str:
    """The fault that a controller tells of itself; empty if there is none."""
    try:
        with _client(home, running) as client:
            health = client.health()
            if health.status == "ok":
                return ""
            return f"{health.status}: {_detail(client) or health.reason}"
    except Silent:  # its process is there
        trouble = read_trouble(home.path)
        return trouble or "does not answer: it starts, or waits for its database, or hangs"
    except MusterError as error:
        return str(error)


def _detail(client: Client) -> str | None:
    """Why nothing can be stored, if the client is an admin's."""
    with suppress(MusterError):
        return client.cluster().trouble
    return None


def _agents(home: Home) -> Iterator[Check]:
    running = home.running() if home.is_running() else None
    former = former_directories(home, running.agents) if running else []
    for directory in home.agent_directories():
        process = holder(directory)
        if process is not None:
            trouble = read_trouble(directory)
            said = f"process {process}; {trouble}" if trouble else f"process {process}"
            yield Check(f"agent {directory.name}", not trouble, said)
        elif directory not in former:
            log = directory / AGENT_LOG
            ok = None if running is None else False
            yield Check(f"agent {directory.name}", ok, "does not run", f"see {log}")
