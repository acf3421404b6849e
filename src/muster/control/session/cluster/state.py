"""The scaling groups of the cluster as placement sees them, kept in step with the mirror.

Records become workloads here, and changes of records become the verbs of each ``GroupState``, which
is pure and stands alone in ``scheduling.passes.group_state``. Nothing here is stored: it is derived
when the mirror is read, and then kept current by deltas.
"""

import logging
from collections.abc import Iterator

from muster.control.session.cluster.dependencies import DependencyTracker
from muster.control.session.cluster.displaced import follow_displaced
from muster.control.session.cluster.group_history import GroupHistory, RequestHistory, UsageHistory
from muster.control.session.cluster.guard import ServicesGuard
from muster.control.session.cluster.hooks import Hooks
from muster.control.session.cluster.known_deployments import KnownDeployments
from muster.control.session.cluster.machine_holds import MachineHolds
from muster.control.session.cluster.service_room import ServiceRoom
from muster.control.session.cluster.service_variables import ServiceVariables
from muster.control.session.cluster.shapes import Shapes
from muster.control.session.cluster.taken_ports import TakenPorts
from muster.control.session.cluster.user_uids import UserUids
from muster.control.session.cluster.workloads import (
    IN_PLACE,
    agent_facts,
    placed_since,
    workload_class,
)
from muster.core.ids import JobId, KernelId, SessionId
from muster.core.resources import DeviceShare
from muster.core.specs import Level, SessionType
from muster.core.specs.placement import ANYWHERE
from muster.core.states import JOB_TABLE, SESSION_TABLE, AgentStatus, SessionStatus
from muster.scheduling.accounting.usage import Accounting, Quotas
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.passes.pass_result import Placed
from muster.scheduling.policy.group_policy import Policy, missing_parts
from muster.scheduling.policy.guard import PluginFault
from muster.scheduling.workload import Classes, KernelPlacement, SessionWorkload, WorkloadClass
from muster.store.live import Live
from muster.store.records import Agent, Allocation, Job, Kernel, LedgerKey, Session

log = logging.getLogger(__name__)


