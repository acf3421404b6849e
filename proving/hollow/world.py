"""A whole cluster in one thread under virtual time: the real control plane, hollow machines."""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from muster.control.agent.joining import join
from muster.control.agent.lifecycle import AgentLifecycle
from muster.control.deployment.entity import Route
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.group.requests import GroupRequests
from muster.control.identity.tokens import create_join_token
from muster.core.ids import AgentId, IdFactory
from muster.core.owner import Owner, Principal, Role
from muster.core.specs import ScalingGroup
from muster.core.specs.account import JoinTokenSpec
from muster.store.store import Store
from muster.wire.calls import JoinRequest
from proving.hollow.agent import HollowAgent, Identity
from proving.hollow.agent_twin import Offer
from proving.hollow.controller import Controller, Wakes
from proving.hollow.fate import Fate
from proving.hollow.machine import Machine
from proving.hollow.network import CALM, Stream, Weather
from proving.hollow.performers.notices import NO_FAULTS, Faults
from proving.hollow.performers.probing import ProbeFaults
from proving.hollow.performers.providers import Farm, HollowMachine
from proving.hollow.performers.publishing import PublishFaults
from proving.hollow.performers.rebooting import NO_REBOOT_FAULTS, RebootFaults
from proving.hollow.serving import HollowServing
from proving.hollow.stages import Stage
from proving.hollow.supervisor import Behaviour, HollowSupervisor
from proving.hollow.timeline import Timeline
from proving.hollow.virtual_clock import VirtualClock
from proving.hollow.witness import Witness

_OPERATOR = Principal(Owner("default", "default", "root"), Role.ADMIN)
ANSWER_TIMEOUT_S = 60.0
DRIVERS_S = 20.0
"""How long after its start an agent finds its devices, where their drivers come late."""


class PendingRequest:
    """A request and its answer, once it has one."""

    def __init__(self) -> None:
        self.is_answered = False
        self.result: Any = None
        self.error: Exception | None = None

    def answer(self, result: Any, error: Exception | None) -> None:
        self.is_answered, self.result, self.error = True, result, error


