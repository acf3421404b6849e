"""The state of the cluster agrees with the ledger at any time."""

from collections import Counter
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from proving.hollow.supervisor import Run
from tests.control.conftest import cpus
from tests.control.world import ADA, World

from muster.control.agent.requests import AgentRequests
from muster.control.group.requests import GroupRequests
from muster.control.job.requests import JobRequests
from muster.core.errors import MusterError
from muster.core.ids import AgentId, KernelId
from muster.core.owner import Owner, Principal, Role
from muster.core.specs import JobSpec, Level, QuotaSpec, ScalingGroup, SessionSpec
from muster.core.states import AgentBar, SessionStatus
from muster.scheduling.accounting.usage import Scope, scopes
from muster.store.records import Session

OWNERS = (ADA, Principal(Owner("default", "lab", "bob"), Role.USER))
AGENTS = ("a", "b", "c")

owners = st.sampled_from(OWNERS)
priorities = st.sampled_from([10, 50, 80])
agents = st.sampled_from(AGENTS)
events = st.one_of(
    st.tuples(st.just("job"), owners, priorities, st.integers(1, 6), st.booleans()),
    st.tuples(st.just("session"), owners, priorities, st.integers(1, 2)),
    st.tuples(st.just("time"), st.sampled_from([0.25, 1.0, 4.0, 20.0])),
    st.tuples(st.just("crash")),
    st.tuples(st.just("bar"), agents, st.sampled_from([None, *AgentBar])),
    st.tuples(st.just("silence"), agents),
    st.tuples(st.just("hello"), agents),
    st.tuples(st.just("reboot"), agents),
    st.tuples(st.just("quota"), owners, st.sampled_from([None, 1, 3])),
    st.tuples(st.just("cancel")),
)
groups = st.sampled_from(
    [
        {"queue": "backfill", "starvation_after": 5},
        {"queue": "strict", "preemption": {"minimum_lease": 0}},
        {"queue": "best_effort", "preemption": {"minimum_lease": 2, "mode": "terminate"}},
        {"queue": "backfill", "sequencer": "fair_share", "preemption": {"minimum_lease": 1}},
    ]
)


class History:
    """Applies events to a world."""

    def __init__(self, world: World) -> None:
        self.world = world

    def apply(self, event: tuple[object, ...]) -> None:
        kind, *arguments = event
        with suppress(MusterError):  # refused: it changes nothing, which is looked at next
            getattr(self, f"_{kind}")(*arguments)

    def _job(self, who: Principal, priority: int, tasks: int, gang: bool) -> None:
        spec = JobSpec(
            command=["x"], tasks=tasks, coscheduled=gang, priority=priority, timeout=30, grace=1
        )
        self.world.submit(spec, who)

    def _session(self, who: Principal, priority: int, cpu: int) -> None:
        kernels = [{"command": ["y"], "resources": {"cpu": cpu}, "grace": 1}, {"command": ["z"]}]
        spec = SessionSpec.model_validate({"kernels": kernels, "priority": priority})
        self.world.submit_session(spec, who)

    def _time(self, seconds: float) -> None:
        self.world.run(seconds, min(seconds, 2.0))

    def _crash(self) -> None:
        self.world.restart_controller()

    def _bar(self, name: str, how: AgentBar | None) -> None:
        id_ = AgentId(self.world.agent(name).id)
        self.world.ask(lambda work, parts: parts[AgentRequests].bar(work, ADA, id_, how))

    def _silence(self, name: str) -> None:
        agent = self.world.agent(name)
        self.world.disconnect(agent)
        self.world.settle()

    def _hello(self, name: str) -> None:
        self.world.connect(self.world.agent(name))

    def _reboot(self, name: str) -> None:
        self.world.agent(name).reboot()
        self.world.connect(self.world.agent(name))

    def _quota(self, who: Principal, cpu: int | None) -> None:
        limits = {} if cpu is None else {"limits": {"cpu": cpu}}
        name = str(who.owner)
        spec = QuotaSpec.model_validate({"level": Level.USER, "name": name, **limits})
        self.world.ask(lambda work, parts: parts[GroupRequests].put_quota(work, spec))

    def _cancel(self) -> None:
        job = next(iter(self.world.plane.live.jobs.values()), None)
        if job is not None:
            who = Principal(job.owner, Role.USER)
            self.world.ask(lambda work, parts: parts[JobRequests].cancel(work, who, job.id))


