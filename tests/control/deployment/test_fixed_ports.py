"""Deployments whose program listens on a port of its own: no two of one port are on one machine."""

from collections import Counter
from collections.abc import Callable

import pytest
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import DrivenAgent
from tests.control.pool_scenarios import pool
from tests.control.served_cluster import Cluster

from muster.control.session.cluster import taken_ports
from muster.control.session.cluster.taken_ports import FIRST_PAUSE_S, LONGEST_PAUSE_S
from muster.core.reasons import ReasonCode
from muster.core.states import SessionStatus
from muster.core.states.deployment import RouteStatus
from muster.wire.messages import Prepare

PORT = 9777


class Asked(Counter[str]):
    """How often each agent of a cluster was asked to get a kernel with a fixed port ready."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        for agent in cluster.world.agents.values():
            agent.hear = self._counting(agent.name, agent.hear)  # type: ignore[method-assign]

    def _counting(self, name: str, receive: Callable[..., None]) -> Callable[..., None]:
        def counting(message: object) -> None:
            for command in getattr(message, "commands", ()):
                if isinstance(command, Prepare) and command.port is not None:
                    self[name] += 1
            receive(message)

        return counting


def places(cluster: Cluster) -> dict[str, int]:
    """How many kernels that listen on the port run on each agent."""
    found: Counter[str] = Counter()
    for agent in cluster.world.agents.values():
        found[agent.name] += len(agent.running)
    return dict(+found)


def one_machine(cluster: Cluster) -> None:
    """Have all agents be on one machine."""
    taken = cluster.world.agent("m0").ports.taken
    for agent in cluster.world.agents.values():
        agent.ports.taken = taken


def sentences(cluster: Cluster) -> list[str]:
    return [each.sentence for each in cluster.why().reasons]


def test_replicas_of_a_fixed_port_are_on_agents_of_their_own_and_the_rest_wait(
    worlds: MakeWorld,
) -> None:
    cluster = Cluster(worlds, agents=2)
    asked = Asked(cluster)
    cluster.deploy(replicas=3, port=PORT)
    cluster.run(60)
    assert places(cluster) == {"m0": 1, "m1": 1}
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 2
    assert {each.address for each in cluster.routes(RouteStatus.HEALTHY)} == {"127.0.0.1:9777"}
    assert asked == {"m0": 1, "m1": 1}
    assert f"its port {PORT} is taken on all 2 agents of group default" in sentences(cluster)
    cluster.world.add_agent("m2", cluster.world.agent("m0").offer.capacity)
    cluster.run(10)
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 3


def test_another_deployment_of_the_same_port_is_elsewhere(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds, agents=3)
    cluster.deploy(replicas=2, port=PORT)
    cluster.deploy(name="other", replicas=2, port=PORT)
    cluster.deploy(name="third", replicas=3, port=PORT + 1)
    cluster.run(20)
    assert places(cluster) == {"m0": 2, "m1": 2, "m2": 2}


def test_agents_of_one_machine_refuse_and_replicas_wait_without_a_try_being_charged(
    worlds: MakeWorld,
) -> None:
    cluster = Cluster(worlds, agents=3)
    one_machine(cluster)
    asked = Asked(cluster)
    deployment = cluster.deploy(replicas=3, port=PORT, update={"progress_deadline": 3000})
    cluster.run(3)
    assert asked == {"m0": 1, "m1": 1, "m2": 1}, "each is asked once"
    assert sum(places(cluster).values()) == 1
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 1
    told = f"its port {PORT} is taken on all 3 agents of group default"
    assert any(each.startswith(told) for each in sentences(cluster))
    cluster.run(1200)
    assert asked.total() <= 3 + 2 * (4 + 1200 / LONGEST_PAUSE_S)
    assert len(cluster.routes()) == 3, "none was made anew"
    sessions = cluster.world.plane.live.sessions.values()
    assert [each.reschedules for each in sessions] == [0, 0, 0]
    assert deployment.reason is None


def test_other_program_keeps_replicas_away_until_it_ends(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds, agents=2)
    cluster.world.agent("m0").ports.taken[PORT] = None
    cluster.deploy(replicas=2, port=PORT)
    cluster.run(5)
    assert places(cluster) == {"m1": 1}
    del cluster.world.agent("m0").ports.taken[PORT]
    cluster.run(FIRST_PAUSE_S + 3)
    assert places(cluster) == {"m0": 1, "m1": 1}


def test_refused_replica_goes_to_another_agent_at_once(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds, agents=2)
    for name in ("m0", "m1"):
        cluster.world.agent(name).ports.taken[PORT] = None
    cluster.deploy(replicas=1, port=PORT)
    cluster.run(2)
    del cluster.world.agent("m1").ports.taken[PORT]
    cluster.run(FIRST_PAUSE_S + 3)
    assert places(cluster) == {"m1": 1}


@pytest.mark.parametrize("shared", [False, True])
def test_update_without_surge_takes_over_the_ports(worlds: MakeWorld, shared: bool) -> None:
    cluster = Cluster(worlds, agents=2)
    if shared:
        one_machine(cluster)
    replicas = 1 if shared else 2
    update = {"surge": 0, "min_healthy_time": 1}
    cluster.deploy(replicas=replicas, port=PORT, drain=1, update=update)
    cluster.run(5)
    cluster.deploy(replicas=replicas, port=PORT, drain=1, update=update, command=["serve", "2"])
    cluster.run(90)
    assert cluster.deployment.stable == 2
    assert len(cluster.routes(RouteStatus.HEALTHY)) == replicas
    assert sum(places(cluster).values()) == replicas


def test_update_with_surge_waits_where_all_agents_are_in_use(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds, agents=1)
    update = {"surge": 1, "progress_deadline": 30}
    cluster.deploy(replicas=1, port=PORT, update=update)
    cluster.run(5)
    cluster.deploy(replicas=1, port=PORT, update=update, command=["serve", "2"])
    cluster.run(10)
    assert f"its port {PORT} is taken on 1 agent of group default" in sentences(cluster)
    cluster.run(60)
    assert cluster.deployment.stable == 1
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 1


def test_new_controller_finds_the_ports_taken(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds, agents=2)
    asked = Asked(cluster)
    cluster.deploy(replicas=2, port=PORT)
    cluster.run(5)
    cluster.world.restart_controller()
    cluster.deploy(name="other", replicas=1, port=PORT)
    cluster.run(20)
    assert asked == {"m0": 1, "m1": 1}
    waiting = [
        each
        for each in cluster.world.plane.live.sessions.values()
        if each.status is SessionStatus.PENDING
    ]
    assert len(waiting) == 1


def test_waiting_replica_holds_up_nobody(worlds: MakeWorld) -> None:
    """Its room is kept for nobody, however long it has waited: the port may never be free."""
    cluster = Cluster(worlds, agents=1)
    cluster.world.agent("m0").ports.taken[PORT] = None
    cluster.deploy(replicas=1, port=PORT, resources={"cpu": 4}, update={"progress_deadline": 9999})
    cluster.run(400)
    assert ReasonCode.PORT_FOREIGN in {each.code for each in cluster.why().reasons}
    cluster.deploy(name="other", replicas=4, resources={"cpu": 1})
    cluster.run(5)
    assert places(cluster) == {"m0": 4}


def test_machines_are_made_for_replicas_that_find_their_port_taken(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds, agents=1)
    cluster.world.apply(pool())
    cluster.deploy(replicas=3, port=PORT, update={"progress_deadline": 9999})
    cluster.run(600)
    assert len(cluster.world.slices()) == 2
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 3


def test_program_is_told_its_own_port_beside_those_that_are_reserved(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds, agents=1)
    cluster.deploy(replicas=1, port=PORT, ports=2)
    cluster.run(5)
    [kernel] = cluster.world.agent("m0").running.values()
    env = {**kernel.start.template.env, **kernel.start.env}
    assert env["PORT"] == str(PORT)
    assert len(env["MUSTER_PORTS"].split(",")) == 2


def all_machines_run_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that pools make."""
    begin = DrivenAgent.__init__

    def with_program(agent: DrivenAgent, *args: object, **settings: object) -> None:
        begin(agent, *args, **settings)  # type: ignore[arg-type]
        agent.ports.taken[PORT] = None

    monkeypatch.setattr(DrivenAgent, "__init__", with_program)


