"""The uids of users: one for a user in the whole cluster, told to agents with the work."""

from collections.abc import Mapping

from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld, cpus
from tests.control.world import ADA, BOB, ROOT, World

from muster.control.accounts import ensure_user, remove_user
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.group.requests import GroupRequests
from muster.control.session.cluster.user_uids import UserUids
from muster.core.owner import AS_OWNER, RUNS_AS, Owner, Principal, Role
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, JobState
from muster.core.uids import UIDS_OF_CLUSTERS, uids_of
from muster.store.records import Job
from muster.wire.messages import Start

UIDS = range(300_000, 300_003)
ADA_OF_LAB = Principal(Owner("lab", "default", "ada"), Role.USER)
EVE = Principal(Owner("default", "default", "eve"), Role.USER)
AS_OWNERS = {RUNS_AS: AS_OWNER}


class Told(dict[tuple[str, str], int | None]):
    """The uids that agents were told, by agent and user; those of no uid are left out."""

    def __init__(self, world: World) -> None:
        self.clusters: set[str] = set()
        self._world = world
        for name in ("a", "b"):

            def start(order: Start, name: str = name) -> Run:
                return self._note(name, order)

            world.agent(name).behaviour = start

    def _note(self, agent: str, order: Start) -> Run:
        domain, _, user = order.template.owner.split("/")
        told = order.template.uid
        if told is not None:
            self[agent, f"{domain}/{user}"] = told.uid
            self.clusters.add(told.cluster)
            if told.uid is None:
                return Run(create_failure=ReasonCode.NO_UID)
        return Run(1)

    def run(self, who: Principal, agent: str) -> Job:
        """A job of theirs on an agent, once it is over."""
        spec = {"command": ["x"], "placement": {"agents": [agent]}}
        job = self._world.submit(JobSpec.model_validate(spec), who)
        self._world.run_until(lambda: job.status in JOB_TABLE.terminal)
        return job


def world_of(
    worlds: MakeWorld,
    uids: range | None = UIDS,
    attributes: Mapping[str, str] = AS_OWNERS,
) -> tuple[World, Told]:
    """A cluster of two agents."""
    world = worlds({}, uids=uids)
    for name in ("a", "b"):
        world.add_agent(name, cpus(4), attributes=attributes)
    return world, Told(world)


def test_user_has_one_uid_on_all_agents_and_nobody_else_has_it(worlds: MakeWorld) -> None:
    _, told = world_of(worlds)
    for who, agent in ((ADA, "a"), (BOB, "b"), (BOB, "a"), (ADA, "b")):
        told.run(who, agent)
    assert told == {
        ("a", "default/ada"): 300_000,
        ("b", "default/ada"): 300_000,
        ("a", "default/bob"): 300_001,
        ("b", "default/bob"): 300_001,
    }


def test_users_of_the_same_name_in_two_domains_have_two(worlds: MakeWorld) -> None:
    _, told = world_of(worlds)
    told.run(ADA, "a")
    told.run(ADA_OF_LAB, "a")
    assert told == {("a", "default/ada"): 300_000, ("a", "lab/ada"): 300_001}


def test_uid_stays_its_users_when_the_controller_starts_again_with_another_range(
    worlds: MakeWorld,
) -> None:
    world, told = world_of(worlds)
    told.run(ADA, "a")
    world.uids = range(500_000, 500_010)
    world.restart_controller()
    told.run(ADA, "b")
    told.run(BOB, "b")
    assert told["b", "default/ada"] == 300_000
    assert told["b", "default/bob"] == 500_000


def test_uid_of_a_removed_user_is_given_to_no_other_and_back_to_its_name(
    worlds: MakeWorld,
) -> None:
    world, told = world_of(worlds)

    def add(who: Principal) -> None:
        world.ask(lambda work, parts: ensure_user(work, who.owner))

    add(ADA)
    add(BOB)
    told.run(ADA, "a")

    def remove(work: Work, parts: Parts) -> None:
        remove_user(work, parts, ROOT, "default", "ada", cancel=True)

    world.ask(remove)
    world.restart_controller()
    told.run(BOB, "a")
    add(ADA)
    told.run(ADA, "b")
    assert told == {
        ("a", "default/ada"): 300_000,
        ("a", "default/bob"): 300_001,
        ("b", "default/ada"): 300_000,
    }


def test_work_of_a_user_for_whom_no_uid_is_left_ends_with_that_reason(worlds: MakeWorld) -> None:
    world, told = world_of(worlds)
    for who in (ADA, BOB, ADA_OF_LAB):
        told.run(who, "a")
    assert world.plane.parts[UserUids].left == 0
    job = told.run(EVE, "a")
    assert told["a", "default/eve"] is None
    assert job.status is JobState.UNSCHEDULABLE
    assert job.reason is not None
    assert job.reason.code is ReasonCode.NO_AGENT_ABLE
    assert "has no uid on agent a" in job.reason.sentence()
    assert told.run(ADA, "b").status is JobState.SUCCEEDED, "who has one keeps it"
    world.uids = range(300_000, 300_010)
    world.restart_controller()
    assert told.run(EVE, "a").status is JobState.SUCCEEDED
    assert told["a", "default/eve"] == 300_003


def test_no_uid_is_given_for_agents_that_run_all_kernels_as_themselves(worlds: MakeWorld) -> None:
    world, told = world_of(worlds, attributes={RUNS_AS: "ubuntu"})
    told.run(ADA, "a")
    assert told == {}
    assert world.plane.live.accounts.uids.of("default", "ada") is None


def test_clusters_choose_ranges_of_their_own(worlds: MakeWorld) -> None:
    world, told = world_of(worlds, uids=None)
    world.ask(lambda work, parts: parts[GroupRequests].name_cluster(work, "c1"))
    told.run(ADA, "a")
    world.restart_controller()
    told.run(BOB, "a")
    first = uids_of("c1").start
    assert told == {("a", "default/ada"): first, ("a", "default/bob"): first + 1}
    assert told.clusters == {"c1"}
    ranges = [uids_of(f"cluster-{number}") for number in range(1000)]
    assert all(each.start in UIDS_OF_CLUSTERS and each[-1] in UIDS_OF_CLUSTERS for each in ranges)
    assert all(each.start % 1000 == 0 and len(each) == 65_536 for each in ranges)
    assert len({each.start for each in ranges}) > 990


def test_uids_that_a_machine_gave_before_stay_their_users(worlds: MakeWorld) -> None:
    world, told = world_of(worlds)
    told.run(BOB, "a")
    found = {
        "default/ada": 200_000,
        "default/bob": 200_001,  # has another one of the cluster
        "lab/ada": 200_000,  # is another's since a moment ago
        "no domain": 200_002,
        "default/eve": 300_001,
    }
    world.ask(lambda work, parts: parts[UserUids].adopt(work, found))
    world.restart_controller()
    for who in (ADA, BOB, ADA_OF_LAB, EVE):
        told.run(who, "b")
    assert {name: uid for (agent, name), uid in told.items() if agent == "b"} == {
        "default/ada": 200_000,
        "default/bob": 300_000,
        "default/eve": 300_001,
        "lab/ada": 300_002,
    }
