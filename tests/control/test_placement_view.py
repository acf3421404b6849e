"""The placement that `why` tells: typed, the same over the wire, nothing of the work of others."""

import json

import msgspec
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.world import ADA, BOB

from muster.control.job.explanation import explain_job
from muster.core.specs import JobSpec
from muster.core.views.placement import WhyView


def test_room_that_is_kept_is_told_by_agent_and_without_the_work_of_others(
    group_world: MakeWorld,
) -> None:
    world = group_world({"a": 4, "b": 4}, lambda start: Run(100))
    theirs = {"name": "theirs", "command": ["x"], "resources": {"cpu": 3}, "timeout": "100s"}
    world.submit(JobSpec.model_validate(theirs), BOB)
    world.submit(JobSpec.model_validate(theirs | {"name": "mine"}), ADA)
    world.run(10)
    waiting = {"name": "waiting", "command": ["x"], "resources": {"cpu": 4}, "tasks": 2}
    job = world.submit(JobSpec.model_validate(waiting | {"coscheduled": True}), ADA)
    world.run(1)
    found = explain_job(world.plane.live, world.cluster, job.id, world.clock.now(), ADA)

    sent = msgspec.json.encode(found)
    assert msgspec.json.decode(sent, type=WhyView) == found
    told = json.loads(sent)["placement"]
    assert (told["position"], told["queue"], told["starts"]) == (1, 1, False)
    assert told["reasons"] == json.loads(sent)["reasons"], "a reason has one shape"
    kept = told["reservation"]
    assert {each["agent"] for each in kept["kernels"]} == {"a", "b"}
    assert {each["agent"] for each in kept["holds"]} == {"a", "b"}
    assert (kept["waits_for"], kept["waits_for_some"]) == (2, ["mine"])
    assert told["sentence"].startswith("Place 1 of 1 in the queue of group default; ")
    assert kept["sentence"].startswith("It starts in 1m")
    (request,) = told["requests"]
    assert request["sentence"].startswith("2 agents looked at for 2 kernels asking for 4 cpu each")
    assert (request["request"]["cpu"], request["asks"], request["kernels"]) == (4000, "4 cpu", 2)
    assert b"theirs" not in sent
    assert b"bob" not in sent
