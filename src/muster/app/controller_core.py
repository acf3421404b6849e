"""The control plane of a controller, put together with its database and its parts."""

import asyncio
import contextlib
import random
import secrets
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from muster.agent.boot import boot_id, machine_id
from muster.app import cluster_time
from muster.app.controller_config import ControllerConfig
from muster.app.database import FENCE_LOOK_S, Opened, holder, in_charge_s, opened, url_of
from muster.app.driver import Driver
from muster.app.lost_supervisors import START_S, agents_started_here
from muster.control.agent.desk import AgentDesk
from muster.control.agent.leases import LeaseBook
from muster.control.engine.effects import AgentsDoor, Surroundings
from muster.control.engine.inputs import Input
from muster.control.inbox import Inbox
from muster.control.modules import cluster_entities, cluster_modules
from muster.control.plane import ControlPlane
from muster.core.clock import SteadyClock
from muster.core.errors import Busy
from muster.core.host_port import is_loopback
from muster.core.ids import AgentId, IdFactory
from muster.store.store import Store
from muster.wire.gateway_thread import GatewayThread

HEARD_LATELY_S = 5 * FENCE_LOOK_S
"""How long after a look at the fence its answer stands for those who repeat what was wished before:
less than a server takes to give a database to another controller."""


@dataclass(frozen=True, slots=True)
class Core:
    """The control plane, which nobody drives yet, and the parts around it.

    Args:
        is_confirmed: whether it is known how much time has passed since the last commit.
        started_here: the agents that this controller starts.
    """

    clock: SteadyClock
    is_confirmed: bool
    database: Opened
    store: Store
    leases: LeaseBook
    door: AgentsDoor
    driver: Driver
    plane: ControlPlane
    gateway: GatewayThread
    started_here: Callable[[], AbstractSet[AgentId]]


async def make_core(config: ControllerConfig, stack: AsyncExitStack, stop: asyncio.Event) -> Core:
    """Open the database, and put the control plane and its parts together; all is closed with
    ``stack``.

    Raises:
        MusterError: see ``controller.serve``.
    """
    home, clock = config.home, SteadyClock()
    opening = opened(url_of(config.database, home), home, stop, waits=config.waits)
    database = await stack.enter_async_context(opening)
    engine = database.engine
    store = await database.patience.done(
        lambda: Store(engine, cluster_entities(), holder(home, engine))
    )
    stack.callback(store.close)
    stack.callback(store.leave)  # once the gateway, which renews leases, has stopped
    is_confirmed = await cluster_time.resume(clock, store, database.patience)
    ids = IdFactory(clock, random.Random(secrets.randbits(64)))
    driver = Driver(clock)
    own_ids = boot_id(), machine_id()
    leases = LeaseBook(clock, *own_ids, in_charge_s(engine), store.former_renews_s)
    started_here = partial(agents_started_here, home, config.agents, config.former_agents)
    leases.expect(started_here(), START_S)
    inbox = Inbox(driver.hint, driver.hint_soon)
    desk = AgentDesk(store, clock, leases, inbox)
    door = AgentsDoor()
    surroundings = Surroundings(
        engine,
        _reporting(inbox),
        home.path,
        is_loopback(config.host),
        door,
        *own_ids,
        uids=config.uids,
        in_charge=partial(leases.is_in_charge, HEARD_LATELY_S),
    )
    modules = cluster_modules(desk, leases, surroundings)
    plane = ControlPlane(store, clock, ids, inbox, modules)
    stack.callback(plane.close)
    gateway = GatewayThread(desk, desk, leases, tls=config.tls)
    desk.link = gateway
    return Core(
        clock, is_confirmed, database, store, leases, door, driver, plane, gateway, started_here
    )


def _reporting(inbox: Inbox) -> Callable[[Input], None]:
    """Takes outcomes of effects from any thread. An outcome that finds the inbox full or the loop
    closed is lost: its effect is tried again."""
    loop = asyncio.get_running_loop()

    def put(outcome: Input) -> None:
        with contextlib.suppress(Busy):
            inbox.put(outcome)

    def report(outcome: Input) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(put, outcome)

    return report
