"""A spot notice, from EC2's answer to the slice that is drained for it and the one that follows."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from proving.hollow.supervisor import Run
from tests.control.pool_scenarios import job
from tests.control.world import World
from tests.providers.aws_cloud import Fault, made_by, new_scope, pool_spec, serving
from tests.providers.conformance import SETUP
from tests.providers.test_aws_machines import SPOT_REQUEST, SPOT_REQUESTS

from muster.control.pool.records import Slice
from muster.core.reasons import ReasonCode
from muster.core.states import JobState
from muster.providers.provider import SliceOrder


def why(slice_: Slice) -> ReasonCode | None:
    """The reason for which a slice is to go."""
    return None if slice_.doomed is None else slice_.doomed.code


def test_a_notice_drains_its_slice_and_has_another_made_in_the_same_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as cloud:
        scope = new_scope()
        provider = made_by(cloud, scope, preemptible=True)
        world = World(tmp_path, {})
        world.behaviour = lambda start: Run(400.0)
        world.apply(pool_spec(cloud, preemptible=True))
        running = world.submit(job("one"))
        world.run_until(lambda: running.status is JobState.RUNNING)
        (first,) = world.slices()
        order = SliceOrder(first.id, first.names, first.spec.machine, True, {}, SETUP)
        (instance,) = provider.create(order)
        monkeypatch.setattr(world.farm, "list", lambda name: provider.list())
        world.run(40)
        assert world.slices() == [first]
        assert why(first) is None, "nothing was announced"

        item = SPOT_REQUEST.format(id=instance.id, code="marked-for-termination")
        now = datetime.fromtimestamp(world.clock.now(), UTC)
        item = item.replace("2026-11-23T12:00:00.000Z", now.strftime("%Y-%m-%dT%H:%M:%S.000Z"))
        answer = Fault(200, SPOT_REQUESTS.format(items=item).encode())
        cloud.faults["DescribeSpotInstanceRequests"] = [answer] * 3
        world.run_until(lambda: why(first) is ReasonCode.SLICE_TAKEN_AWAY, 15)

        assert world.clock.now() <= now.timestamp() + 15, "it is read every ten seconds"
        moment = world.clock.now()
        world.run_until(lambda: len(world.slices()) == 2, 1)
        assert world.clock.now() <= moment + 1
        world.close()
