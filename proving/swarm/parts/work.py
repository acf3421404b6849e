"""Users: they hand work in, give it another priority, cancel it, run it again, and wait."""

from typing import Any

from muster.core.specs import DependencyCondition
from proving.swarm.chance import ToldRun, behaviour
from proving.swarm.invariants.attempts import (
    Barrier,
    Capacity,
    NoAttemptTwice,
    OneLiveAttempt,
    Pauses,
)
from proving.swarm.invariants.dependencies import DependenciesAreMet, StartTimesAreKept
from proving.swarm.invariants.history import (
    CountsAreKept,
    HistoryTellsAll,
    RepeatsMerge,
)
from proving.swarm.invariants.jobs import EndsAreWhole
from proving.swarm.invariants.limits import (
    DrainsEnd,
    GraceIsGranted,
    TimeLimitsHold,
    WaitsEnd,
)
from proving.swarm.invariants.placing import (
    AgentsTakeWork,
    NobodyIsForgotten,
    QuotasHold,
    RoomIsKept,
    StrictOrder,
)
from proving.swarm.invariants.requests import AcceptedOnce, AnsweredByRole
from proving.swarm.invariants.rest import RoomReturns, WorkEnds
from proving.swarm.invariants.state import (
    EndsStay,
    MirrorIsAsSql,
    PlacementKnowsPriorities,
    PlacementKnowsTheLedger,
)
from proving.swarm.invariants.tries import TriesAreCharged
from proving.swarm.oracle.dates import EndsAreDated
from proving.swarm.oracle.explained import RefusalsHold, WhyIsAnswered
from proving.swarm.oracle.judgement import JobsAreDerived, TasksAreJudged
from proving.swarm.oracle.retries import RetriesArePutOff
from proving.swarm.oracle.sessions import SessionsEndForCause, TasksEndWithTheirCode
from proving.swarm.oracle.starts import StartsAreCharged
from proving.swarm.part import Part
from proving.swarm.scene import ADMIN, USERS, VIEWER, Scene, User
from proving.swarm.steps import Count, Kinds, Lot, Params, Seconds

KINDS = Kinds()

STOPS_EVERY = 4
"""In one of so many seeds single tasks are stopped."""
_FORCED = 0.25
"""So many of the requests to cancel are with force."""
SOMEBODY = (*USERS, VIEWER, ADMIN)


def _draw_user(lot: Lot) -> int:
    """The number of a user: mostly the first one, at times one without the right to act."""
    return lot.rng.choices(range(3), [12, 6, 1])[0]


@KINDS.add(30, lambda lot: {"seconds": lot.rng.choice([0.05, 0.2, 1, 3, 10])})
def wait(scene: Scene, seconds: Seconds) -> None:
    """Time passes."""
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
        "scheduling_timeout": rng.choice([None, None, None, 30]),
        "resources": {"cpu": rng.choice([1, 1, 2, 4]), **lot.devices(2), **lot.memory()},
        "notify": rng.choice([[], [], [], ["https://example.org/hook"]]),
    }
    if spec["timeout"] is not None:
        spec |= {
            "on_timeout": lot.topic("time limits").choice(["kill", "retry"]),
            "max_retries_timeout": lot.topic("time limits").choice([0, 1, 2]),
        }
    spec["retry_backoff"] = lot.topic("retries").choice([None, None, 0, 0.5, 20])
    begins_in = lot.topic("start times").choice([None, None, None, None, 3, 15, 40])
    if kind == "gang":
        spec |= {
            "tasks": rng.choice([2, 3, 5]),
            "coscheduled": True,
            "resources": {"cpu": rng.choice([1, 2]), **lot.devices(1), **lot.memory(24)},
            "leader": lot.topic("leaders").choice([None, None, 0, 1]),
        }
    elif kind == "many":
        spec |= {
            "tasks": rng.choice([3, 12]),
            "keep_going": rng.random() < 0.5,
            "max_task_failures": rng.choice([0, 0, 1]),
        }
    more: dict[str, Any] = {"user": _draw_user(lot)}
    if kind == "after":
        condition = rng.choice(["ended", "running", "succeeded"])
        more = {"user": 0, "after": lot.a_submission(), "condition": condition}
    if begins_in is not None:
        more["begins_in"] = begins_in
    lot.submissions += 1
    return {"number": number, "spec": spec, **more}


