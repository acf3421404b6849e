"""The controller process: state, control, agents' gateway and HTTP, put together."""

import asyncio
import logging
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from muster.agent.config import AgentConfig
from muster.agent.supervisor.process_priority import raise_priority
from muster.api.app import create_app
from muster.api.app import stop as stop_requests
from muster.api.context import ClockState
from muster.app import cluster_time
from muster.app.addresses import (
    host_for_others,
    is_everywhere,
    reachable_host,
)
from muster.app.background_parts import BackgroundParts
from muster.app.checkpoints import keep_checkpointing
from muster.app.controller_config import ControllerConfig
from muster.app.controller_core import Core, make_core
from muster.app.credentials import mend_credential
from muster.app.database import (
    Opened,
    home_held,
    url_of,
    watch_fence,
)
from muster.app.driver import Driver
from muster.app.former_agents import FormerAgents
from muster.app.home import Home, RunningController, write_private
from muster.app.http_server import serving
from muster.app.kept_output import KeptOutput
from muster.app.listening import listen, once_free
from muster.app.local_agents import LocalAgents
from muster.app.local_machines import keep_machines
from muster.app.lost_supervisors import watch_supervisors
from muster.app.own_accounts import own_accounts, uids_given, write_accounts
from muster.app.plugin_watchdog import watch_plugins
from muster.app.process import (
    allow_files,
    garbage_collection_off,
    settle_memory,
    stay_above_kernels,
    take_turns_quickly,
)
from muster.app.proxy_config import proxy_directory
from muster.app.proxy_keeper import KeptProxy, stop_unwished
from muster.app.revocations import RevocationLog
from muster.control.accounts import first_admin
from muster.control.engine.effects import AgentsDoor
from muster.control.group.requests import GroupRequests
from muster.control.identity.tokens import create_open_join_token, verify
from muster.control.plane import ControlPlane
from muster.control.session.cluster.user_uids import UserUids
from muster.core.host_port import is_loopback, joined
from muster.core.owner import OWNER_NAME, Owner
from muster.core.specs import ScalingGroup
from muster.core.specs.group import DEFAULT_GROUP
from muster.store.database import shown_url
from muster.store.queries.cluster import read_cluster_id
from muster.version import __version__
from muster.wire.gateway_thread import GatewayThread

log = logging.getLogger(__name__)

_Part = Callable[[], Coroutine[None, None, None]]
_RunBeside = Callable[[str, _Part], Awaitable[None]]


async def serve(config: ControllerConfig) -> None:
    """Be the controller until SIGTERM or SIGINT. Kernels, and agents elsewhere, run on.

    Raises:
        MusterError: it cannot start: already running, port taken, database unusable. One that
            ``waits`` waits for the end of what another process does on its home or database.
        MustEnd: another controller has taken over its database, or that has gone back to an older
            state.
    """
    home = config.home
    home.create()
    allow_files()
    take_turns_quickly()
    raise_priority()
    watch_plugins()
    stop = asyncio.Event()
    url = url_of(config.database, home)
    with _signals(stop):
        async with home_held(home, url, stop, waits=config.waits), AsyncExitStack() as stack:
            with garbage_collection_off():
                await _start(config, stack, stop)
            settle_memory()
            log.info("ready")
            await stop.wait()
            home.forget_running()


