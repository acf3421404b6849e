"""Revisions of which no replica became healthy, and that are handed in again."""

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster

from muster.core.reasons import Reason, ReasonCode
from muster.core.states.deployment import EndpointLifecycle

PROBE = {"interval": 1, "timeout": 1, "start_timeout": 2}
MENDED = {**PROBE, "path": "/health"}


@pytest.fixture
def cluster(worlds: MakeWorld) -> Cluster:
    """A deployment whose first revision is good, and whose second was given up."""
    cluster = Cluster(worlds)
    cluster.deploy(probe=PROBE)
    cluster.run(10)
    cluster.bad = {2}
    cluster.deploy(probe=PROBE, command=["serve", "2"])
    cluster.run(100)
    assert (cluster.deployment.stable, cluster.serving()) == (1, [1])
    return cluster


def test_first_revision_is_tried_again_once_its_probe_is_mended(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds)
    cluster.bad = {1}
    cluster.deploy(probe=PROBE)
    cluster.run(100)
    assert cluster.routes() == []
    (why,) = cluster.why().reasons
    assert why.code is ReasonCode.DEPLOYMENT_NEVER_HEALTHY
    cluster.bad.clear()
    cluster.run(20)
    assert cluster.routes() == [], "nobody handed it in again"
    cluster.deploy(probe=MENDED)
    cluster.run(20)
    assert (cluster.deployment.revision, cluster.serving()) == (1, [1])


def test_first_revision_is_tried_again_once_it_is_handed_in_again(worlds: MakeWorld) -> None:
    """Its program may be mended, which no spec tells; and not each time that it fails anew."""
    cluster = Cluster(worlds)
    cluster.bad = {1}
    cluster.deploy(probe=PROBE)
    cluster.run(100)
    assert cluster.routes() == []
    cluster.deploy(probe=PROBE)
    assert cluster.deployment.failed_starts == 0
    cluster.run(4)
    failed_starts = cluster.deployment.failed_starts
    assert failed_starts
    cluster.deploy(probe=PROBE)
    assert cluster.deployment.failed_starts == failed_starts, "others are tried still"
    cluster.run(100)
    cluster.bad.clear()
    cluster.deploy(probe=PROBE)
    cluster.run(20)
    assert (cluster.deployment.revision, cluster.serving()) == (1, [1])


def test_update_that_was_given_up_stays_so_when_it_is_handed_in_again(cluster: Cluster) -> None:
    cluster.bad.clear()
    cluster.deploy(probe=PROBE, command=["serve", "2"])
    cluster.run(20)
    assert (cluster.deployment.stable, cluster.serving()) == (1, [1])