@KINDS.add(20, _draw_job)
def submit(
    scene: Scene,
    number: int,
    spec: dict[str, Any],
    user: int,
    after: int | None = None,
    condition: DependencyCondition = DependencyCondition.ENDED,
    runs: ToldRun | None = None,
    begins_in: Seconds | None = None,
) -> None:
    """A user hands in a job, whose number later steps name; ``after`` is the number of another, and
    ``begins_in`` the time until it may begin. Its kernels run by chance, unless ``runs`` says
    how."""
    whole = {"env": behaviour(number, runs), **spec}
    if begins_in is not None:
        whole["not_before"] = scene.world.clock.now() + begins_in
    if after is not None and (on := scene.work(after)) is not None:
        whole["after"] = [{"on": on.id, "condition": condition}]
    scene.submit(number, "/v1/jobs", whole, _user(user))


def _draw_session(lot: Lot) -> Params:
    rng, number = lot.rng, lot.submissions
    kernel = {
        "command": ["x"],
        "replicas": rng.choice([1, 1, 3]),
        "grace": rng.choice([0.5, 5]),
        "resources": {"cpu": rng.choice([1, 2, 4]), **lot.devices(1), **lot.memory()},
    }
    spec = {
        "kernels": [kernel],
        "type": rng.choice(["batch", "batch", "interactive"]),
        "priority": rng.choice([10, 50, 90]),
        "timeout": rng.choice([None, 3, 60]),
        "scheduling_timeout": rng.choice([None, None, 30]),
        "notify": rng.choice([[], ["https://example.org/hook"]]),
    }
    lot.submissions += 1
    return {"number": number, "spec": spec, "user": _draw_user(lot)}


@KINDS.add(4, _draw_session)
def session(
    scene: Scene, number: int, spec: dict[str, Any], user: int, runs: ToldRun | None = None
) -> None:
    """A session of its own, without a job; see ``submit`` for ``runs``."""
    kernels = [{"env": behaviour(number, runs), **each} for each in spec["kernels"]]
    scene.submit(number, "/v1/sessions", {**spec, "kernels": kernels}, _user(user))


def _draw_cancel(lot: Lot) -> Params:
    drawn = {"submission": lot.a_submission(), "user": lot.rng.choice([0, 0, 1, 2, 3])}
    is_forced = lot.topic("force").random() < _FORCED
    return {**drawn, "force": True} if is_forced else drawn


@KINDS.add(5, _draw_cancel)
def cancel(scene: Scene, submission: int, user: int = 3, force: bool = False) -> None:
    """A user asks to cancel work, perhaps that of another user; with ``force`` its processes are to
    be killed at once."""
    work, by = scene.work(submission), _user(user)
    if work is None:
        return
    assert work.id is not None
    if by is ADMIN or by is work.user:
        scene.cancelled.add(work.id)
        if force:
            scene.forced.add(work.id)
    query = "?force=true" if force else ""
    scene.ask(by, "POST", f"{work.path}/{work.id}/cancel{query}")


def _draw_stopped_task(lot: Lot) -> Params:
    rng = lot.rng
    recent = max(0, lot.submissions - rng.randint(1, 5))
    return {"submission": recent, "index": rng.choice([0, 1, 1, 2, 5]), "user": 0}


@KINDS.add(4, _draw_stopped_task, every=STOPS_EVERY, apart=True)
def stop_task(scene: Scene, submission: int, index: Count, user: int = 0) -> None:
    """A user stops one task of a job, perhaps of another user's, whose other tasks go on."""
    work, by = scene.work(submission), _user(user)
    if work is None or work.path != "/v1/jobs":
        return
    assert work.id is not None
    if by is ADMIN or by is work.user:
        stopped = scene.stopped[work.id]
        stopped.add(index)
        if stopped.issuperset(range(work.spec.get("tasks", 1))):
            scene.cancelled.add(work.id)
    scene.ask(by, "POST", f"{work.path}/{work.id}/tasks/{index}/cancel")


