"""Worlds with deployments, whose probes are answered as a test says."""

from collections.abc import Callable, Sequence
from typing import Any

from proving.hollow.supervisor import Behaviour, Run
from tests.control.conftest import MakeWorld, cpus
from tests.control.world import ADA, World

from muster.control.accounts import ensure_user, set_hosts
from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Deployment, Route
from muster.control.deployment.explanation import explain_deployment
from muster.control.deployment.probes import ProbesTold
from muster.control.deployment.probing.effects import Watch
from muster.control.deployment.requests import DeploymentRequests
from muster.control.deployment.traffic import Traffic
from muster.control.engine.effects import Performer
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.session.cluster.state import ClusterState
from muster.control.session.requests import SessionRequests
from muster.core.ids import AgentId, SessionId
from muster.core.owner import Owner
from muster.core.serving.probes import ProbeResult
from muster.core.specs.deployment import DeploymentSpec
from muster.core.states.deployment import RouteStatus
from muster.core.views.placement import WhyView
from muster.wire.messages import ProbesSeen

SERVES = Run(1e9)


class Probes(Performer[Watch]):
    """Answers probes by the revision of a route; ``blind`` answers none, and does not reach the
    machines of ``unreached`` routes."""

    kind = Watch

    def __init__(self) -> None:
        self.watched: dict[str, Watch] = {}
        self.streaks: dict[str, tuple[bool, int]] = {}
        self.blind = False
        self.unreached: set[str] = set()
        self.reaches_nobody = False

    def perform(self, effects: Sequence[Watch]) -> None:
        for each in effects:
            if each.watched is None:
                self.watched.pop(each.route, None)
            else:
                self.watched[each.route] = each

    def results(self, good: Callable[[str], bool]) -> list[ProbeResult]:
        found = []
        for name, each in self.watched.items():
            reached = not (self.reaches_nobody or name in self.unreached)
            is_good = reached and good(name)
            was, streak = self.streaks.get(name, (is_good, 0))
            streak = streak + 1 if was is is_good else 1
            self.streaks[name] = (is_good, streak)
            found.append(ProbeResult(name, each.generation, is_good, streak, reached=reached))
        return found


class Cluster:
    """A world with deployments, whose probes are good but for routes of ``bad`` revisions. Agents
    that are ordered to probe do so, but for those that are ``mute``."""

    def __init__(
        self,
        worlds: MakeWorld,
        agents: int = 4,
        behaviour: Run | Behaviour = SERVES,
        **options: Any,
    ) -> None:
        self.probes = Probes()
        self.bad: set[int] = set()
        self.sick: set[str] = set()
        self.mute: set[AgentId] = set()
        self.world: World = worlds(
            {f"m{n}": cpus(4) for n in range(agents)},
            behaviour=behaviour if callable(behaviour) else lambda start: behaviour,
            stand_ins=[self.probes],
            **options,
        )

    def deploy(self, **keys: Any) -> Deployment:
        spec = DeploymentSpec.model_validate(
            {"name": "chat", "command": ["serve"], "probe": {"interval": 1, "timeout": 1}} | keys
        )
        made: Deployment = self.world.ask(
            lambda work, parts: parts[DeploymentRequests].apply(work, ADA, spec)
        )
        return made

    def give_hosts(self, *hosts: str, owner: Owner = ADA.owner) -> None:
        """Have the deployments of the owner's project use these hosts, and no others."""

        def give(work: Work, _: Parts) -> None:
            ensure_user(work, owner)
            set_hosts(work, owner.domain, owner.project, hosts)

        self.world.ask(give)

    def ask(self, act: str, *args: Any) -> Deployment:
        id_ = next(iter(self.world.plane.live.of(Deployment)))
        found: Deployment = self.world.ask(
            lambda work, parts: getattr(parts[DeploymentRequests], act)(work, ADA, id_, *args)
        )
        return found

    def cancel_session(self, id_: SessionId) -> None:
        self.world.ask(lambda work, parts: parts[SessionRequests].cancel(work, ADA, id_))

    def run(self, seconds: float, each: Callable[[], None] = lambda: None) -> None:
        for _ in range(int(seconds)):
            if not self.probes.blind:
                self.report_probes()
            self.have_agents_probe()
            self.world.run(1.0)
            each()

    def report_probes(self) -> None:
        """Have each replica probed, and the results wait for the next wake."""
        results = self.probes.results(self._good)
        if results:
            self.world.inbox.put(ProbesTold(results))

    def can_probe(self) -> None:
        """Have all agents be of a version that can probe."""
        for agent in self.world.agents.values():
            agent.can_probe()
            self.world.connect(agent)

    def have_agents_probe(self) -> None:
        for agent in self.world.agents.values():
            orders = agent.probed.values()
            told = tuple(
                ProbeResult(each.route, each.generation, self._good(each.route), 9, detail="here")
                for each in orders
            )
            if told and agent.online and agent.id not in self.mute:
                self.world.desk.agent_said(agent.id, ProbesSeen(told))

    def _good(self, name: str) -> bool:
        route = self.world.plane.live.of(Route).get(name)
        return route is not None and route.revision not in self.bad and name not in self.sick

    def why(self) -> WhyView:
        """The answer of `muster why` about the deployment."""
        live, parts = self.world.plane.live, self.world.plane.parts
        cluster, routes = parts[ClusterState], parts[Routes]
        return explain_deployment(
            live, cluster, routes, self.deployment.id, self.world.clock.now(), ADA
        )

    @property
    def deployment(self) -> Deployment:
        (found,) = self.world.plane.live.of(Deployment).values()
        return found

    @property
    def status(self) -> str:
        return self.deployment.status

    def routes(self, *statuses: RouteStatus) -> list[Route]:
        live = self.world.plane.live.of(Route).values()
        return [each for each in live if not statuses or each.status in statuses]

    def serving(self) -> list[int]:
        services = self.world.plane.parts[Traffic].view().services
        return [t.revision for each in services for t in each.targets if t.weight]

    def weights(self) -> list[tuple[int, int]]:
        """The revision and the weight of each target that is published."""
        services = self.world.plane.parts[Traffic].view().services
        return [(t.revision, t.weight) for each in services for t in each.targets]