def test_reason_of_failed_starts_is_gone_once_no_more_replicas_are_wished(
    worlds: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(worlds)
    cluster.deploy(replicas=2, probe=PROBE)
    cluster.run(80)
    good = {each.name for each in cluster.routes()}
    cluster.ask("scale", 3)
    monkeypatch.setattr(cluster, "_good", good.__contains__)
    cluster.run(20)
    assert cluster.deployment.reason is not None
    cluster.ask("scale", 2)
    cluster.run(20)
    assert cluster.why().reasons == ()


def test_deployment_whose_replicas_fail_says_why_until_one_is_healthy(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds, behaviour=Run(0.5, exit_code=7))
    cluster.bad = {1}
    cluster.deploy(replicas=1, probe=PROBE)

    def stored() -> Reason:
        assert cluster.deployment.reason is not None
        return cluster.deployment.reason

    cluster.run(2)
    assert stored().code is ReasonCode.DEPLOYMENT_STARTS_AGAIN
    assert "exited with code 7" in stored().sentence()
    assert "the next is tried in" not in stored().sentence(), "nobody would keep that true"
    cluster.run(20)
    assert stored().code is ReasonCode.DEPLOYMENT_NEVER_HEALTHY
    assert stored().sentence().startswith("3 replicas did not become healthy, and no more are")
    assert "exited with code 7" in stored().sentence()
    assert "muster logs rte-" in stored().remedy()
    assert [each.code for each in cluster.why().reasons] == [stored().code]
    cluster.ask("scale", 2)
    assert stored().code is ReasonCode.DEPLOYMENT_STARTS_AGAIN, "more may fail of two"
    cluster.ask("scale", 1)
    assert stored().code is ReasonCode.DEPLOYMENT_NEVER_HEALTHY
    cluster.deploy(replicas=1, probe=MENDED)
    assert cluster.deployment.reason is None


def test_reason_of_failed_starts_is_gone_once_a_replica_is_healthy(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds)
    cluster.bad = {1}
    cluster.deploy(replicas=1, probe=PROBE)
    cluster.run(5)
    why = cluster.deployment.reason
    assert why is not None
    assert why.code is ReasonCode.DEPLOYMENT_STARTS_AGAIN
    cluster.bad = set()
    cluster.run(10)
    assert cluster.deployment.reason is None


def test_update_that_was_given_up_says_how_its_replicas_failed_and_not_how_the_last_one_starts(
    worlds: MakeWorld,
) -> None:
    cluster = Cluster(worlds)
    cluster.deploy(replicas=1, drain=0)
    cluster.run(10)
    cluster.bad = {2}
    slow = {**PROBE, "start_timeout": 8}
    update = {"progress_deadline": 12}
    cluster.deploy(replicas=1, drain=0, command=["serve", "2"], probe=slow, update=update)
    cluster.run(30)
    why = cluster.deployment.reason
    assert why is not None
    assert why.code is ReasonCode.ROLLOUT_TOO_SLOW
    assert "no probe was good within 8s" in why.sentence()


def test_revision_that_was_given_up_is_rolled_out_again_once_its_probe_is_mended(
    cluster: Cluster,
) -> None:
    cluster.bad.clear()
    cluster.deploy(probe=PROBE, command=["serve", "2"], replicas=2)
    cluster.run(20)
    assert cluster.serving() == [1, 1], "nothing was mended"
    cluster.deploy(probe=MENDED, command=["serve", "2"], replicas=2)
    assert (cluster.status, cluster.deployment.reason) == (EndpointLifecycle.DEPLOYING, None)
    cluster.run(60)
    assert (cluster.deployment.revision, cluster.serving()) == (2, [2, 2])
    assert cluster.deployment.stable == 2


def test_revision_that_was_given_up_has_its_budget_again_and_no_more(cluster: Cluster) -> None:
    cluster.deploy(probe=MENDED, command=["serve", "2"])
    tried: set[str] = set()
    cluster.run(200, lambda: tried.update(r.id for r in cluster.routes() if r.revision == 2))
    assert len(tried) == 3
    assert (cluster.status, cluster.serving()) == (EndpointLifecycle.READY, [1])
    assert cluster.deployment.reason is not None
    assert cluster.deployment.reason.code is ReasonCode.ROLLOUT_STARTS_FAILED


def test_undo_to_a_revision_that_was_given_up_tries_it_again(cluster: Cluster) -> None:
    cluster.bad.clear()
    cluster.ask("undo", 2)
    cluster.run(60)
    assert (cluster.deployment.revision, cluster.deployment.stable) == (2, 2)
    assert cluster.serving() == [2]


def test_undo_to_a_first_revision_that_never_was_healthy_tries_it_again(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds)
    cluster.bad = {1, 2}
    cluster.deploy(probe=PROBE)
    cluster.run(100)
    cluster.deploy(probe=PROBE, command=["serve", "2"])
    cluster.run(5)
    cluster.bad.clear()
    cluster.ask("undo", 1)
    cluster.run(30)
    assert (cluster.deployment.revision, cluster.serving()) == (1, [1])


def test_revision_that_came_while_no_replica_was_wished_has_a_budget(worlds: MakeWorld) -> None:
    cluster = Cluster(worlds)
    cluster.deploy(probe=PROBE, drain=0)
    cluster.run(10)
    cluster.ask("scale", 0)
    cluster.run(10)
    cluster.bad = {2}
    cluster.deploy(probe=PROBE, replicas=0, command=["serve", "2"])
    assert (cluster.status, cluster.deployment.stable) == (EndpointLifecycle.READY, 2)
    cluster.ask("scale", 1)
    tried: set[str] = set()
    cluster.run(300, lambda: tried.update(each.id for each in cluster.routes()))
    assert len(tried) == 3
    (why,) = cluster.why().reasons
    assert why.code is ReasonCode.DEPLOYMENT_NEVER_HEALTHY