async def _start(config: ControllerConfig, stack: AsyncExitStack, stop: asyncio.Event) -> None:
    agents_place = stack.enter_context(ExitStack())
    listener = await _listener(config, agents_place, stop)
    stack.callback(listener.close)
    core = await make_core(config, stack, stop)
    home, plane, clock, database = config.home, core.plane, core.clock, core.database
    opening_of_gateway = partial(_open_gateway, core.gateway, config, agents_place, stack)
    agent_port, is_confirmed = None, core.is_confirmed
    if not is_confirmed:  # nothing is decided before agents had the chance to confirm it
        agent_port = await opening_of_gateway()
        is_confirmed = await cluster_time.confirm(
            clock, core.store, core.leases, database.patience, stop
        )
    await stack.enter_async_context(_driving(core.driver, plane, stop))
    beside = BackgroundParts()
    run_beside = partial(_run_beside, stack, beside)
    await _run_beside_plane(core, run_beside)
    await _complete(plane, database)
    await _adopt_uids(plane, config)
    await database.patience.done(partial(_keep_revocations, home, core))
    if agent_port is None:
        agent_port = await opening_of_gateway()
    _open_door(core.door, config, agent_port)
    proxy = KeptProxy(config.proxy) if config.proxy is not None else None
    app = create_app(
        plane=plane,
        engine=database.engine,
        clock=clock,
        read_log=KeptOutput(lambda: plane.live, home, core.gateway.read_log).read,
        short_outputs=core.gateway.short_outputs,
        agent_address=joined(host_for_others(config.host, config.tls), agent_port),
        trouble_beside=lambda: beside.trouble or (proxy.trouble if proxy else None),
        home=home.path,
        on_loopback=not core.door.elsewhere,
        clock_state=ClockState(clock.leap_s, clock.suspended_s, is_confirmed),
    )
    scheme = "https" if config.tls else "http"
    reachable = reachable_host(config.host, config.tls)
    url = f"{scheme}://{joined(reachable, listener.getsockname()[1])}"
    await stack.enter_async_context(serving(app, listener, config.tls))
    user, join_token = await _introduce(home, plane, url, clock.now(), config.authority)
    core.door.accounts = write_accounts(home, user, config.uids)
    agents_at = joined(reachable, agent_port)
    core.door.beside = agents_at  # machines of local pools may be made from now on
    own_address = joined(config.host, agent_port)
    started = partial(_local, controller=own_address, token=join_token, user=user, home=home)
    await _run_beside_api(config, core, beside, run_beside, started, proxy)
    stack.callback(stop_requests, app)  # called first: no new requests while other parts stop
    running = RunningController(
        os.getpid(),
        url,
        agents_at,
        __version__,
        clock.now(),
        len(config.agents),
        len(plane.live.accounts.users),
        shown_url(database.engine.url),
        config.proxy is not None,
    )
    home.write_running(running)


async def _run_beside(
    stack: AsyncExitStack, beside: BackgroundParts, name: str, part: _Part
) -> None:
    await stack.enter_async_context(beside.running(name, part))


async def _run_beside_plane(core: Core, run_beside: _RunBeside) -> None:
    """Run what the control plane needs from the beginning."""
    fence = partial(
        watch_fence,
        core.plane,
        core.store,
        core.leases,
        core.clock,
        core.driver.hint,
        core.database.hold_on,
    )
    await run_beside("fence", fence)
    await run_beside("priority", stay_above_kernels)
    await run_beside("checkpoints", partial(keep_checkpointing, core.plane, core.database.engine))


async def _run_beside_api(
    config: ControllerConfig,
    core: Core,
    beside: BackgroundParts,
    run_beside: _RunBeside,
    started: Callable[[AgentConfig], AgentConfig],
    proxy: KeptProxy | None,
) -> None:
    """Run what needs the API and the gateway: agents, the proxy, and the watches over them.

    Args:
        started: the settings of one of the home's own agents, as it is started.
    """
    home, plane, leases = config.home, core.plane, core.leases
    mend = partial(mend_credential, plane)
    former = FormerAgents(
        plane, leases, home, config.former_agents, lambda at: started(_former(config, at)), mend
    )
    await run_beside("former agents", former.forget)
    supervisors = partial(watch_supervisors, plane, leases, core.started_here)
    await run_beside("supervisors", supervisors)
    local_agents = LocalAgents([started(agent) for agent in config.agents], mend, beside)
    await run_beside("local agents", local_agents.run)
    if proxy is not None:
        await run_beside(proxy.name, proxy.keep)
    else:
        await run_beside("former proxy", partial(stop_unwished, proxy_directory(home)))
    await run_beside("local machines", partial(keep_machines, home.providers))


async def _listener(
    config: ControllerConfig, agents_place: ExitStack, stop: asyncio.Event
) -> socket.socket:
    """The socket at which people are to be served. A controller that waits for its ports has that
    of agents in ``agents_place`` besides: nobody else is to take it before their gateway does, once
    all is there.

    Raises:
        AddressInUse: another program has the port.
    """
    take = partial(listen, config.host, tls=config.tls is not None)
    ports = _ports(config.port, config.ports_tried)
    if not config.waits:
        return take(ports)
    agent_ports = _ports(config.agent_port, config.agent_ports_tried)
    take_agents = partial(take, agent_ports, option="--agent-port")
    agents_place.enter_context(await once_free(take_agents, stop))
    return await once_free(partial(take, ports), stop)


