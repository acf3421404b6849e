"""Leases, whatever happens: renewed, shortened, stalled, said late and twice, over restarts and
reboots. No task is ever run twice at once, and no lease ends earlier for the controller than for
the agent that was granted it."""

import math
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from proving.hollow.supervisor import Run
from tests.control.driven_agent import DrivenAgent, task_index
from tests.control.world import World

from muster.control.agent.leases import LeaseBook
from muster.control.group.requests import GroupRequests
from muster.core.ids import AgentId
from muster.core.resources import Resources
from muster.core.specs import JobSpec, ScalingGroup
from muster.core.states import AgentStatus, TaskState
from muster.wire.messages import (
    ControllerMessage,
    Heartbeat,
    Hello,
    Occupied,
    Overtaken,
)

SILENCE_S = 4.0
LONG_S, SHORT_S = 40.0, 2.0
STEP_S = 0.5
IN_CHARGE_S = 20.0
TASKS = 4
WORK = JobSpec.model_validate(
    {"command": ["train"], "tasks": TASKS, "max_retries_preemption": 1000}
)
AGENTS = ("a", "b", "c")

agents = st.sampled_from(AGENTS)
terms = st.sampled_from([LONG_S, SHORT_S])
spans = st.sampled_from([0.0, 0.5, 3.0, 12.0, 30.0])
directions = st.sampled_from([(True, False), (False, True), (True, True)])


@dataclass
class Stream:
    """An agent's present stream: what each end has said and the other has not read."""

    up_stalls: bool = False
    down_stalls: bool = False
    up: list[Hello | Heartbeat] = field(default_factory=list)
    down: list[ControllerMessage] = field(default_factory=list)


