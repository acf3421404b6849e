"""Agents that say that they cannot run a session: it goes elsewhere, or ends with their word."""

from collections import Counter

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.world import ADA, World

from muster.control.agent.requests import AgentRequests
from muster.control.session.explaining.explanation import explain_session
from muster.control.session.handlers import schedule
from muster.core.ids import AgentId
from muster.core.reasons import Reason, ReasonCode
from muster.core.specs import JobSpec
from muster.core.states import AgentBar, JobState
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.passes.placement import never_fits
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.guard import PluginFault
from muster.scheduling.workload import WorkloadClass
from muster.wire.messages import Start

MISSING = Run(create_failure=ReasonCode.WORKDIR_MISSING)
SPEC = JobSpec.model_validate({"command": ["x"], "workdir": "/data"})


class Tried(Counter[str]):
    """How often each agent of a world was asked to start something, and what came of it."""

    def answers(self, world: World, **runs: Run) -> None:
        for name, run in runs.items():

            def start(_: Start, name: str = name, run: Run = run) -> Run:
                self[name] += 1
                return run

            world.agent(name).behaviour = start


@pytest.mark.parametrize("code", [ReasonCode.WORKDIR_MISSING, ReasonCode.NO_ACCOUNT])
def test_work_that_no_agent_can_run_is_tried_once_on_each_and_ends_with_what_they_said(
    code: ReasonCode, group_world: MakeWorld
) -> None:
    world, tried = group_world({"a": 1, "b": 1, "c": 1}), Tried()
    cannot = Run(create_failure=code)
    tried.answers(world, a=cannot, b=cannot, c=cannot)
    job = world.submit(SPEC)
    world.run(30)
    assert tried == {"a": 1, "b": 1, "c": 1}
    assert job.status is JobState.UNSCHEDULABLE
    assert job.reason is not None
    assert job.reason.code is ReasonCode.NO_AGENT_ABLE
    assert "agent c" in job.reason.sentence()


def test_work_waits_for_the_agent_that_has_not_said_that_it_cannot(
    group_world: MakeWorld,
) -> None:
    world, tried = group_world({"a": 1, "b": 1}), Tried()
    tried.answers(world, a=MISSING, b=Run(60))
    world.submit(JobSpec.model_validate({"command": ["y"], "placement": {"agents": ["b"]}}))
    job = world.submit(SPEC)
    world.run(30)
    assert tried == {"a": 1, "b": 1}
    (waiting,) = (each for each in world.plane.live.sessions.values() if each.job is job)
    found = explain_session(world.plane.live, world.cluster, waiting.id, world.clock.now())
    assert found.placement is not None
    groups = found.placement.requests[0].groups
    lacks = {group.nearest: [why.code for why in group.shortfalls] for group in groups}
    assert lacks == {"a": ["AGENT_UNFIT"], "b": ["LACKS_FREE"]}
    world.run(45)
    assert (job.status, tried) == (JobState.RUNNING, {"a": 1, "b": 2})


def test_work_waits_for_a_cordoned_agent_that_may_be_able(group_world: MakeWorld) -> None:
    world, tried = group_world({"a": 1, "b": 1}), Tried()
    tried.answers(world, a=MISSING, b=Run(5))
    cordoned = AgentId(world.agent("b").id)

    def bar(how: AgentBar | None) -> None:
        world.ask(lambda work, parts: parts[AgentRequests].bar(work, ADA, cordoned, how))

    bar(AgentBar.CORDONED)
    job = world.submit(SPEC)
    world.run(10)
    assert tried == {"a": 1}
    bar(None)
    world.run(20)
    assert (job.status, tried) == (JobState.SUCCEEDED, {"a": 1, "b": 1})


def test_selector_that_fails_while_it_is_asked_whether_work_could_ever_fit_is_replaced(
    group_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[WorkloadClass] = []

    def fails_once(workload: WorkloadClass, snapshot: Snapshot, policy: Policy) -> Reason | None:
        asked.append(workload)
        if len(asked) == 1:
            raise PluginFault("selector", "concentrated", "raised ZeroDivisionError")
        return never_fits(workload, snapshot, policy)

    monkeypatch.setattr(schedule, "never_fits", fails_once)
    world, tried = group_world({"a": 1}), Tried()
    tried.answers(world, a=MISSING)
    job = world.submit(SPEC)
    world.run(30)
    assert job.status is JobState.UNSCHEDULABLE
    assert len(asked) == 2
    (fault,) = world.cluster.groups["default"].policy.refused
    assert fault.name == "concentrated"