class ClusterState:
    """The scaling groups, in step with the mirror. Units of work report changes of the ledger, the
    lifecycles of sessions and agents those of these.

    Attributes:
        groups: the state of each scaling group, by name.
        accounting: the usage of owners, and their quotas.
        placed: the sessions that hold room, ended ones too.
        candidates: how many sessions of a job wait for a place.
        to_come: how many sessions of a job are not in the queue yet.
        hooks: the hooks of the groups' session types.
        shapes: the running and the prefilled kernels of agents.
        dependencies: the progress of work for which other work waits.
        ports: the fixed ports that agents have told to be in use.
        guard: has a say when sessions of services are to leave.
        service_variables: the variables that services give to their kernels.
        machine_holds: tells which machines work waits for.
        uids: the uids of users.
        quota_waits: the groups whose last passes left sessions waiting for others' quota.
    """

    def __init__(self, live: Live, usage: UsageHistory, requests: RequestHistory) -> None:
        self._live = live
        self._usage_history = usage
        self._request_history = requests
        self.groups: dict[str, GroupState] = {}
        self.accounting = Accounting(quotas=Quotas(live.quotas.values()))
        self.placed: dict[SessionId, Session] = {}
        self.candidates: dict[JobId, int] = {}
        self.shapes = Shapes(live)
        self.dependencies = DependencyTracker(live)
        self.hooks = Hooks(self.groups, self.plugin_failed)
        self.ports = TakenPorts(self.groups)
        self.guard = ServicesGuard()
        self.service_variables = ServiceVariables()
        self.machine_holds = MachineHolds()
        self.uids = UserUids(live)
        self._services = ServiceRoom(live, self.groups, self.agent_changed)
        self._kernel_of: dict[LedgerKey, Kernel] = {}  # of charged allocations
        self._remains: dict[SessionId, dict[KernelId, int]] = {}
        self.to_come: dict[JobId, int] = {}
        self.quota_waits: set[str] = set()
        for name, spec in live.groups.items():
            self._use(name, Policy.of(spec, missing_parts(spec)))
        for agent in live.agents.values():
            self.agent_changed(agent)
        classes = Classes()  # most sessions are equal
        for allocation in live.ledger.values():
            if self._services.allocated(allocation):
                continue
            if allocation.charged:
                self.shapes.allocated(allocation)
                left = live.left.get(allocation.kernel_id)
                ended_at = None if left is None else left.session.finished_at
                # Until a session ended, its use is in the history of its group.
                self._adopt(allocation, ended_at or allocation.since, classes)
            else:
                self.allocated(allocation)
        for session in live.sessions.values():
            self.session_changed(session)
        for job in live.jobs.values():
            self.expanded(job)
        follow_displaced(self.groups.values(), self.placed)

    def group_changed(self, name: str) -> None:
        """A group is new, or has another policy."""
        state = self.groups.get(name)
        before = None if state is None else state.policy
        self._use(name, Policy.of(self._live.groups[name], before=before))
        for agent in self._live.agents.values():
            if agent.group == name:
                self.agent_changed(agent)  # its agents may now hold more kernels, or fewer

    def group_removed(self, name: str) -> None:
        """A group is gone; it had no agents and no sessions."""
        del self.groups[name]
        self.quota_waits.discard(name)

    def know(self, deployments: KnownDeployments) -> None:
        """Have work depend on these deployments, and use them."""
        self.dependencies.know(deployments)

    @property
    def deployments(self) -> KnownDeployments:
        """The deployments on which work may depend, and which it may use."""
        return self.dependencies.deployments

    def deployment_changed(self, id_: str) -> None:
        """A deployment has changed, or one of its replicas."""
        if self.dependencies.deployment_changed(id_):
            self._all_due()

    def plugin_failed(self, name: str, fault: PluginFault) -> None:
        """Go on without a plug-in of the group; a built-in part serves in its place."""
        self._use(name, self._without(fault, name, self.groups[name].policy))

    def _without(self, fault: PluginFault, name: str, policy: Policy) -> Policy:
        log.error("group %s goes on without a plug-in: %s", name, fault)
        return Policy.of(self._live.groups[name], (*policy.refused, fault), policy)

    def _use(self, name: str, policy: Policy) -> None:
        """Have the group use the policy, without those of its plug-ins that fail at once."""
        state = self.groups.get(name)
        anew = state is not None and state.policy.hooks != policy.hooks
        while True:
            try:
                if state is None:
                    self.groups[name] = self._new_group(name, policy)
                else:
                    state.use(policy)
                if state is not None and anew:
                    self.hooks.requeue(state, self._live.sessions)
                return
            except PluginFault as fault:
                policy = self._without(fault, name, policy)

    def _new_group(self, name: str, policy: Policy) -> GroupState:
        history = GroupHistory(name, self._live, self._usage_history, self._request_history)
        group = GroupState(
            Snapshot(name),
            policy,
            self.accounting,
            history=history,
            dependency_state=self.dependencies.state,
            budgets=lambda session: self.guard.budget(session),
        )
        group.replicas_of = lambda id_: self.deployments.replicas(id_)
        return group

    def quotas_changed(self) -> None:
        """The limits of an owner have changed."""
        self.accounting.quotas = Quotas(self._live.quotas.values())
        self._all_due()

    def _all_due(self) -> None:
        for state in self.groups.values():
            state.due = True

    def agent_changed(self, agent: Agent) -> None:
        state = self.groups[agent.group]
        if agent.status is AgentStatus.REMOVED:
            state.remove_agent(agent.id)
            self.ports.forget(agent.id)
        else:
            state.set_agent(agent_facts(agent, self._live.groups[agent.group]))

    # -- sessions ------------------------------------------------------------------------------

    def session_changed(self, session: Session) -> None:
        """Keep the group's queue: it has every PENDING session, and no other. A service neither
        waits nor counts; its room follows the ledger."""
        if session.service is not None:
            return
        state = self.groups[session.group]
        if self.dependencies.changed(session):
            self._all_due()
        if session.status in SESSION_TABLE.terminal:
            self.dependencies.ended(session)
            self.hooks.after_end(session)
            state.forget(session.id)
        if session.id in self.placed:
            self._progressed(session, state)
        if session.status is not SessionStatus.PENDING:
            end_wait = state.leave_queue if session.status in IN_PLACE else state.withdraw
            if end_wait(session.id):
                self._withdrawn(session)
        elif not state.waits(session.id):
            self._submit(session, state)

    def wait_anew(self, session: Session) -> None:
        """Have a waiting session wait by what its job says now."""
        self.withdraw(session)
        self._submit(session, self.groups[session.group])

    def _progressed(self, session: Session, state: GroupState) -> None:
        leaves_by = None
        if session.status not in IN_PLACE:
            leaves_by = session.status_changed_at + session.tally.grace_s
        state.progressed(session.id, placed_since(session), session.started_at, leaves_by)

    def _submit(self, session: Session, state: GroupState) -> None:
        """Have a session wait from now on. While the ledger has rows of earlier generations of its
        kernels it waits outside of the queue, because two attempts must never be live."""
        waiting = SessionWorkload(session.id, session.created_at, self.hooks.arriving(session))
        allocations_of = self._live.allocations_of
        remains = {
            k.id: len(allocations_of[k.id]) for k in session.kernels if k.id in allocations_of
        }
        if remains:
            self._remains[session.id] = remains
        try:
            state.submit(waiting, aside=bool(remains))
        except PluginFault as fault:
            self.plugin_failed(session.group, fault)
        self._count_candidate(session, +1)

    def withdraw(self, session: Session) -> None:
        """End the wait of a session that is not to be placed; nothing happens if it does not
        wait."""
        if self.groups[session.group].withdraw(session.id):
            self._withdrawn(session)

    def _withdrawn(self, session: Session) -> None:
        self._remains.pop(session.id, None)
        self._count_candidate(session, -1)

    def start(self, placed: Placed, now: float) -> Session:
        """Have a session take the room that a pass has found; the caller writes the ledger."""
        session = self._live.sessions[placed.session.id]
        begun_anew = session.job is not None
        self.groups[session.group].start(placed, now, begun_anew=begun_anew)
        self.placed[session.id] = session
        self._count_candidate(session, -1)
        return session

    def _count_candidate(self, session: Session, sign: int) -> None:
        job = session.job
        if job is not None:
            count = self.candidates.pop(job.id, 0) + sign
            if count:
                self.candidates[job.id] = count

    def remains_of(self, session: Session) -> KernelId | None:
        """A kernel with an earlier generation in the ledger, for which the session cannot be
        placed; None if there is none."""
        return next(iter(self._remains.get(session.id, ())), None)

    def workload(self, session: Session) -> WorkloadClass:
        """The class as which the session waits, or was placed; no hook is called."""
        return self._known(session) or workload_class(session)

    def _known(self, session: Session) -> WorkloadClass | None:
        state = self.groups[session.group]
        waits_as = state.waits_as(session.id)
        if waits_as is not None:
            return waits_as
        placed = state.placed.get(session.id)
        return None if placed is None else placed.workload

    def placed_of(self, level: Level, name: str) -> Iterator[tuple[Session, WorkloadClass]]:
        """The sessions with a place of the owner ``name`` at a level, with the classes as which
        they count."""
        for id_, session in self.placed.items():
            if level.of(session.owner) == name:
                yield session, self.groups[session.group].placed[id_].workload

    def may_prefill(self, session: Session) -> bool:
        """Whether agents may be prefilled with the session: batch work of one kernel that needs
        nothing but its allocation, may go anywhere, and has no quota to exceed."""
        if (
            session.job is None
            or len(session.kernels) != 1
            or session.job.spec.coscheduled  # it needs a port to meet at
            or session.type is not SessionType.BATCH
            or session.kernels[0].process.ports
            or not self._may_go_anywhere(session)
        ):
            return False
        return not self.accounting.quotas.bind(session.owner)

    def _may_go_anywhere(self, session: Session) -> bool:
        placement = self.workload(session).placement
        return placement is ANYWHERE or placement == ANYWHERE

    # -- jobs ----------------------------------------------------------------------------------

    def expanded(self, job: Job) -> None:
        """Count the tasks of a job that are no candidates yet as waiting too. To be called when the
        job is new, or when more of its tasks have become candidates."""
        to_come = 0 if job.status in JOB_TABLE.terminal else job.tasks_total - job.next_task
        if job.spec.coscheduled:
            to_come = min(to_come, 1)
        before = self.to_come.pop(job.id, 0)
        if to_come:
            self.to_come[job.id] = to_come
        if to_come != before:
            self.accounting.usage.waits(job.owner, to_come - before)

    def job_changed(self, job: Job) -> None:
        if self.dependencies.changed(job):
            self._all_due()

    def job_ended(self, job: Job) -> None:
        self.expanded(job)
        self.dependencies.ended(job)
        self.shapes.job_ended(job)
        self.hooks.forget_job(job.id)

    # -- the ledger (store.unit.LedgerWatch) ---------------------------------------------------

    def allocated(self, allocation: Allocation) -> None:
        if self._services.allocated(allocation):
            return
        kernel = self._live.kernels.get(allocation.kernel_id)
        workload = None
        if kernel is not None and allocation.charged:
            self._kernel_of[allocation.key] = kernel  # its session has been started
        elif kernel is not None:
            workload = self._known(kernel.session) or self.hooks.arriving(kernel.session)
        self.shapes.allocated(allocation, workload)

    def charged(
        self, allocation: Allocation, before: tuple[DeviceShare, ...] | None, now: float
    ) -> None:
        if before is None:
            self._adopt(allocation, now, prefilled_as=self.shapes.charged(allocation, now))
            return
        kernel = self._kernel_of.get(allocation.key)
        if kernel is not None:
            session = kernel.session
            self.groups[session.group].move(session.id, kernel.index, allocation.shares)
        else:
            state = self._group_of(allocation)
            state.vacate(allocation.agent_id, allocation.resources, before)
            state.occupy(allocation.agent_id, allocation.resources, allocation.shares)

    def released(self, allocation: Allocation, now: float) -> None:
        if self._services.released(allocation):
            return
        self.shapes.released(allocation)
        kernel = self._kernel_of.pop(allocation.key, None)
        if kernel is not None:
            self._leave(kernel, now)
        elif allocation.charged:
            state = self._group_of(allocation)
            state.vacate(allocation.agent_id, allocation.resources, allocation.shares)
        else:
            self._group_of(allocation).due = True
        is_held = allocation.kernel_id in self._live.allocations_of
        if not is_held and self.dependencies.released(allocation.kernel_id):
            self._all_due()
        if self._remains:
            self._clean(allocation)

    def _group_of(self, allocation: Allocation) -> GroupState:
        return self.groups[self._live.agents[allocation.agent_id].group]

    def _adopt(
        self,
        allocation: Allocation,
        now: float,
        classes: Classes | None = None,
        prefilled_as: WorkloadClass | None = None,
    ) -> None:
        """Count an allocation that is charged, though no pass has placed it: its room is in use,
        and its session placed; one that has ended is, too, until its agents confirm the end.

        Args:
            classes: where many are adopted, those of their sessions.
            prefilled_as: the class as which its session was prefilled.
        """
        kernel = self._live.kernels.get(allocation.kernel_id)
        kernel = kernel or self._live.left.get(allocation.kernel_id)
        if kernel is None:
            state = self._group_of(allocation)
            state.occupy(allocation.agent_id, allocation.resources, allocation.shares)
            return
        session = kernel.session
        workload = prefilled_as or self._known(session) or self.hooks.arriving(session)
        if classes is not None:
            workload = classes.one(workload)
        state = self.groups[session.group]
        kernels = {kernel.index: KernelPlacement(allocation.agent_id, allocation.shares)}
        begun_anew = session.job is not None
        state.adopt(
            session.id, workload, kernels, now, since=allocation.since, begun_anew=begun_anew
        )
        self._kernel_of[allocation.key] = kernel
        self.placed[session.id] = session
        self._progressed(session, state)

    def _leave(self, kernel: Kernel, now: float) -> None:
        session = kernel.session
        state = self.groups[session.group]
        state.leave(session.id, kernel.index, now)
        if session.id not in state.placed:
            del self.placed[session.id]
            for name in self.quota_waits if self.accounting.quotas.bind(session.owner) else ():
                self.groups[name].due = True

    def _clean(self, allocation: Allocation) -> None:
        """Take note that an allocation of an earlier generation is gone; with the last of them, the
        session may be placed."""
        kernel = self._live.kernels.get(allocation.kernel_id)
        remains = self._remains.get(kernel.session.id) if kernel is not None else None
        if kernel is None or remains is None:
            return
        remains[kernel.id] -= 1
        if not remains[kernel.id]:
            del remains[kernel.id]
        if remains:
            return
        session = kernel.session
        del self._remains[session.id]
        try:
            self.groups[session.group].readmit(session.id)
        except PluginFault as fault:
            self.plugin_failed(session.group, fault)