def _draw_thinned_sweep(lot: Lot) -> Params:
    rng = lot.rng
    tasks = rng.choice([2, 4, 12])
    spec = {
        "command": ["x"],
        "tasks": tasks,
        "grace": rng.choice([0.5, 5]),
        "keep_going": rng.random() < 0.5,
        "max_retries_failure": rng.choice([0, 2]),
        "max_task_failures": rng.choice([0, 12]),
        "resources": {"cpu": rng.choice([1, 1, 4])},
    }
    stopped = rng.sample(range(tasks), rng.choice([1, 1, 2]))
    return {
        "number": rng.randrange(1000, 10**9),
        "spec": spec,
        "stopped": stopped,
        "after": rng.choice([0.05, 1, 3]),
    }


@KINDS.add(6, _draw_thinned_sweep, every=STOPS_EVERY, apart=True)
def thin_sweep(
    scene: Scene, number: int, spec: dict[str, Any], stopped: list[Count], after: Seconds
) -> None:
    """A user hands in a sweep, and some time later stops these tasks of it."""
    scene.submit(number, "/v1/jobs", {"env": behaviour(number), **spec}, USERS[0])
    scene.world.run(after)
    for index in stopped:
        stop_task(scene, number, index)


def _draw_priority(lot: Lot) -> Params:
    rng = lot.rng
    recent = max(0, lot.submissions - rng.randint(1, 5))  # most of it has not ended
    priority = rng.choice([10, 30, 50, 70, 90])
    return {"submission": recent, "priority": priority, "user": rng.choice([0, 0, 3, 3, 1, 2])}


@KINDS.add(12, _draw_priority, every=6)
def reprioritise(scene: Scene, submission: int, priority: int, user: int = 3) -> None:
    """A user asks for another priority of work, perhaps that of another user."""
    work = scene.work(submission)
    if work is not None:
        path = f"{work.path}/{work.id}/reprioritise"
        scene.ask(_user(user), "POST", path, {"priority": priority})


@KINDS.add(2, lambda lot: {"number": lot.submissions, "submission": lot.a_submission()})
def retry(scene: Scene, number: int, submission: int) -> None:
    """The owner has tasks of an ended job run again."""
    work = scene.work(submission)
    if work is not None and work.path == "/v1/jobs":
        path = f"/v1/jobs/{work.id}/retry"
        scene.ask(work.user, "POST", path, {"failed": False}, key=f"retry-{number}")


def _user(number: int) -> User:
    return SOMEBODY[number % len(SOMEBODY)]


WORK = Part(
    KINDS,
    [
        OneLiveAttempt,
        NoAttemptTwice,
        Barrier,
        Capacity,
        EndsStay,
        Pauses,
        MirrorIsAsSql,
        PlacementKnowsTheLedger,
        PlacementKnowsPriorities,
        StrictOrder,
        RoomIsKept,
        AgentsTakeWork,
        NobodyIsForgotten,
        QuotasHold,
        DependenciesAreMet,
        StartTimesAreKept,
        TimeLimitsHold,
        WaitsEnd,
        DrainsEnd,
        GraceIsGranted,
        HistoryTellsAll,
        RepeatsMerge,
        CountsAreKept,
        TriesAreCharged,
        EndsAreWhole,
        TasksAreJudged,
        JobsAreDerived,
        SessionsEndForCause,
        TasksEndWithTheirCode,
        StartsAreCharged,
        RetriesArePutOff,
        EndsAreDated,
        RefusalsHold,
        WhyIsAnswered,
        AcceptedOnce,
        AnsweredByRole,
        WorkEnds,
        RoomReturns,
    ],
    place=3,
)
