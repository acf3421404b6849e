"""Hooks of session types run when sessions are queued, started and ended."""

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import task_index
from tests.control.strangers import BadgeHook, Hook
from tests.control.world import World

from muster.control.group.requests import GroupRequests
from muster.control.session.explaining.explanation import explain_session
from muster.core.ids import SessionId
from muster.core.specs import JobSpec, ScalingGroup, SessionSpec
from muster.core.states import JOB_TABLE, JobState, SessionStatus
from muster.store.records import Session
from muster.wire.messages import Start

pytestmark = pytest.mark.usefixtures("strangers")


class Kept:
    """The whole environment of each kernel that starts, as its agent makes it."""

    def __init__(self, seconds: float = 1.0) -> None:
        self.environments: list[dict[str, str]] = []
        self._seconds = seconds

    def __call__(self, start: Start) -> Run:
        self.environments.append({**start.template.env, **start.env})
        return Run(self._seconds)


WITH_SECRET = JobSpec(command=["x"], env={"SECRET": "s", "PLAIN": "p"}, tasks=3)


def test_hook_has_the_last_word_on_the_environment(group_world: MakeWorld) -> None:
    kept = Kept()
    world = group_world({"a": 8}, kept, hooks={"batch": "badge_hook"})
    job = world.submit(WITH_SECRET)
    gang = world.submit(WITH_SECRET.model_copy(update={"coscheduled": True}))
    world.run_until(lambda: {job.status, gang.status} <= JOB_TABLE.terminal)
    assert len(kept.environments) == 6
    for environment in kept.environments:
        assert environment["BADGE"] == "ses"
        assert environment["PLAIN"] == "p"
        assert "SECRET" not in environment
        assert environment["MUSTER_TASK_COUNT"] == "3"
    assert {env["RANK"] for env in kept.environments if "RANK" in env} == {"0", "1", "2"}


def test_environment_without_a_strangers_hook_is_that_of_the_spec(group_world: MakeWorld) -> None:
    kept = Kept()
    world = group_world({"a": 8}, kept)
    job = world.submit(WITH_SECRET)
    world.run_until(lambda: job.status in JOB_TABLE.terminal)
    assert [env["SECRET"] for env in kept.environments] == ["s"] * 3


def test_start_that_was_lost_is_sent_again_with_the_hooks_environment(
    group_world: MakeWorld,
) -> None:
    kept = Kept()
    world = group_world({"a": 1}, kept, hooks={"batch": "badge_hook"})
    agent = world.agent("a")
    agent.online = False  # it does not hear what is sent to it
    world.submit(WITH_SECRET.model_copy(update={"tasks": 1}))
    world.connect(agent)
    world.run(1)
    assert [env.get("BADGE") for env in kept.environments] == ["ses"]


def test_prefilled_kernel_starts_with_the_hooks_environment(group_world: MakeWorld) -> None:
    kept = Kept(0.05)
    world = group_world({"a": 1}, kept, hooks={"batch": "badge_hook"})
    job = world.submit(WITH_SECRET.model_copy(update={"tasks": 60}))
    ahead = 0
    while job.status in JOB_TABLE.live:
        world.run(0.05, 0.05)
        ahead = max(ahead, len(world.agent("a").queued))
    assert ahead, "some were prefilled"
    assert [env.get("BADGE") for env in kept.environments] == ["ses"] * 60


def test_hook_may_change_what_is_scheduled(group_world: MakeWorld) -> None:
    order: list[str] = []

    def behaviour(start: Start) -> Run:
        order.append(start.template.command[0])
        return Run(1)

    world = group_world({"a": 1}, behaviour, hooks={"inference": "badge_hook"})
    world.submit(JobSpec(command=["batch"], tasks=4, priority=90))
    spec = {"type": "inference", "kernels": [{"command": ["serve"]}], "priority": 10}
    world.submit_session(SessionSpec.model_validate(spec))
    world.run(3)
    assert order[:2] == ["batch", "serve"], "its priority became 99"