def check(world: World) -> None:
    """The state of the cluster against the ledger and the sessions."""
    live, cluster = world.plane.live, world.cluster
    group = cluster.groups["default"]
    pending = {s.id for s in live.sessions.values() if s.status is SessionStatus.PENDING}
    unclean = {
        s for s in pending if any(k.id in live.allocations_of for k in live.sessions[s].kernels)
    }
    assert {each.id for each in group.queue} == pending - unclean
    assert set(group.aside) == unclean

    placed = {
        live.kernels[row.kernel_id].session.id
        for row in live.ledger.values()
        if row.charged and row.kernel_id in live.kernels
    }
    assert placed <= set(group.placed)
    ended = set(group.placed) - placed
    assert all(id_ not in live.sessions for id_ in ended), "no agent has confirmed their end yet"
    held = group.context(world.clock.now()).running
    amounts: Counter[tuple[Scope, str]] = Counter()
    sessions: Counter[Scope] = Counter()
    waiting: Counter[Scope] = Counter()
    for id_, session in cluster.placed.items():
        for scope in scopes(session.owner):
            sessions[scope] += 1
            for kernel in session.kernels:
                for name, amount in kernel.resources.as_dict().items():
                    amounts[scope, name] += amount
        rows = [row for row in live.ledger.values() if row.kernel_id in _kernels(session)]
        assert len(held[id_].kernels) == len([row for row in rows if row.charged])
    for id_ in pending:
        waiting.update(scopes(live.sessions[id_].owner))
    for job in live.jobs.values():
        to_come = min(job.tasks_total - job.next_task, 1 if job.spec.coscheduled else 10**9)
        waiting.update(dict.fromkeys(scopes(job.owner), to_come))
    for scope, holding in cluster.accounting.usage._entries.items():
        assert holding.sessions == sessions[scope]
        assert holding.pending == waiting[scope]
        told = {(scope, name): amount for name, amount in holding.amounts.items()}
        assert told == {key: n for key, n in amounts.items() if key[0] == scope and n}
    for agent in live.agents.values():
        rows = [row for row in live.ledger.values() if row.agent_id == agent.id and row.charged]
        used = sum(row.resources.cpu_milli for row in rows)
        assert used <= agent.capacity.cpu_milli
        slot = group.snapshot.slot(agent.id)
        cpu = group.snapshot.columns.dimensions.index("cpu")
        assert group.snapshot.columns.free[slot, cpu] == agent.capacity.cpu_milli - used
    for preemptor, victims in group.displacing.items():
        assert preemptor in pending
        assert victims <= set(group.placed)


def _kernels(session: Session) -> set[KernelId]:
    return {kernel.id for kernel in session.kernels}


@settings(
    max_examples=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(policy=groups, history=st.lists(events, max_size=25))
def test_cluster_agrees_with_the_ledger_whatever_happens(
    policy: dict[str, object], history: list[tuple[object, ...]]
) -> None:
    spec = ScalingGroup.model_validate({"name": "default", "kernel_lease": 20, **policy})
    with TemporaryDirectory() as folder:
        world = World(
            Path(folder),
            {},
            group=spec,
            behaviour=lambda start: Run(
                3.0, exit_code=1 if start.env.get("MUSTER_TASK_INDEX") == "4" else 0
            ),
        )
        try:
            for name in AGENTS:
                world.add_agent(name, cpus(2))
            lives = History(world)
            for event in history:
                lives.apply(event)
                check(world)
            for name in AGENTS:
                lives.apply(("bar", name, None))
                lives.apply(("hello", name))
            for who in OWNERS:
                lives.apply(("quota", who, None))
            world.run(200, 2.0)
            check(world)
            assert not world.plane.live.sessions, "all that can run has run"
            assert not world.plane.live.ledger
        finally:
            world.close()
