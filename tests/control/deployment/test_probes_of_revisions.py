"""Each replica is probed by the probe of its own revision."""

from collections.abc import Callable, Sequence

import pytest
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster

from muster.control.deployment.entity import dump_revisions, load_revisions
from muster.control.deployment.revisions import Revision
from muster.core.serving.probes import ProbeResult
from muster.core.specs.serving import ProbeSpec

PROBE = {"interval": 1, "timeout": 1, "start_timeout": 2, "unhealthy_threshold": 1}
WRONG = {**PROBE, "path": "/nonexistent"}
V2 = ["serve", "2"]


@pytest.fixture
def cluster(worlds: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A deployment of two replicas, whose programs answer at every path but /nonexistent."""
    cluster = Cluster(worlds)
    results = cluster.probes.results

    def answered(good: Callable[[str], bool]) -> Sequence[ProbeResult]:
        return results(lambda name: good(name) and path_of(cluster, name) != "/nonexistent")

    monkeypatch.setattr(cluster.probes, "results", answered)
    cluster.deploy(replicas=2, probe=PROBE)
    cluster.run(10)
    assert cluster.serving() == [1, 1]
    return cluster


def path_of(cluster: Cluster, name: str) -> str:
    watched = cluster.probes.watched[name].watched
    assert watched is not None
    return watched.probe.path


def paths(cluster: Cluster) -> set[str]:
    return {path_of(cluster, name) for name in cluster.probes.watched}


def least_serving(cluster: Cluster, seconds: float) -> int:
    """The least number of replicas that served in this time."""
    seen: list[int] = []
    cluster.run(seconds, lambda: seen.append(len(cluster.serving())))
    return min(seen)


def test_bad_probe_of_a_new_revision_takes_nothing_from_the_one_that_serves(
    cluster: Cluster,
) -> None:
    cluster.deploy(replicas=2, probe=WRONG, command=V2)
    assert least_serving(cluster, 150) == 2
    assert cluster.deployment.rollout is None, "it was given up"
    assert (cluster.deployment.stable, cluster.serving()) == (1, [1, 1])
    assert paths(cluster) == {"/"}


def test_probe_of_the_one_that_serves_is_kept_over_a_restart_and_for_replicas_made_anew(
    cluster: Cluster,
) -> None:
    cluster.deploy(replicas=2, probe=WRONG, command=V2)
    cluster.run(150)
    cluster.world.restart_controller()
    cluster.run(5)
    cluster.ask("scale", 3)
    cluster.run(20)
    assert cluster.serving() == [1, 1, 1]
    assert paths(cluster) == {"/"}


def test_undo_goes_back_to_the_probe_too(cluster: Cluster) -> None:
    cluster.deploy(replicas=2, probe=WRONG, command=V2)
    cluster.run(150)
    cluster.ask("undo")
    assert cluster.deployment.spec.probe.path == "/"
    assert least_serving(cluster, 20) == 2


def test_update_that_was_given_up_is_tried_again_under_another_probe(cluster: Cluster) -> None:
    cluster.deploy(replicas=2, probe=WRONG, command=V2)
    cluster.run(150)
    cluster.deploy(replicas=2, probe={**PROBE, "path": "/health"}, command=V2)
    assert least_serving(cluster, 60) == 2
    assert (cluster.deployment.stable, cluster.serving()) == (2, [2, 2])
    assert paths(cluster) == {"/health"}


def test_former_revision_handed_in_again_has_the_probe_that_is_handed_in_with_it(
    cluster: Cluster,
) -> None:
    cluster.deploy(replicas=2, probe={**PROBE, "path": "/2"}, command=V2)
    cluster.run(2)
    cluster.deploy(replicas=2, probe={**PROBE, "path": "/2"})
    cluster.run(30)
    assert (cluster.deployment.stable, cluster.serving()) == (1, [1, 1])
    assert paths(cluster) == {"/2"}


def test_another_probe_alone_counts_for_the_replicas_that_there_are(cluster: Cluster) -> None:
    cluster.deploy(replicas=2, probe={**PROBE, "path": "/health"})
    cluster.run(5)
    assert (cluster.deployment.revision, paths(cluster)) == (1, {"/health"})


def test_revisions_come_back_as_they_were_stored_and_as_earlier_versions_stored_them() -> None:
    probe = ProbeSpec.model_validate({**WRONG, "status": "200-204", "headers": {"a": "b"}})
    first = Revision(1, "abc", {"command": ["serve"]}, 1.0, "ada", probe=probe)
    last = Revision(2, "abd", {"command": V2}, 2.0, "ada", of=1)
    assert load_revisions(dump_revisions((first, last))) == (first, last)
    (old,) = load_revisions(
        '[{"number": 1, "digest": "a", "template": {}, "created_at": 1.0, "by": "a"}]'
    )
    assert old.probe is None