@pytest.mark.parametrize("exit_code", [0, 1])
def test_hook_is_told_of_each_end_once(
    group_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, exit_code: int
) -> None:
    monkeypatch.setattr(Hook, "ended", [])
    world = group_world(
        {"a": 2},
        lambda start: Run(1, exit_code=exit_code if task_index(start) == 1 else 0),
        hooks={"batch": "badge_hook"},
    )
    job = world.submit(JobSpec(command=["x"], tasks=3, max_task_failures=1))
    world.run_until(lambda: job.status in JOB_TABLE.terminal)
    world.run(5)
    assert sorted(succeeded for _, succeeded in BadgeHook.ended) == [exit_code == 0, True, True]
    assert len({session for session, _ in BadgeHook.ended}) == 3


@pytest.mark.parametrize("preemptible", [False, True])
def test_people_at_work_are_displaced_only_where_their_group_says_so(
    group_world: MakeWorld, preemptible: bool
) -> None:
    world = group_world(
        {"a": 1},
        lambda start: Run(1000),
        preemption={"minimum_lease": 0, "mode": "terminate"},
        options={"interactive": {"preemptible": preemptible}},
    )
    spec = {"type": "interactive", "kernels": [{"command": ["shell"], "grace": 0}], "priority": 1}
    shell = world.submit_session(SessionSpec.model_validate(spec))
    world.run(1)
    job = world.submit(JobSpec(command=["x"], priority=90))
    world.run(5)
    assert (job.status is JobState.RUNNING) == preemptible
    assert (shell.status is SessionStatus.TERMINATED) == preemptible


def test_hook_of_another_group_has_no_say(group_world: MakeWorld) -> None:
    kept = Kept()
    world = group_world({"a": 8}, kept)
    other = ScalingGroup.model_validate({"name": "other", "hooks": {"batch": "badge_hook"}})
    world.ask(lambda work, parts: parts[GroupRequests].put_group(work, other))
    job = world.submit(WITH_SECRET)
    world.run_until(lambda: job.status in JOB_TABLE.terminal)
    assert all("BADGE" not in environment for environment in kept.environments)


def session(world: World, type_: str = "inference", **more: object) -> Session:
    """A session that asks for a whole agent."""
    kernel = {"command": ["x"], "grace": 0, "resources": {"cpu": 1}}
    return world.submit_session(
        SessionSpec.model_validate({"type": type_, "kernels": [kernel], **more})
    )


def queued(world: World) -> dict[SessionId, int]:
    """The priority of each session that waits."""
    return {each.id: each.workload.priority for each in world.cluster.groups["default"].queue}


def test_hook_is_asked_once_of_each_session_and_its_answer_stays(group_world: MakeWorld) -> None:
    options = {"fickle_hook": {"answers": 2}}
    world = group_world(
        {"a": 1}, lambda start: Run(5), hooks={"inference": "fickle_hook"}, options=options
    )
    first, second = session(world), session(world)
    cluster, now = world.cluster, world.clock.now
    assert queued(world) == {second.id: 2}
    for _ in range(3):
        assert explain_session(world.plane.live, cluster, second.id, now()).reasons
        world.run(1)
    running = cluster.groups["default"].context(now()).running
    assert running[first.id].workload.priority == 1
    world.run(4)
    running = cluster.groups["default"].context(now()).running
    assert (list(running), running[second.id].workload.priority) == ([second.id], 2)
    world.run(10)
    assert not cluster.groups["default"].policy.refused, "it was asked no third time"


