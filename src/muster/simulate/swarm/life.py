"""What users and operators do, and how time passes."""

import random
from typing import Any

from muster.control.agent.requests import AgentRequests
from muster.control.group.requests import GroupRequests
from muster.control.job.requests import JobRequests
from muster.control.session.requests import SessionRequests
from muster.core.specs import JobSpec, Level, QuotaSpec, ScalingGroup, SessionSpec
from muster.core.states import AgentBar
from muster.simulate.swarm.chance import CHANCE
from muster.simulate.swarm.scene import ADMIN, USERS, Scene
from muster.simulate.swarm.steps import Kinds, Lot, Params
from muster.store.records import Job, Session

LIFE = Kinds()


def _nothing(lot: Lot) -> Params:
    return {}


@LIFE.add(30, lambda lot: {"seconds": lot.rng.choice([0.05, 0.2, 1, 3, 10])})
def wait(scene: Scene, seconds: float) -> None:
    scene.world.run(seconds)


def _draw_job(lot: Lot) -> Params:
    rng, number = lot.rng, lot.submissions
    kind = rng.choice(["one", "one", "many", "gang", "gang", "after"])
    spec: dict[str, Any] = {
        "command": ["x"],
        "priority": rng.choice([10, 50, 50, 90]),
        "grace": rng.choice([0.5, 5]),
        "max_retries_failure": rng.choice([0, 2]),
        "max_retries_preemption": rng.choice([1, 100]),
        "timeout": rng.choice([None, None, 3, 60]),
        "resources": {"cpu": rng.choice([1, 1, 2, 4])},
        "notify": rng.choice([[], [], [], ["https://example.org/hook"]]),
    }
    if kind == "gang":
        spec |= {
            "tasks": rng.choice([2, 3, 5]),
            "coscheduled": True,
            "resources": {"cpu": rng.choice([1, 2])},
        }
    elif kind == "many":
        spec |= {"tasks": rng.choice([3, 12]), "keep_going": rng.random() < 0.5}
    if kind == "after":
        condition = rng.choice(["ended", "running", "succeeded"])
        more: Params = {"user": 0, "after": lot.a_submission(), "condition": condition}
    else:
        more = {"user": rng.choice([0, 0, 1])}
    lot.submissions += 1
    return {"number": number, "spec": spec, **more}


@LIFE.add(20, _draw_job)
def submit(
    scene: Scene,
    number: int,
    spec: dict[str, Any],
    user: int,
    after: int | None = None,
    condition: str = "",
) -> None:
    whole = {"name": f"job-{number}", "env": {CHANCE: str(number)}, **spec}
    if after is not None and (on := scene.work(after)) is not None:
        whole["after"] = [{"on": on.id, "condition": condition}]
    scene.submit(number, JobSpec.model_validate(whole), USERS[user % len(USERS)])


def _draw_session(lot: Lot) -> Params:
    rng, number = lot.rng, lot.submissions
    kernel = {
        "command": ["x"],
        "replicas": rng.choice([1, 1, 3]),
        "grace": rng.choice([0.5, 5]),
        "resources": {"cpu": rng.choice([1, 2, 4])},
    }
    spec = {
        "kernels": [kernel],
        "priority": rng.choice([10, 50, 90]),
        "timeout": rng.choice([None, 3, 60]),
        "scheduling_timeout": rng.choice([None, None, 30]),
        "notify": rng.choice([[], ["https://example.org/hook"]]),
    }
    lot.submissions += 1
    return {"number": number, "spec": spec, "user": rng.choice([0, 0, 1])}


@LIFE.add(4, _draw_session)
def session(scene: Scene, number: int, spec: dict[str, Any], user: int) -> None:
    """A session of its own, without a job."""
    kernels = [{"env": {CHANCE: str(number)}, **each} for each in spec["kernels"]]
    whole = {"name": f"session-{number}", **spec, "kernels": kernels}
    scene.submit(number, SessionSpec.model_validate(whole), USERS[user % len(USERS)])


@LIFE.add(4, lambda lot: {"submission": lot.a_submission()})
def cancel(scene: Scene, submission: int) -> None:
    match scene.work(submission):
        case Job(id=job):
            scene.ask(lambda work, parts: parts[JobRequests].cancel(work, ADMIN, job))
        case Session(id=session):
            scene.ask(lambda work, parts: parts[SessionRequests].cancel(work, ADMIN, session))


def _draw_bar(lot: Lot) -> Params:
    rng = lot.rng
    bar = rng.choice([*AgentBar]).value
    return {"agent": rng.randrange(10), "bar": bar, "leave_s": rng.choice([None, 0, 2])}


@LIFE.add(2, _draw_bar)
def bar(scene: Scene, agent: int, bar: str, leave_s: float | None) -> None:
    identity = scene.agent(agent).identity
    if identity is not None:
        kind = AgentBar(bar)
        scene.ask(
            lambda work, parts: parts[AgentRequests].bar(
                work, ADMIN, identity.id, kind, "upkeep", leave_s
            )
        )


@LIFE.add(4, _nothing)
def unbar(scene: Scene) -> None:
    scene.unbar_all()


def draw_group(rng: random.Random) -> dict[str, Any]:
    """The policy of a group."""
    return {
        "name": "default",
        "queue": rng.choice(["strict", "backfill", "best_effort"]),
        "kernel_lease": rng.choice([None, 5, 20, 60]),
        "agent_silence": rng.choice([2, 5, 15]),
        "create_timeout": rng.choice([5, 30, 120]),
        "terminate_timeout": rng.choice([5, 60]),
        "preemption": rng.choice(
            [None, {"minimum_lease": 0}, {"minimum_lease": 1, "mode": "terminate"}]
        ),
        "backlog_window": rng.choice([0, 0.25, 5.0]),
        "retry_backoff": 0.5,
        "max_reschedules": rng.choice([0, 10, 100]),
        "starvation_after": rng.choice([1, 300]),
    }


@LIFE.add(2, lambda lot: {"policy": draw_group(lot.rng)})
def group(scene: Scene, policy: dict[str, Any]) -> None:
    spec = ScalingGroup.model_validate(policy)
    scene.ask(lambda work, parts: parts[GroupRequests].put_group(work, spec))


def _draw_quota(lot: Lot) -> Params:
    return {"sessions": lot.rng.choice([None, 1, 3])}


@LIFE.add(1, _draw_quota)
def quota(scene: Scene, sessions: int | None) -> None:
    name = str(USERS[0].owner)
    if sessions is None:
        scene.ask(lambda work, parts: parts[GroupRequests].remove_quota(work, Level.USER, name))
        return
    spec = QuotaSpec.model_validate({"level": "user", "name": name, "sessions": sessions})
    scene.ask(lambda work, parts: parts[GroupRequests].put_quota(work, spec))