async def _open_gateway(
    gateway: GatewayThread, config: ControllerConfig, agents_place: ExitStack, stack: AsyncExitStack
) -> int:
    """Have agents heard, at a port of the settings, which may be kept in ``agents_place``; the
    answer is the port."""
    agents_place.close()
    ports = _ports(config.agent_port, config.agent_ports_tried)
    port = await gateway.start(*(joined(config.host, each) for each in ports))
    stack.push_async_callback(gateway.stop)
    return port


async def _complete(plane: ControlPlane, database: Opened) -> None:
    """Give a fresh cluster its id and its first group."""

    def is_named() -> bool:
        with database.engine.connect().execution_options(readonly=True) as connection:
            return bool(read_cluster_id(connection))

    named = await database.patience.done(is_named)
    if not named:
        name = secrets.token_hex(8)
        await plane.request(lambda work, parts: parts[GroupRequests].name_cluster(work, name))
    if DEFAULT_GROUP not in plane.live.groups:
        group = ScalingGroup(name=DEFAULT_GROUP)
        await plane.request(lambda work, parts: parts[GroupRequests].put_group(work, group))


async def _adopt_uids(plane: ControlPlane, config: ControllerConfig) -> None:
    """Let users have the uids that the home's own agents gave them."""
    if found := uids_given(config.home, config.agents):
        await plane.request(lambda work, parts: parts[UserUids].adopt(work, found))


def _keep_revocations(home: Home, core: Core) -> None:
    """Have everything that is revoked from now on be written beside the state, too."""
    with core.database.engine.connect().execution_options(readonly=True) as connection:
        cluster = read_cluster_id(connection)
        RevocationLog(home.path, core.plane, core.clock, cluster).begin(connection)


def _local(
    config: AgentConfig, controller: str, token: str, user: Owner, home: Home
) -> AgentConfig:
    """The settings of one of the home's own agents."""
    accounts = own_accounts(config.accounts, user)
    return replace(
        config, controller=controller, token=token, accounts=accounts, cluster=str(home.path)
    )


def _former(config: ControllerConfig, directory: Path) -> AgentConfig:
    """The settings of an agent that is started for its last reports: those of the present ones."""
    like = config.agents[0] if config.agents else AgentConfig(directory, "", "")
    return replace(like, directory=directory, name=directory.name)


async def _introduce(
    home: Home, plane: ControlPlane, url: str, now: float, authority: Path | None
) -> tuple[Owner, str]:
    """Write the files that clients and agents of this machine need, with new tokens only where
    there are none.

    The answer is the owner of the clients' token, and the agents' token.
    """
    user = os.environ.get("USER", "")
    user = user if OWNER_NAME.fullmatch(user) else "admin"
    token = str(home.client().get("token", ""))
    principal = verify(plane.live, token, now)
    if principal is None:
        token = await plane.request(lambda work, _: first_admin(work, user))
        principal = verify(plane.live, token, now)
        assert principal is not None, "it was made just now"
    home.write_client(url, token, authority)
    join_token = home.join_token()
    kept = plane.live.accounts.join_tokens.of_secret(join_token) if join_token else None
    if join_token is None or kept is None or not kept.is_good(now):
        join_token = await plane.request(lambda work, _: create_open_join_token(work, user))
        write_private(home.join_token_file, join_token + "\n")
    return principal.owner, join_token


def _open_door(door: AgentsDoor, config: ControllerConfig, port: int) -> None:
    """Say where machines elsewhere reach this controller, now that it listens."""
    elsewhere = host_for_others(config.host, config.tls)
    if config.authority is not None:
        door.authority = config.authority.read_text()
    if not is_loopback(elsewhere) and not is_everywhere(elsewhere):
        door.elsewhere = joined(elsewhere, port)


def _ports(first: int, tried: int) -> range:
    """The ports to try; 0, which means any port, is tried once."""
    return range(first, min(first + tried, 65536))


@asynccontextmanager
async def _driving(driver: Driver, plane: ControlPlane, stop: asyncio.Event) -> AsyncIterator[None]:
    """Drive the plane; ``stop`` is set when it ends by itself.

    Raises:
        MustEnd: at the end, where the plane cannot go on.
    """
    task = asyncio.create_task(driver.run(plane), name="driver")
    task.add_done_callback(lambda _: stop.set())
    try:
        yield
    finally:
        driver.stop()
        await task


@contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    try:
        yield
    finally:
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(signum)
