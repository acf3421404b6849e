"""A cluster of data behind the client's interface, and the commands run against it."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
from click.testing import CliRunner, Result
from tests.cli.fake_accounts import FakeAccounts
from tests.cli.fake_output import FakeOutput

from muster.cli.cluster import Cluster, OnContact
from muster.cli.program import app
from muster.client import Client
from muster.core.errors import InvalidSpec, MusterError, NotFound, Problem
from muster.core.reasons import ReasonCode, ReasonKind
from muster.core.reasons.catalogue import reason_of
from muster.core.states import AgentBar, JobState, KernelStatus, TaskState
from muster.core.views.base import OwnerView, ReasonView
from muster.core.views.cluster import AgentView, GroupView, HealthView, HeldKernelPage, QuotaView
from muster.core.views.deployments import DeploymentView, RouteView
from muster.core.views.health import IncidentView
from muster.core.views.placement import PlanView, WhyView
from muster.core.views.pools import PoolView, SliceView
from muster.core.views.recoveries import RecoveryView
from muster.core.views.work import (
    CancelView,
    FailurePage,
    HistoryPage,
    JobDetail,
    JobView,
    KernelView,
    PriorityView,
    SessionDetail,
    ShareView,
    TaskDetail,
    TaskPage,
)

NOW = 1_763_672_400.0
ANN = OwnerView(domain="default", project="research", user="ann")
IDS = [f"job-01kae{letter}7m{letter}2qv3x9p" for letter in "cdefghjk"]


def because(code: ReasonCode, **numbers: Any) -> ReasonView:
    return ReasonView.of(reason_of(code, numbers))


def lacks(sentence: str) -> ReasonView:
    """A shortfall of an agent."""
    return ReasonView(code=ReasonCode.LACKS_FREE, kind=ReasonKind.WAITING, sentence=sentence)


def job(
    name: str = "train",
    state: JobState = JobState.RUNNING,
    counts: Mapping[TaskState, int] | None = None,
    number: int = 0,
    **fields: Any,
) -> JobDetail:
    """A job whose tasks are ``counts``; one task in the state of the job when left out."""
    alone = {TaskState(state.value): 1}
    counted = dict(counts or alone)
    return JobDetail(
        **{
            "id": IDS[number],
            "name": name,
            "owner": ANN,
            "group": "default",
            "state": state,
            "state_changed_at": NOW - 12,
            "tasks_total": sum(counted.values()),
            "task_count": sum(counted.values()),
            "counts": counted,
            "submitted_at": NOW - 75,
            "started_at": None if state is JobState.PENDING else NOW - 72,
            "finished_at": NOW - 12 if state not in (JobState.PENDING, JobState.RUNNING) else None,
            "spec": {"command": ["python", "train.py"], "resources": {"cpu": "2", "gpu": "1"}},
            **fields,
        }
    )


def kernel(attempt: int = 1, **fields: Any) -> KernelView:
    return KernelView(
        **{
            "id": "krn-01kaec7mc2qv3x9p",
            "session_id": "ses-01kaec7mc2qv3x9p",
            "index": 0,
            "attempt": attempt,
            "status": KernelStatus.TERMINATED,
            "status_changed_at": NOW - 12,
            "agent": f"agent-{attempt}",
            "devices": (ShareView(index=attempt, share=1.0),),
            "started_at": NOW - 72,
            "ended_at": NOW - 12,
            **fields,
        }
    )


def task(
    index: int = 0,
    state: TaskState = TaskState.SUCCEEDED,
    attempts: tuple[KernelView, ...] = (),
    **fields: Any,
) -> TaskDetail:
    return TaskDetail(
        **{
            "job_id": IDS[0],
            "index": index,
            "state": state,
            "state_changed_at": NOW - 12,
            "attempt": len(attempts),
            "attempts": attempts,
            **fields,
        }
    )


def session(**fields: Any) -> SessionDetail:
    return msgspec.convert(
        {
            "id": "ses-01kaec7mc2qv3x9p",
            "name": "notebook",
            "type": "interactive",
            "owner": ANN,
            "group": "default",
            "priority": 50,
            "status": "TERMINATED",
            "status_changed_at": NOW,
            "created_at": NOW - 80,
            "queued_at": NOW - 80,
            "kernels": (kernel(status=KernelStatus.TERMINATED, exit_code=0),),
            **fields,
        },
        SessionDetail,
    )


@dataclass
class FakeCluster(FakeAccounts, FakeOutput):
    """The answers of a client, as data; ``asked`` are the changes that were asked of it.

    ``play`` are the states that a wait sees one after the other; with ``hold`` the last comes only
    once the job is cancelled.
    """

    jobs_: list[JobDetail] = field(default_factory=list)
    tasks_: list[TaskDetail] = field(default_factory=list)
    sessions_: list[SessionDetail] = field(default_factory=list)
    agents_: list[AgentView] = field(default_factory=list)
    held_: HeldKernelPage = field(default_factory=lambda: HeldKernelPage(items=()))
    pools_: list[PoolView] = field(default_factory=list)
    slices_: list[SliceView] = field(default_factory=list)
    incidents_: list[IncidentView] = field(default_factory=list)
    recoveries_: list[RecoveryView] = field(default_factory=list)
    deployments_: list[DeploymentView] = field(default_factory=list)
    routes_: list[RouteView] = field(default_factory=list)
    groups_: list[GroupView] = field(default_factory=list)
    why_: dict[str, WhyView] = field(default_factory=dict)
    plan_: PlanView | None = None
    quotas_: list[QuotaView] = field(default_factory=list)
    quota_is_nobodys: bool = False
    failures_: FailurePage = field(default_factory=lambda: FailurePage(items=()))
    history_: HistoryPage = field(default_factory=lambda: HistoryPage(items=()))
    play: list[JobDetail] = field(default_factory=list)
    hold: bool = False
    at_start: Callable[[], None] = lambda: None
    fails: MusterError | None = None
    asked_at: list[Cluster] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)
    heard: dict[int, OnContact] = field(default_factory=dict)  # by the thread that asked for it
    url: str = "http://127.0.0.1:7600"

    # -- the client ------------------------------------------------------------------------------

    def __enter__(self) -> "FakeCluster":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        if self.fails is not None:
            raise self.fails

    def pools(self, state: str = "live", **_: Any) -> list[PoolView]:
        return self.pools_

    def slices(self, state: str = "live", **_: Any) -> list[SliceView]:
        return self.slices_

    def incidents(self, state: str = "live", *, limit: int = 100, **_: Any) -> list[IncidentView]:
        wanted = state == "ended"
        found = [
            each
            for each in self.incidents_
            if state == "all" or (each.finished_at is not None) == wanted
        ]
        return found[:limit]

    def deployments(self, state: str = "live", **_: Any) -> list[DeploymentView]:
        return self.deployments_

    def routes(self, state: str = "live", **_: Any) -> list[RouteView]:
        return self.routes_

    def recoveries(self, state: str = "live", **_: Any) -> list[RecoveryView]:
        return self.recoveries_

    def check_agent(self, ref: str, *, note: str = "") -> IncidentView:
        return self._decided("check", ref, note)

    def heal_agent(self, ref: str, *, note: str = "") -> IncidentView:
        return self._decided("heal", ref, note)

    def isolate_agent(self, ref: str, *, note: str = "") -> IncidentView:
        return self._decided("isolate", ref, note)

    def return_agent(self, ref: str, *, note: str = "") -> IncidentView:
        return self._decided("return", ref, note)

    def _decided(self, decision: str, ref: str, note: str) -> IncidentView:
        self.asked.append((decision, (ref, note)))
        found = next((each for each in self.incidents_ if each.agent == ref), None)
        if found is None:
            raise NotFound(f"there is no agent {ref!r}")
        return found

    def jobs(self, state: str = "live", *, limit: int = 100, **_: Any) -> list[JobView]:
        self._answer()
        found = [
            each
            for each in self.jobs_
            if state == "all"
            or (each.ended and state in ("ended", each.state.lower()))
            or (each.kernels_left and state == "current")
            or (not each.ended and state in ("live", "current", each.state.lower()))
        ]
        return list(found[:limit])

    def job(self, ref: str) -> JobDetail:
        self._answer()
        for each in self.jobs_:
            if ref == each.name or each.id.removeprefix("job-").startswith(ref) or ref == each.id:
                return each
        raise NotFound(f"there is no job {ref!r}")

    def submit(self, spec: Any) -> Any:
        self._answer()
        self.asked.append(("submit", spec))
        return self.play[0] if self.play else self.sessions_[0] if self.sessions_ else self.jobs_[0]

    def wait(
        self,
        ref: str,
        timeout_s: float | None = None,
        on_change: Callable[[JobView], None] | None = None,
    ) -> JobView:
        *before, last = self.play
        for each in before:
            if on_change is not None:
                on_change(each)
        self.at_start()
        if self.hold:
            assert self.cancelled.wait(20.0), "the job was never cancelled"
        return last

    def tasks(
        self,
        ref: str,
        state: str | None = None,
        *,
        failed: bool = False,
        where: Mapping[str, object] | None = None,
        offset: int = 0,
        limit: int = 100,
    ) -> TaskPage:
        known = self.tasks_
        if not known and self.jobs_:
            counts = self.job(ref).counts.items()
            states = [of_state for of_state, many in counts for _ in range(many)]
            known = [task(index, each, (kernel(),)) for index, each in enumerate(states)]
        found = [each for each in known if state in (None, each.state)]
        if failed:
            found = [each for each in found if each.state is TaskState.FAILED]
        wanted = {name: str(value) for name, value in (where or {}).items()}.items()
        found = [each for each in found if wanted <= each.parameters.items()]
        return TaskPage(items=tuple(found[offset : offset + limit]), total=len(found))

    def failures(self, ref: str) -> FailurePage:
        return self.failures_

    def task(self, ref: str, index: int) -> TaskDetail:
        for each in self.tasks_:
            if each.index == index:
                return each
        raise NotFound(f"job {ref} has no task {index}")

    def sessions(self, state: str = "live", *, limit: int = 100, **_: Any) -> list[SessionDetail]:
        self._answer()
        wanted = state == "ended"
        found = [each for each in self.sessions_ if state == "all" or each.ended == wanted]
        return found[:limit]

    def session(self, ref: str) -> SessionDetail:
        for each in self.sessions_:
            if ref == each.name or each.id.startswith(ref):
                return each
        raise NotFound(f"there is no session {ref!r}")

    def show(self, ref: str) -> JobDetail | SessionDetail:
        return self.work(ref)

    def work(self, ref: str) -> JobDetail | SessionDetail:
        if ref.lower().startswith("ses-"):
            return self.session(ref)
        try:
            return self.job(ref)
        except NotFound as no_job:
            try:
                return self.session(ref)
            except NotFound:
                raise no_job from None

    def retry(
        self, ref: str, *, failed: bool, changes: Mapping[str, Any] | None = None
    ) -> JobDetail:
        self.asked.append(("retry", (ref, failed, *filter(None, [changes]))))
        return self.job(ref)

    def reprioritise(self, ref: str, priority: int) -> PriorityView:
        self.asked.append(("reprioritise", (ref, priority)))
        found = self.work(ref)
        said = f"{found.name} has priority {priority} now"
        return PriorityView(
            id=found.id, status=found.status, priority=priority, changed=True, message=said
        )

    def cancel_task(self, ref: str, index: int) -> CancelView:
        self.asked.append(("cancel_task", (ref, index)))
        said = f"task {index} of {self.work(ref).name} is stopped"
        return CancelView(id=f"{ref}/{index}", status="KILLED", changed=True, message=said)

    def cancel(self, ref: str, *, force: bool = False) -> CancelView:
        self.asked.append(("cancel with force" if force else "cancel", ref))
        self.cancelled.set()
        found = self.work(ref)
        status = found.status if isinstance(found, SessionDetail) else found.state
        return CancelView(
            id=found.id, status=status, changed=True, message=f"{found.name} is cancelled"
        )

    def why(self, ref: str) -> WhyView:
        self._answer()
        if ref not in self.why_:
            raise NotFound(f"there is no job {ref!r}")
        return self.why_[ref]

    def why_task(self, ref: str, index: int) -> WhyView:
        return self.why(f"{ref}/{index}")

    def history(self, ref: str, *, limit: int = 200) -> HistoryPage:
        return self.history_

    def agents(self, group: str | None = None) -> list[AgentView]:
        return [each for each in self.agents_ if group in (None, each.group)]

    def agent_kernels(self, ref: str) -> HeldKernelPage:
        if ref not in {name for each in self.agents_ for name in (each.id, each.name)}:
            raise NotFound(f"there is no agent {ref!r}")
        return self.held_

    def groups(self) -> list[GroupView]:
        return self.groups_

    def put_group(self, spec: Any) -> GroupView:
        self.asked.append(("put_group", spec))
        return GroupView(name=spec.name, spec={})

    def plan(self, spec: Any) -> PlanView:
        self._answer()
        self.asked.append(("plan", spec))
        assert self.plan_ is not None, "the test has a plan"
        return self.plan_

    def quotas(self) -> list[QuotaView]:
        return self.quotas_

    def put_quota(self, spec: Any) -> QuotaView:
        self.asked.append(("put_quota", spec))
        return QuotaView(level=spec.level, name=spec.name, is_nobodys=self.quota_is_nobodys)

    def remove_quota(self, level: str, name: str) -> None:
        self.asked.append(("remove_quota", (level, name)))

    def bar_agent(
        self,
        ref: str,
        bar: AgentBar | None,
        *,
        note: str | None = None,
        deadline: float | str | None = None,
        keep_deadline: bool = False,
    ) -> AgentView:
        self.asked.append(("bar_agent", (ref, bar, note, deadline, *["kept"][:keep_deadline])))
        found = next((each for each in self.agents_ if each.name == ref), None)
        if found is None:
            raise NotFound(f"there is no agent {ref!r}")
        return msgspec.structs.replace(found, barred=bar, bar_note=note or "")

    def remove_agent(self, ref: str, *, lost: bool = False) -> None:
        self.asked.append(("remove_agent", (ref, "lost") if lost else ref))

    def health(self) -> HealthView:
        self._answer()
        return HealthView(status="ok", version="9.9.9")

    # -- commands --------------------------------------------------------------------------------

    def client(self) -> Client:
        return cast(Client, self)

    def run(self, *words: str, stdin: str | bytes = "") -> Result:
        """The output and the exit code of a command that this cluster answers."""

        cluster = Cluster(connector=self.connect)
        return CliRunner().invoke(app, list(words), input=stdin, obj=cluster)

    def connect(self, cluster: Cluster, timeout_s: float, on_contact: OnContact | None) -> Client:
        self.asked_at.append(cluster)
        if on_contact is not None:
            self.heard[threading.get_ident()] = on_contact
        return self.client()

    def json(self, *words: str) -> Any:
        result = self.run(*words)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


def refused(*problems: tuple[str, str, str]) -> InvalidSpec:
    return InvalidSpec([Problem(*problem) for problem in problems])
