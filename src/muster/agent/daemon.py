"""The agent: it finds its kernels again, keeps in touch with the controller, and obeys it.

The agent never starts a process of a kernel itself; its supervisor does, which outlives it (design:
Agents). One thread, one event loop.
"""

import asyncio
import logging
import math
import random
import secrets
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from muster.agent.accounts import MachineAccounts
from muster.agent.backoff import Backoff
from muster.agent.boot import Boot, boot_id, boot_within
from muster.agent.config import AgentConfig
from muster.agent.conversation import Conversation
from muster.agent.discovery import (
    DiscoveredMachine,
    address_towards,
    discover,
    scratch_max_bytes,
)
from muster.agent.disk import DiskProbe, is_full
from muster.agent.health.found import check_names
from muster.agent.health.watch import HealthWatch
from muster.agent.health_commands import scratch_of
from muster.agent.identity import AgentIdentity, load_identity, locked, save_identity
from muster.agent.kernels import Kernels
from muster.agent.listening import sees_sockets
from muster.agent.mig import cuda_names
from muster.agent.port_rules import PortRules
from muster.agent.port_watch import PortWatch
from muster.agent.ports import PreparedPorts
from muster.agent.refusals import AgentPutOff, SupervisorUnavailable
from muster.agent.refusals import AgentRefused as AgentRefused
from muster.agent.removal_box import RemovalBox
from muster.agent.removed_outputs import REMOVED_OUTPUTS, RemovedOutputs
from muster.agent.route_probes import RouteProbes, own_address
from muster.agent.services import OwnServices
from muster.agent.supervisor.launch import launch
from muster.agent.supervisor_link import OtherVersion, SupervisorLink, SupervisorLost, Terms
from muster.agent.tidying import Tidying
from muster.agent.trouble import Trouble
from muster.core.clock import Clock, SteadyClock
from muster.core.health.service import MAX_CHECKS
from muster.core.ids import AgentId
from muster.core.serving.port_holders import PORTS
from muster.version import __version__
from muster.wire.calls import (
    AgentTurnedAway,
    Dismissed,
    JoinRequest,
    NotNow,
)
from muster.wire.client import ControllerChannel, Disconnected, tls_trouble
from muster.wire.duplex import run_until_one_ends
from muster.wire.messages import Hello, MalformedMessage, Occupied

log = logging.getLogger(__name__)

STABLE_S = 10.0
"""Seconds after which a connection counts as stable: the next wait for a connection is short
again."""

MAX_CAUSES = 20
"""Different causes of a missing connection that are told until there is one again."""
SUPERVISOR_TRIES = 5
WATCH_PAUSE_S = 60.0
"""Seconds after which a watch of the machine's health that failed begins anew."""
NAME_S = 3.0
"""Seconds for which this machine's own address is looked up."""
OTHER_VERSION_PAUSE_S = 5.0
"""How often an agent looks whether the supervisor of another version has ended its work."""


async def run(
    config: AgentConfig,
    stop: asyncio.Event,
    rng: random.Random | None = None,
    clock: Clock | None = None,
) -> None:
    """Run an agent until ``stop`` is set. Its kernels run on; the next agent finds them again.

    Raises:
        AgentRefused: wrong token, unknown group, a name that is taken.
        AgentPutOff: the name is not free yet, or the controller too busy.
        SupervisorUnavailable: the supervisor does not start.
        Conflict: another agent runs on the same directory.
        UnusableDirectory, InvalidSpec, InsecureAddress, UnreadableCertificate, UnknownBoot: as they
            say. All of them are MusterErrors with a sentence for a person.
    """
    with locked(config.directory):
        daemon = AgentDaemon(
            config, discover(config), rng or random.Random(), clock or SteadyClock()
        )
        try:
            await run_until_one_ends(daemon.work(), stop.wait())
        finally:
            daemon.close()


