"""A whole cluster in one thread under virtual time: the real control plane, hollow machines."""

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Engine

from muster.control.agent.joining import join
from muster.control.agent.lifecycle import AgentLifecycle
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.group.requests import GroupRequests
from muster.control.identity.tokens import create_open_join_token
from muster.core.clock import VirtualClock
from muster.core.ids import IdFactory
from muster.core.specs import ScalingGroup
from muster.simulate.hollow.agent import HollowAgent, Identity, Offer
from muster.simulate.hollow.controller import Controller, Fate
from muster.simulate.hollow.machine import Machine
from muster.simulate.hollow.network import CALM, Stream, Weather
from muster.simulate.hollow.supervisor import Behaviour, HollowSupervisor, Kernel
from muster.simulate.hollow.timeline import Timeline
from muster.store.store import Store
from muster.store.unit import Unit
from muster.wire.messages import JoinRequest

ANSWER_TIMEOUT_S = 60.0


class Witness(Protocol):
    """Hears of what really happens."""

    def begun(self, agent: HollowAgent, kernel: Kernel) -> None:
        """A process of the kernel runs from now on."""

    def gone(self, agent: HollowAgent, kernel: Kernel) -> None:
        """No process of the kernel is left."""

    def committed(self, unit: Unit) -> None:
        """The unit was written; its mirror is as SQL is."""


class Ignored(Witness):
    def begun(self, agent: HollowAgent, kernel: Kernel) -> None:
        pass

    def gone(self, agent: HollowAgent, kernel: Kernel) -> None:
        pass

    def committed(self, unit: Unit) -> None:
        pass


class Asked:
    """A request and its answer, once it has one."""

    def __init__(self) -> None:
        self.is_answered = False
        self.result: Any = None
        self.error: Exception | None = None

    def answer(self, result: Any, error: Exception | None) -> None:
        self.is_answered, self.result, self.error = True, result, error


class World:
    """Machines, a network and a controller.

    Args:
        open_database: an engine on the cluster's database, each time the controller starts.
        offers: of the machines, by name.
        behaviour: of kernels.
        seed: of everything that is left to chance.
    """

    def __init__(
        self,
        path: Path,
        open_database: Callable[[], Engine],
        offers: Mapping[str, Offer],
        behaviour: Behaviour,
        *,
        seed: int = 1,
        group: ScalingGroup | None = None,
        witness: Witness | None = None,
    ) -> None:
        self.path = path
        self.clock = VirtualClock()
        self.timeline = Timeline(self.clock)
        self.weather: Weather = CALM
        self.fate = Fate([])
        self.witness: Witness = witness or Ignored()
        self._open_database = open_database
        self._rng = random.Random(seed)
        self._ids = IdFactory(self.clock, random.Random(self._rng.random()))
        self.controller: Controller | None = None
        self.agents: dict[str, HollowAgent] = {}
        self.wakes = 0
        self.start_controller()
        spec = group or ScalingGroup(name="default")
        self.request(lambda work, parts: parts[GroupRequests].put_group(work, spec))
        self._behaviour = behaviour
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

    def start_controller(self) -> None:
        if self.controller is not None:
            return
        self.controller = Controller(
            self._open_database(),
            self.timeline,
            self._ids,
            self.path,
            boot_id="controller",
            fate=self.fate,
            died=self.kill_controller,
            committed=self.witness.committed,
        )

    def kill_controller(self) -> None:
        """kill -9; it stays dead until it is started."""
        if self.controller is not None:
            self.wakes += self.controller.wakes
            controller, self.controller = self.controller, None
            controller.die()

    def ask(self, action: Callable[[Work, Parts], Any]) -> Asked:
        """Send a request; nobody answers while there is no controller."""
        asked = Asked()
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

    def add_agent(self, name: str, offer: Offer) -> HollowAgent:
        """A machine whose agent starts now."""
        machine = Machine(name, self.clock)
        rng = random.Random(self._rng.random())
        supervisor = HollowSupervisor(
            self.timeline,
            machine,
            lambda start: self._behaviour(start),
            lambda kernel: self.witness.begun(agent, kernel),
            lambda kernel: self.witness.gone(agent, kernel),
        )
        agent = HollowAgent(
            name, self.timeline, machine, supervisor, offer, rng, self._open_stream, self._join
        )
        self.agents[name] = agent
        agent.start()
        return agent

    def _open_stream(self, agent: HollowAgent) -> Stream | None:
        if self.controller is None or agent.identity is None:
            return None
        # Chance of its own: messages of one wake to several agents go out in any order.
        rng = random.Random(self._rng.random())
        stream = Stream(self.timeline, rng, lambda: self.weather)
        self.controller.gateway.accept(stream, agent.identity.credential)
        return stream

    def _join(self, agent: HollowAgent) -> None:
        """Have it join, if there is a controller; it gets its identity with the answer."""
        if self.controller is None:
            return
        credential = f"{agent.name}-{self._rng.random()}".ljust(40, "-")
        request_name = agent.name

        def action(work: Work, parts: Parts) -> Any:
            token = create_open_join_token(work, "root")
            request = JoinRequest(token, request_name, "default", credential)
            return join(work, parts[AgentLifecycle], request)

        def answer(record: Any, error: Exception | None) -> None:
            if error is None:
                agent.identity = Identity(record.id, credential)

        self.controller.ask(action, answer)

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
            self.timeline.turn()

    def close(self) -> None:
        self.kill_controller()