class StallingWorld(World):
    """A world whose streams can stall in each direction."""

    def __init__(self, path: Path, agents: Mapping[str, Resources], group: ScalingGroup) -> None:
        self.streams: dict[AgentId, Stream] = {}
        super().__init__(
            path, agents, group=group, behaviour=lambda start: Run(seconds=math.inf, stubborn=True)
        )

    def stream(self, agent: DrivenAgent) -> Stream:
        return self.streams.setdefault(agent.id, Stream())

    def say(self, agent: DrivenAgent, message: Hello | Heartbeat) -> None:
        """The agent says something on its stream."""
        stream = self.stream(agent)
        if stream.up_stalls:
            stream.up.append(message)
        elif agent.online:
            self.hear(agent, message)

    def hear(self, agent: DrivenAgent, message: Hello | Heartbeat) -> None:
        """The gateway reads it."""
        if isinstance(message, Heartbeat):
            renewal = self.leases.renew(agent.id, message)
        else:
            try:
                renewal = self.leases.admit(message, beside=True)
            except (Occupied, Overtaken):
                self.stream_ends(agent)
                return
            self.control_hears(message)
        if renewal is not None:
            self.tell(agent, renewal)

    def control_hears(self, hello: Hello) -> None:
        """A stream was let in with this Hello; what waited for the former one is lost."""
        self.greeted[hello.agent] = hello
        self.welcome.discard(hello.agent)
        self.outgoing = [each for each in self.outgoing if each[0] != hello.agent]
        self.desk.agent_said(hello.agent, hello)

    def tell(self, agent: DrivenAgent, message: ControllerMessage) -> None:
        """The controller says something on the agent's stream."""
        stream = self.stream(agent)
        if stream.down_stalls:
            stream.down.append(message)
        elif agent.online:
            agent.hear(message)

    def stream_ends(self, agent: DrivenAgent) -> None:
        """Messages that were not read by then are lost."""
        agent.online = False
        self.streams[agent.id] = Stream()

    def greet(self, agent: DrivenAgent) -> None:
        agent.forget_stream()
        self.say(agent, agent.hello())

    def beat(self, agent: DrivenAgent) -> None:
        self.say(agent, agent.heartbeat())

    def connect(self, agent: DrivenAgent) -> None:
        self.streams[agent.id] = Stream()
        super().connect(agent)

    def _deliver(self) -> bool:
        outgoing, self.outgoing = self.outgoing, []
        for agent_id, message in outgoing:
            self.tell(self.agents[agent_id], message)
        progressed = bool(outgoing)
        for agent in self.agents.values():
            is_heard = agent.online and not self.stream(agent).up_stalls
            news = agent.news() if is_heard else None
            if news is not None:
                self.leases.heard(agent.id)
                self.desk.agent_said(agent.id, news)
                progressed = True
        while self.closed:
            agent_id, _ = self.closed.pop()
            self.stream_ends(self.agents[agent_id])
            self.desk.agent_left(agent_id)
            progressed = True
        return progressed

    def run(self, seconds: float, step_s: float = STEP_S) -> None:
        """Let time pass; whoever has no stream opens one."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            self.clock.advance(step_s)
            self.leases.confirm_charge(self.clock.boot_s())
            for agent in self.agents.values():
                agent.tick()
                self.beat(agent)
            self.settle()


class Leases(RuleBasedStateMachine):
    """Faults of streams, controller and machines, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        room = Resources(cpu_milli=4000)
        self.world = StallingWorld(
            Path(self._folder.name), dict.fromkeys(AGENTS, room), group(LONG_S)
        )
        self.world.in_charge_s = IN_CHARGE_S
        self.former = {name: [self.world.agent(name).hello()] for name in AGENTS}
        self.world.run(STEP_S)  # no two streams of an agent begin at one moment
        self.world.restart_controller()
        self.overtaken: LeaseBook | None = None  # of a controller that does not know it
        self.job = self.world.submit(WORK).id
        self.world.run(1.0)

    def teardown(self) -> None:
        """Once faults stop, everything runs again."""
        for agent in self.world.agents.values():
            self.world.stream_ends(agent)
        for _ in range(100):
            for agent in self.world.agents.values():
                if not agent.online:
                    self.world.connect(agent)
            self.world.run(2.0)
            self.no_task_runs_twice()
        tasks = self.world.plane.live.jobs[self.job].tasks.values()
        assert {task.status for task in tasks} == {TaskState.RUNNING}
        assert sum(len(agent.running) for agent in self.world.agents.values()) == TASKS
        self.world.close()
        self._folder.cleanup()

    # What happens

    @rule(seconds=spans)
    def time_passes(self, seconds: float) -> None:
        for _ in range(int(seconds / STEP_S)):
            self.world.run(STEP_S)
            self.no_task_runs_twice()
            self.lease_lasts_for_the_controller_while_it_does_for_the_agent()

    @rule(term_s=terms)
    def group_gets_another_term(self, term_s: float) -> None:
        self.world.ask(lambda work, parts: parts[GroupRequests].put_group(work, group(term_s)))

    @rule(name=agents, which=directions, seconds=spans)
    def stream_stalls(self, name: str, which: tuple[bool, bool], seconds: float) -> None:
        stream = self.world.stream(self.world.agent(name))
        stream.up_stalls, stream.down_stalls = which
        self.time_passes(seconds)

    @rule(name=agents, which=directions, times=st.integers(1, 2))
    def stream_flows_again(self, name: str, which: tuple[bool, bool], times: int) -> None:
        """The delayed messages are read now, each once or twice."""
        up, down = which
        agent = self.world.agent(name)
        stream = self.world.stream(agent)
        if up:
            stream.up_stalls, said = False, stream.up
            stream.up = []
            for message in said:
                for _ in range(times):
                    self.world.hear(agent, message)
            self.world.settle()
        if down:
            stream.down_stalls, told = False, stream.down
            stream.down = []
            for answer in told:
                for _ in range(times):
                    agent.hear(answer)
            self.world.settle()

    @rule(name=agents, noticed=st.booleans(), seconds=spans)
    def stream_breaks(self, name: str, noticed: bool, seconds: float) -> None:
        agent = self.world.agent(name)
        self.former[name].append(agent.hello())  # on its way, for long
        self.world.stream_ends(agent)
        if noticed:
            self.world.desk.agent_left(agent.id)
        self.time_passes(seconds)

    @rule(name=agents)
    def stream_is_opened(self, name: str) -> None:
        self.world.connect(self.world.agent(name))

    @rule(name=agents, number=st.integers(0, 3))
    def hello_of_a_former_stream_arrives(self, name: str, number: int) -> None:
        """Of whichever: if it is believed, it has the place of the agent's present stream."""
        agent, former = self.world.agent(name), self.former[name]
        hello = former.pop(number % len(former)) if former else agent.hello()
        try:
            self.world.leases.admit(hello, beside=True)
        except (Occupied, Overtaken):
            return
        self.world.stream_ends(agent)
        self.world.control_hears(hello)
        self.world.settle()

    @rule(name=agents)
    def machine_boots_again(self, name: str) -> None:
        agent = self.world.agent(name)
        self.world.stream_ends(agent)
        agent.reboot()

    @rule(away_s=spans, read_first=st.booleans())
    def controller_is_killed_and_comes_back(self, away_s: float, read_first: bool) -> None:
        """Agents have read before what it had said, or never do."""
        for agent in self.world.agents.values():
            stream = self.world.streams.pop(agent.id, Stream())
            for answer in stream.down if read_first else ():
                agent.hear(answer)
        self._another_controller(away_s)

    @rule()
    def controller_is_overtaken(self) -> None:
        """It is cut off from the database, and not from agents."""
        self.overtaken = self.world.leases
        self._another_controller()

    def _another_controller(self, away_s: float = 0.0) -> None:
        """Nothing on a connection to the former one comes to the new one."""
        for former in self.former.values():
            former.clear()
        self.world.restart_controller(away_s)

    @rule(name=agents, seconds=spans)
    def agent_goes_back_to_an_overtaken_controller(self, name: str, seconds: float) -> None:
        if self.overtaken is None:
            return
        agent = self.world.agent(name)
        self.world.stream_ends(agent)
        with suppress(Occupied, Overtaken):
            renewal = self.overtaken.admit(agent.hello(), beside=True)
            for _ in range(int(seconds / STEP_S) + 1):
                if renewal is not None:
                    agent.hear(renewal)
                self.time_passes(STEP_S)
                if agent.online:  # it has another stream by now
                    break
                renewal = self.overtaken.renew(agent.id, agent.heartbeat())

    # What must hold

    @invariant()
    def no_task_runs_twice(self) -> None:
        live = Counter(
            task_index(kernel.start)
            for agent in self.world.agents.values()
            for kernel in agent.running.values()
        )
        assert all(count == 1 for count in live.values()), live

    @invariant()
    def lease_lasts_for_the_controller_while_it_does_for_the_agent(self) -> None:
        records = self.world.plane.live.agents
        for agent in self.world.agents.values():
            if agent.running:
                assert agent.supervisor.lease_end_s < math.inf, "no kernel runs without a lease"
            if agent.machine.boot_s < agent.supervisor.lease_end_s < math.inf:
                assert records[agent.id].status is not AgentStatus.LOST
                end = agent.machine.booted_at + agent.supervisor.lease_end_s
                assert self.world.leases.until(agent.id) >= end - 1e-6


def group(lease_s: float) -> ScalingGroup:
    return ScalingGroup(name="default", agent_silence=SILENCE_S, kernel_lease=lease_s)


TestLeases = Leases.TestCase
TestLeases.settings = settings(
    max_examples=50,
    stateful_step_count=20,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink takes minutes
    suppress_health_check=[HealthCheck.too_slow],
)