class AgentDaemon:
    """The parts of one agent, put together.

    Args:
        config: its settings; the directory must be locked.
        machine: the capacity and attributes that it offers.
        rng: for the lengths of waits, and for the first port to look at.
        clock: for the times in its reports.
    """

    def __init__(
        self, config: AgentConfig, machine: DiscoveredMachine, rng: random.Random, clock: Clock
    ) -> None:
        self._config = config
        self._machine = machine
        self._rng = rng
        given = config.boot_id
        self._boot = Boot(boot_id()) if given is None else boot_within(config.directory, given)
        self._identity = load_identity(config.directory)
        self._rejoining = False  # the controller refused a credential a moment ago
        self._heartbeat_s = math.inf  # how often the controller wants to hear from it
        self._ports = PreparedPorts(config.directory, config.ports, rng)
        self._accounts = MachineAccounts(config)
        logs = config.directory / "logs"
        names, scratch_bytes = cuda_names(machine.devices), scratch_max_bytes(config)
        terms = Terms(config.log_max_bytes, config.pids_max, scratch_bytes, names)
        services = OwnServices(config, machine.devices)
        self._removed = RemovedOutputs(config.directory / REMOVED_OUTPUTS)
        self._removals = RemovalBox()
        self._kernels = Kernels(
            self._ports, logs, self._removed, self._accounts, services, terms, clock
        )
        self._disk = DiskProbe(partial(is_full, config.directory))
        self._link: SupervisorLink | None = None
        self._trouble = Trouble(config.directory)
        self._trouble.clear()
        self._probes: RouteProbes | None = None
        uids = (config.uids, config.cluster_uids)
        self._port_rules = PortRules(config.directory, uids, config.users_directory)
        self._kernels.ports_changed = self._keep_ports
        self._port_watch: PortWatch | None = None
        if sees_sockets():
            self._port_watch = PortWatch(self._kernels.main_process, self._kernels.news.set)
        self._health: HealthWatch | None = None
        if config.gpus is None:  # nobody can tell the health of GPUs that are merely declared
            news = self._kernels.news
            self._health = HealthWatch(
                config.directory, self._boot, machine.devices, news.set, self._kernels.held_gpus
            )
            self._health.let_go(True)  # an earlier process may have begun a reset
            self._kernels.resetting = self._health.let_go
            self._kernels.errors_of = self._health.errors_of

    def close(self) -> None:
        """Let go of everything but the kernels."""
        if self._link is not None:
            self._link.close()
        if self._probes is not None:
            self._probes.close()
        self._port_rules.clear()
        self._ports.close()

    async def work(self) -> None:
        """Keep a supervisor and the connection to the controller. Does not return.

        Raises:
            AgentRefused, SupervisorUnavailable: as ``run``.
        """
        await self._port_rules.write()
        await run_until_one_ends(
            self._supervise(), self._tidy(), self._watch_health(), self._port_rules.run()
        )

    def _keep_ports(self) -> None:
        """Have reserved ports kept for the accounts of their kernels."""
        self._port_rules.wish(self._kernels.port_owners())

    # The supervisor

    async def _supervise(self) -> None:
        backoff = Backoff(self._rng)
        while True:
            began_s = time.monotonic()
            link = await self._attach(backoff)
            self._link = link
            self._kernels.use(link)
            try:
                await run_until_one_ends(self._stay_connected(), closed=link.lost)
            except (AgentRefused, AgentPutOff):
                if not self._kernels.inventory():
                    link.shut_down()  # no agent will come back for it
                raise
            finally:
                self._kernels.use(None)
                link.close()
            log.warning("the connection to the kernel supervisor is lost; looking for it again")
            if time.monotonic() > began_s + STABLE_S:
                backoff.reset()
            await asyncio.sleep(backoff.next_s())

    async def _attach(self, backoff: Backoff) -> SupervisorLink:
        directory = self._config.directory
        why = ""
        for _ in range(SUPERVISOR_TRIES):
            try:
                return await self._launch_and_attach()
            except (SupervisorLost, OtherVersion, OSError) as error:  # TimeoutError is an OSError
                why = str(error)
                log.warning("no kernel supervisor: %s", why)
            await asyncio.sleep(backoff.next_s())
        raise SupervisorUnavailable(f"the kernel supervisor on {directory} does not start: {why}")

    async def _launch_and_attach(self) -> SupervisorLink:
        """Attach to the supervisor, which is started if none runs. A supervisor of another version
        is replaced once it holds no kernels.

        Raises:
            SupervisorLost, OSError: there is none.
            OtherVersion: a supervisor of another version, without kernels, was told to end.
        """
        while True:
            await _launch(self._config.directory)
            try:
                link = await SupervisorLink.attach(self._config.directory, self._kernels)
            except OtherVersion as other:
                if not other.live:
                    raise
                self._trouble.tell(
                    f"{other}: no new work comes here until these have ended, at the latest with "
                    f"their lease, if it has an end; `kill {other.pid}` ends them now, and they "
                    f"run again"
                )
                await asyncio.sleep(OTHER_VERSION_PAUSE_S)
            else:
                self._trouble.clear()
                return link

    # The controller

    async def _stay_connected(self) -> None:
        backoff = Backoff(self._rng)
        told: set[str] = set()  # the causes that were told since the last stable connection
        while True:
            began_s = time.monotonic()
            try:
                await self._converse()
            except (Disconnected, MalformedMessage, Occupied) as error:
                if backoff.tries == 0 or time.monotonic() > began_s + STABLE_S:
                    told.clear()
                if str(error) not in told and len(told) < MAX_CAUSES:
                    told.add(str(error))
                    await self._tell_cause(error)
            except AgentTurnedAway as refusal:
                if isinstance(refusal, Dismissed):
                    log.warning("this agent ends all that it holds: %s", refusal)
                    await self._kernels.abandon()
                self._rejoin_or_raise(str(refusal))
            if time.monotonic() > began_s + STABLE_S:
                backoff.reset()
                self._rejoining = False
            # A controller asks for a Hello each time that it has read its state again: an agent
            # that waited for longer and longer would count as silent.
            await asyncio.sleep(backoff.next_s(at_most_s=self._heartbeat_s / 2))

    async def _tell_cause(self, error: Exception) -> None:
        """Tell why there is no connection to the controller."""
        config = self._config
        why = await tls_trouble(config.controller, config.certificate_authority)
        if why is not None:
            self._trouble.tell(f"no connection to the controller: {why}")
        else:
            log.warning("no connection to the controller: %s; trying again", error)

    async def _converse(self) -> None:
        """One connection to the controller, from its beginning to its end.

        Raises:
            Disconnected, MalformedMessage, Occupied, Refused: how it ended.
            AgentRefused: the controller does not take the agent's join token.
        """
        config = self._config
        async with ControllerChannel(
            config.controller, config.certificate_authority, config.keepalive
        ) as channel:
            identity = self._identity
            if identity is None or not identity.agent:
                identity = await self._join(channel)
            hello = await self._hello(identity)
            stream = channel.connect(identity.credential)
            conversation = Conversation(
                stream,
                self._kernels,
                self._disk.is_full,
                self._boot.began_s,
                None if self._health is None else self._health.box,
                None if self._health is None else self._health.counters,
                await self._prober(hello.host),
                self._port_watch,
                self._removals,
            )

            async def serve_logs() -> None:
                await conversation.accepted.wait()  # or it would take the place of another's
                self._trouble.clear()
                log.info("connected to %s as %s", config.controller, config.name)
                secret = await stream.secret()
                await channel.serve_logs(identity.credential, secret, self._kernels.logs)

            try:
                await run_until_one_ends(conversation.run(hello), serve_logs())
            finally:
                self._heartbeat_s = conversation.heartbeat_s or self._heartbeat_s
                stream.close()

    async def _prober(self, host: str) -> RouteProbes:
        """The prober of replicas at the address by which others know this machine."""
        if self._probes is None:
            loop, news = asyncio.get_running_loop(), self._kernels.news

            def tell() -> None:
                with suppress(RuntimeError):  # the agent has ended
                    loop.call_soon_threadsafe(news.set)

            self._probes = RouteProbes(tell, scratch_of(self._config.directory, self._accounts))
        with suppress(TimeoutError):  # its former address stands until the next connection
            async with asyncio.timeout(NAME_S):
                self._probes.host = await asyncio.to_thread(own_address, host)
        return self._probes

    async def _join(self, channel: ControllerChannel) -> AgentIdentity:
        config = self._config
        if config.token is None:
            raise AgentRefused(
                f"{config.directory} holds no credential: start the agent with a join token"
            )
        if self._identity is None:
            self._keep(AgentIdentity(AgentId(""), secrets.token_urlsafe(32)))
        assert self._identity is not None, "it was kept"
        credential = self._identity.credential
        try:
            reply = await channel.join(
                JoinRequest(config.token, config.name, config.group, credential)
            )
        except NotNow as refusal:
            raise AgentPutOff(f"the controller does not take this agent now: {refusal}") from None
        except AgentTurnedAway as refusal:
            raise AgentRefused(f"the controller refuses this agent: {refusal}") from None
        log.info("joined %s as agent %s", config.controller, reply.agent)
        identity = AgentIdentity(reply.agent, credential, config.name, config.group)
        return self._keep(identity)

    def _keep(self, identity: AgentIdentity) -> AgentIdentity:
        save_identity(self._config.directory, identity)
        self._identity = identity
        return identity

    def _rejoin_or_raise(self, refusal: str) -> None:
        """Join again, once, with a join token, after the controller forgot this agent or the agent
        was removed."""
        if self._config.token is None or self._rejoining:
            raise AgentRefused(
                f"the controller refuses this agent: {refusal}; start it with a new join token"
            )
        log.warning("the controller refuses the credential: %s; joining again", refusal)
        self._rejoining, self._identity = True, None
        self._config = self._config.joining_anew()

    async def _hello(self, identity: AgentIdentity) -> Hello:
        config, machine = self._config, self._machine
        return Hello(
            agent=identity.agent,
            name=config.name,
            group=config.group,
            boot_id=self._boot.id,
            version=__version__,
            host=config.host or await address_towards(config.controller),
            capacity=machine.capacity,
            devices=machine.devices,
            attributes={
                **machine.attributes,
                "limits": self._kernels.limits,
                PORTS: self._port_rules.kind,
            },
            kernels=self._kernels.inventory(),
            instance=_instance(config.directory),
            supervisor="" if self._link is None else self._link.process,
            checks=tuple(sorted({*check_names(), *config.checks})[:MAX_CHECKS]),
        )

    # The machine's health

    async def _watch_health(self) -> None:
        watch = self._health
        while watch is not None and watch.is_needed:
            try:
                await watch.run()
            except Exception:  # nothing that it meets may end the agent
                log.exception("the machine's health is not watched for a while")
            await asyncio.sleep(WATCH_PAUSE_S)
        await asyncio.Event().wait()

    # Files of ended kernels

    async def _tidy(self) -> None:
        config = self._config
        tidying = Tidying(config, self._removed, self._kernels.is_live)
        while True:
            await asyncio.sleep(config.tidy_period_s)
            link = self._link
            if link is None:
                continue
            try:
                places = await asyncio.to_thread(self._accounts.scratch_directories)
                old = await asyncio.to_thread(tidying.run, places, time.time())
            except OSError as error:
                log.warning("old logs cannot be looked for: %s", error)
                continue
            if old:
                log.info("removing the files of %d kernels", len(old))
                link.forget(old)
            if tidying.removals:
                self._removals.add(tidying.removals)
                self._kernels.news.set()


def _instance(directory: Path) -> str:
    """A text that distinguishes this directory from all others of this boot, even from a copy of
    it."""
    found = directory.stat()
    return f"{found.st_dev:x}-{found.st_ino:x}"


async def _launch(directory: Path) -> None:
    """Call ``launch`` in a thread. A cancelled caller still waits for the thread, because no
    supervisor may start after the directory's lock was released."""
    launching = asyncio.ensure_future(asyncio.to_thread(launch, directory))
    try:
        await asyncio.shield(launching)
    except asyncio.CancelledError:
        with suppress(Exception):
            await launching
        raise