def test_hook_of_another_policy_is_asked_of_what_waits(group_world: MakeWorld) -> None:
    world = group_world({"a": 1}, lambda start: Run(50))
    session(world)
    world.submit(JobSpec(command=["x"], tasks=2, priority=60))
    waiting = [session(world, "batch", priority=priority).id for priority in (20, 40)]

    def use(**policy: object) -> list[int]:
        spec = ScalingGroup.model_validate({"name": "default", **policy})
        world.ask(lambda work, parts: parts[GroupRequests].put_group(work, spec))
        return sorted(queued(world).values())

    assert use() == [20, 40, 60, 60]
    assert use(hooks={"batch": "badge_hook"}) == [99] * 4
    assert use(hooks={"batch": "raising_hook"}) == [20, 40, 60, 60], "without the one that fails"
    answers = {"fickle_hook": {"answers": 3}}
    assert use(hooks={"batch": "fickle_hook"}, options=answers) == [1, 1, 2, 3], "jobs share it"
    answers = {"fickle_hook": {"answers": 2}}
    assert use(hooks={"batch": "fickle_hook"}, options=answers) == [20, 40, 60, 60]
    assert set(waiting) < set(queued(world))


def test_session_of_which_remains_are_cleaned_up_waits_as_the_hooks_of_then_want_it(
    group_world: MakeWorld,
) -> None:
    policy: dict[str, object] = {"preemption": {"minimum_lease": 0}}
    world = group_world({"a": 1}, lambda start: Run(50), **policy)
    agent = world.agent("a")
    agent.online = False  # it does not hear what is sent to it
    job = world.submit(JobSpec(command=["x"], priority=10, ports=1))  # it waits to be prepared
    session(world, priority=90)
    ((cleaning, remains),) = world.cluster.groups["default"].aside.items()
    assert (world.plane.live.sessions[cleaning].job, remains.workload.priority) == (job, 10)
    badges = {"name": "default", "hooks": {"batch": "badge_hook"}, **policy}
    spec = ScalingGroup.model_validate(badges)
    world.ask(lambda work, parts: parts[GroupRequests].put_group(work, spec))
    world.connect(agent)
    assert job.status is JobState.RUNNING, "its priority became 99"


def test_hook_that_changes_what_kernels_ask_for_is_refused(group_world: MakeWorld) -> None:
    world = group_world({"a": 4}, lambda start: Run(1), hooks={"batch": "growing_hook"})
    world.submit(JobSpec(command=["x"]))
    group = world.cluster.groups["default"]
    assert [fault.name for fault in group.policy.refused] == ["growing_hook"]
    world.run(5)
    columns = group.snapshot.columns
    assert columns.free.tolist() == columns.capacity.tolist()


def replica(world: World) -> Session:
    kernel = {"command": ["serve"], "ports": 2}
    return world.submit_session(
        SessionSpec.model_validate({"type": "inference", "kernels": [kernel]})
    )


@pytest.mark.parametrize("hook", ["inference", "badge_hook"])
def test_hook_of_ones_own_adds_to_what_a_type_needs(group_world: MakeWorld, hook: str) -> None:
    kept = Kept()
    world = group_world({"a": 8}, kept, hooks={"inference": hook})
    replica(world)
    world.run(5)
    (environment,) = kept.environments
    assert environment["PORT"] == environment["MUSTER_PORTS"].split(",")[0]
    assert ("BADGE" in environment) == (hook == "badge_hook")


@pytest.mark.parametrize(
    ("hooks", "goes_on"),
    [({}, False), ({"interactive": "badge_hook"}, False), ({"interactive": "batch"}, True)],
)
def test_session_ends_with_its_first_kernel_where_the_hook_of_its_type_says_so(
    group_world: MakeWorld, hooks: dict[str, str], goes_on: bool
) -> None:
    def behaviour(start: Start) -> Run:
        return Run(1 if start.template.command[0] == "short" else 100)

    world = group_world({"a": 2}, behaviour, hooks=hooks)
    kernels = [{"command": [each], "grace": 0} for each in ("short", "long")]
    shell = world.submit_session(
        SessionSpec.model_validate({"type": "interactive", "kernels": kernels})
    )
    world.run(20)
    assert (shell.status is SessionStatus.RUNNING) == goes_on
