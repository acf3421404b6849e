"""Many new replicas at once: each wake hands in some of their sessions."""

from itertools import pairwise

import pytest
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster

from muster.control.deployment import route_handlers


def test_wake_hands_in_a_part_of_new_replicas_and_the_next_ones_the_rest(
    worlds: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route_handlers, "HANDED_IN_A_WAKE", 2)
    cluster = Cluster(worlds, agents=2)
    live, wake = cluster.world.plane.live, cluster.world.plane.step
    counts = [0]

    def counted() -> float | None:
        due = wake()
        counts.append(len(live.sessions))
        return due

    monkeypatch.setattr(cluster.world.plane, "step", counted)
    cluster.deploy(replicas=5, resources={"cpu": 1}, drain=0)
    cluster.run(20)
    assert max(after - before for before, after in pairwise(counts)) == 2
    assert cluster.serving() == [1] * 5