def test_pool_whose_machines_all_have_a_program_on_the_port_makes_no_further_ones(
    worlds: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_machines_run_another_program(monkeypatch)
    cluster = Cluster(worlds, agents=1)
    cluster.world.apply(pool(max_slices=6))
    cluster.deploy(replicas=1, port=PORT, update={"progress_deadline": 99_999})
    made = set()
    for _ in range(60):
        cluster.run(60)
        made |= {each.id for each in cluster.world.slices()}
    assert 1 <= len(made) <= 3, "one at first, then once in a while"
    told = {each.code for each in cluster.why().reasons}
    assert told & {ReasonCode.PORT_FOREIGN, ReasonCode.POOL_PORT_IN_USE}


def test_pool_that_is_mended_makes_machines_for_the_port_at_once(
    worlds: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(worlds, agents=1)
    with monkeypatch.context() as patch:
        all_machines_run_another_program(patch)
        cluster.world.agent("m0").ports.taken[PORT] = None
        cluster.world.apply(pool(max_slices=6))
        cluster.deploy(replicas=1, port=PORT, update={"progress_deadline": 99_999})
        cluster.run(300)
        assert not cluster.routes(RouteStatus.HEALTHY)
    cluster.world.apply(pool(max_slices=5))
    cluster.run(300)
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 1


def test_more_words_than_can_be_kept_are_failures_like_others(
    worlds: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the replica would be placed there at once again, without end."""
    monkeypatch.setattr(taken_ports, "MOST_TOLD", 2)
    cluster = Cluster(worlds, agents=3)
    for agent in cluster.world.agents.values():
        agent.ports.taken[PORT] = None
    cluster.deploy(replicas=3, port=PORT, update={"progress_deadline": 99_999})
    cluster.run(60)
    assert not cluster.routes(RouteStatus.HEALTHY)
    for agent in cluster.world.agents.values():
        del agent.ports.taken[PORT]
    cluster.run(400)
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 3


def test_port_that_only_other_programs_have_is_told_as_such(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds, agents=2)
    cluster.world.agent("m0").ports.taken[PORT] = None
    cluster.deploy(replicas=2, port=PORT, update={"progress_deadline": 99_999})
    cluster.run(5)
    assert sentences(cluster)[-1] == (
        f"its port {PORT} is taken on all 2 agents of group default, on 1 by programs that the "
        "agents did not start: of another agent of the machine, or of nobody's"
    )
    cluster = Cluster(worlds, agents=2)
    for agent in cluster.world.agents.values():
        agent.ports.taken[PORT] = None
    cluster.deploy(replicas=1, port=PORT)
    cluster.run(5)
    assert sentences(cluster)[-1] == (
        f"its port {PORT} is in use on all 2 agents of group default, by programs that the "
        "agents did not start: of another agent of the machine, or of nobody's"
    )


def test_agent_that_refuses_a_port_that_was_not_asked_for_is_charged_like_any_failure(
    worlds: MakeWorld,
) -> None:
    """Else it would be asked at once again, without end."""
    cluster = Cluster(worlds, agents=1)
    agent = cluster.world.agent("m0")
    agent.prepare_failures = [ReasonCode.PORT_IN_USE] * 100
    cluster.deploy(replicas=1)
    cluster.run(3)
    assert len(agent.prepare_failures) > 90
    agent.prepare_failures.clear()
    cluster.run(30)
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 1


def test_replicas_start_once_machines_of_their_only_pool_have_the_port_again(
    worlds: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(worlds, agents=0)
    with monkeypatch.context() as patch:
        all_machines_run_another_program(patch)
        cluster.world.apply(pool(max_slices=6))
        cluster.deploy(replicas=2, port=PORT)
        cluster.run(600)
        assert not cluster.routes(RouteStatus.HEALTHY)
        assert not cluster.world.slices(), "idle machines went"
    cluster.run(1800)
    assert len(cluster.routes(RouteStatus.HEALTHY)) == 2