class World:
    """Machines, a network and a controller, which exist from ``begin`` on. A ``witness`` that has
    to see everything is set before that.

    Args:
        open_database: an engine on the cluster's database, each time the controller starts.
        behaviour: of kernels.
        seed: of all random choices.

    ``told`` counts how often a channel got each notice, by its name. ``farm`` has the machines of
    pools, whose agents are among ``agents`` while they are up, and in ``of_pools`` by their ids
    from their first boot on.
    """

    def __init__(
        self,
        path: Path,
        open_database: Callable[[], Engine],
        behaviour: Behaviour,
        *,
        seed: int = 1,
    ) -> None:
        self.path = path
        self.clock = VirtualClock()
        self.timeline = Timeline(self.clock)
        self.weather: Weather = CALM
        self.fate = Fate()
        self.witness = Witness()
        self._open_database = open_database
        self._rng = random.Random(seed)
        self._ids = IdFactory(self.clock, random.Random(self._rng.random()))
        self.controller: Controller | None = None
        self.agents: dict[str, HollowAgent] = {}
        self.wakes = Wakes()  # of all controllers
        self.told: Counter[str] = Counter()
        self._channels = NO_FAULTS
        self._reboot_faults = NO_REBOOT_FAULTS
        self._machines = 0
        self._superseded: list[Controller] = []
        self.controller_boot = "controller"  # of its machine
        self.controller_moved = False
        self.time_of_day_ahead_s = 0.0  # of the controller's machine, looked at when it starts
        self._astray_until: dict[str, float] = {}  # by the names of agents
        self._behaviour = behaviour
        self.farm = Farm(self.clock, self._booted, self._gone, seed, coming=self._coming)
        self.of_pools: dict[str, HollowAgent] = {}
        self.serving = HollowServing(self.clock, self._replica, seed)

    def begin(self, offers: Mapping[str, Offer], group: ScalingGroup | None = None) -> None:
        """Start a controller with one group, and machines by name."""
        self.start_controller()
        spec = group or ScalingGroup(name="default")
        self.request(lambda work, parts: parts[GroupRequests].put_group(work, spec))
        for name, offer in offers.items():
            self.add_agent(name, offer)

    # -- the controller --------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        assert self.controller is not None, "no controller runs"
        return self.controller.store

    @property
    def is_broken(self) -> bool:
        """Whether the controller knows that its mirror is not as SQL is."""
        return self.controller is None or self.controller.plane.is_broken

    @property
    def is_quiet(self) -> bool:
        """Whether a controller runs and has nothing to do, all agents are connected to it, and no
        agent has kernels."""
        controller = self.controller
        return (
            controller is not None
            and controller.is_idle
            and all(
                agent.identity is not None
                and agent.identity.id in controller.desk.connected
                and agent.is_quiet
                and not agent.holds()
                for agent in self.agents.values()
            )
        )

    def quiet_agents(self) -> Iterator[tuple[AgentId, HollowAgent]]:
        """The agents that have no messages on their way to or from an idle controller."""
        controller = self.controller
        if controller is None or not controller.is_idle:
            return
        for agent in self.agents.values():
            id_ = agent.identity.id if agent.identity is not None else None
            if id_ in controller.desk.connected and agent.is_quiet:
                yield id_, agent

    def start_controller(self) -> None:
        if self.controller is not None:
            return
        controller = self.controller = Controller(
            self._open_database(),
            self.timeline,
            self._ids,
            self.path,
            boot_id=self.controller_boot,
            fate=self.fate,
            died=lambda: self._died(controller),
            witness=self.witness,
            wakes=self.wakes,
            farm=self.farm,
            time_of_day_ahead_s=self.time_of_day_ahead_s,
            reboot=self._reboot_hard,
            serving=self.serving,
        )
        controller.rebooter.faults = self._reboot_faults
        controller.channels.faults = self._channels
        controller.channels.sent = self.told

    def move_controller(self) -> None:
        """The next controller starts on another machine, or in another boot."""
        self.controller_moved = True
        self.controller_boot += "'"

    def _died(self, controller: Controller) -> None:
        """Note that a controller has ended, by itself or by a fault."""
        if controller is self.controller:
            self.kill_controller(self.fate.away_s)
        else:
            controller.die()

    def supersede_controller(self, cut_off_s: float) -> None:
        """Somebody starts a second controller. Streams that are open stay with the first one, which
        knows nothing of that, and is cut off from the database for so long."""
        if self.controller is not None:
            former, self.controller = self.controller, None
            self._superseded.append(former)
            former.be_superseded(cut_off_s)
            self.witness.controller_died()
            self.start_controller()

    def lead_astray(self, agent: HollowAgent, seconds: float) -> None:
        """The agent finds an overtaken controller that is still up, instead of the one in charge,
        for so long: its name leads there, say."""
        self._astray_until[agent.name] = self.clock.now() + seconds
        agent.lose_stream()
        self.timeline.after(seconds, agent.lose_stream)

    def lead_home(self) -> None:
        """All agents find the controller in charge from now on."""
        self._astray_until.clear()

    def _found_by(self, agent: HollowAgent) -> Controller | None:
        """The controller that the agent finds; None if nobody listens."""
        if self.clock.now() < self._astray_until.get(agent.name, 0.0):
            for former in reversed(self._superseded):
                if former.is_up:
                    return former
        return self.controller

    def kill_controller(self, away_s: float = math.inf) -> None:
        """kill -9; it comes back after so long."""
        if self.controller is not None:
            controller, self.controller = self.controller, None
            controller.die()
            self.witness.controller_died()
            self.fate.sends_left = None
            if away_s < math.inf:
                self.timeline.after(away_s, self.start_controller)

    def set_serving(self, probes: ProbeFaults, publishing: PublishFaults) -> None:
        """Have probes, and what is published, fail so from now on."""
        self.serving.probe_faults, self.serving.publish_faults = probes, publishing
        if self.controller is not None:
            self.controller.prober.faults = probes
            self.controller.publisher.faults = publishing

    def _replica(self, route: str) -> tuple[str, Mapping[str, str]] | None:
        """The agent on which a route's process runs, and that process' environment."""
        live = None if self.controller is None else self.controller.store.live
        found = None if live is None else live.of(Route).get(route)
        if found is None:
            return None
        for name, agent in self.agents.items():
            for kernel in agent.supervisor.kernels.values():
                start = kernel.start
                if start.kernel == found.kernel_id and kernel.stage is Stage.RUNNING:
                    return name, {**start.template.env, **start.env}
        return None

    def set_rebooter(self, faults: RebootFaults) -> None:
        """Have reboots from outside fail so from now on."""
        self._reboot_faults = faults
        if self.controller is not None:
            self.controller.rebooter.faults = faults

    def _reboot_hard(self, id_: AgentId) -> bool:
        """Whether there is a machine of this agent, which boots anew."""
        for agent in self.agents.values():
            if agent.identity is not None and agent.identity.id == id_ and not agent.is_scrapped:
                agent.health.reboot_hard()
                return True
        return False

    def set_channels(self, faults: Faults) -> None:
        """Have channels fail so from now on."""
        self._channels = faults
        if self.controller is not None:
            self.controller.channels.faults = faults

    def ask(self, action: Callable[[Work, Parts], Any]) -> PendingRequest:
        """Send a request; nobody answers while there is no controller."""
        asked = PendingRequest()
        if self.controller is not None:
            self.controller.ask(action, asked.answer)
        return asked

    def request(self, action: Callable[[Work, Parts], Any]) -> Any:
        """``ask``, and let time pass until the answer.

        Raises:
            MusterError: it was refused.
            TimeoutError: nobody answered.
        """
        asked = self.ask(action)
        self.run_until(lambda: asked.is_answered, ANSWER_TIMEOUT_S)
        if asked.error is not None:
            raise asked.error
        return asked.result

    # -- machines --------------------------------------------------------------------------------

    def add_agent(self, name: str, offer: Offer, group: str = "default") -> HollowAgent:
        """A machine whose agent starts now."""
        agent = self._new_agent(name, offer, group)
        agent.start()
        return agent

    def _new_agent(
        self, name: str, offer: Offer, group: str = "default", token: str | None = None
    ) -> HollowAgent:
        self._machines += 1
        machine = Machine(f"{name}-{self._machines}", self.clock)
        rng = random.Random(self._rng.random())
        supervisor = HollowSupervisor(
            self.timeline,
            machine,
            lambda start: agent.health.course_of(start, self._behaviour),
            lambda kernel: self.witness.begun(agent, kernel),
            lambda kernel: self.witness.gone(agent, kernel),
            lambda report: self.witness.journalled(agent, report),
            lambda kernel: agent.health.carry_out(kernel),
        )
        agent = HollowAgent(
            name,
            self.timeline,
            machine,
            supervisor,
            offer,
            rng,
            self._open_stream,
            self._join,
            group=group,
            token=token,
            answers=self.serving.answers,
        )
        self.agents[name] = agent
        return agent

    def _open_stream(self, agent: HollowAgent) -> Stream | None:
        controller = self._found_by(agent)
        if controller is None or agent.identity is None:
            return None
        # A generator of its own, because the order of one wake's messages to several agents is not
        # defined.
        rng = random.Random(self._rng.random())
        stream = Stream(self.timeline, rng, lambda: self.weather)
        controller.gateway.accept(stream, agent.identity.credential)
        return stream

    def _join(self, agent: HollowAgent) -> None:
        """Have an operator invite the agent, and the agent join, if there is a controller; the
        agent gets its identity with the answer."""
        if self.controller is None:
            return
        if agent.credential is None:
            agent.credential = f"{agent.name}-{self._rng.random()}".ljust(40, "-")
        credential, secret = agent.credential, agent.token or ""

        def invite(work: Work, parts: Parts) -> None:
            nonlocal secret
            _, secret = create_join_token(work, _OPERATOR, JoinTokenSpec(agent=agent.name))

        def enter(work: Work, parts: Parts) -> Any:
            request = JoinRequest(secret, agent.name, agent.group, credential)
            return join(work, parts[AgentLifecycle], request)

        def answer(record: Any, error: Exception | None) -> None:
            if error is None:
                agent.identity = Identity(record.id, credential)

        if agent.token is None:
            self.controller.ask(invite, lambda result, error: None)
        self.controller.ask(enter, answer)

    def replace_machine(self, broken: HollowAgent, after_s: float) -> None:
        """Remove a machine for good, with all that ran on it. Later an empty machine joins under
        its name, to which an operator invites it."""
        broken.scrap()
        fresh = self._new_agent(broken.name, broken.offer, broken.group)
        self.timeline.after(after_s, fresh.start)

    # -- machines of pools -----------------------------------------------------------------------

    def _coming(self, machine: HollowMachine) -> None:
        if machine.boots_at < math.inf:
            self.timeline.at(machine.boots_at, self.farm.tick)

    def _booted(self, machine: HollowMachine) -> None:
        """A machine of the farm is up: an agent of its shape joins, or the one on its disk."""
        agent = self.of_pools.get(machine.id)
        if agent is None:
            shape = machine.spec.machine
            offer = Offer(shape.capacity(0), shape.devices)
            agent = self._new_agent(machine.name, offer, machine.spec.group, machine.token)
            self.of_pools[machine.id] = agent
            if machine.lacks_devices:
                agent.offer = Offer(replace(offer.capacity, gpu_milli=0))
                self.timeline.after(DRIVERS_S, lambda: self._find_devices(agent, offer))
        self.agents[machine.name] = agent
        agent.restore()

    def _find_devices(self, agent: HollowAgent, offer: Offer) -> None:
        """The drivers of an agent's devices have come: it tells of them when it starts anew."""
        agent.offer = offer
        if agent.is_up:
            agent.kill()
            agent.start()

    def _gone(self, machine: HollowMachine) -> None:
        """A machine of the farm is gone, or off."""
        agent = self.of_pools[machine.id]
        agent.scrap()
        if self.agents.get(machine.name) is agent:
            del self.agents[machine.name]

    # -- time ------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.timeline.run(seconds)

    def run_until(self, condition: Callable[[], bool], limit_s: float) -> None:
        """Let time pass until something holds.

        Raises:
            TimeoutError: it does not within ``limit_s`` seconds.
        """
        end = self.clock.now() + limit_s
        while not condition():
            at = self.timeline.next_at()
            if at is None or at > end:
                self.clock.advance_to(end)
                raise TimeoutError(f"it did not happen within {limit_s:g} s")
            self.timeline.step()

    def close(self) -> None:
        self.witness = Witness()  # what ends now is no event of the world
        self.kill_controller()
        for controller in self._superseded:
            if controller.is_up:
                controller.die()
