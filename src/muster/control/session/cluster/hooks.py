"""Calls the hooks of groups; a group goes on without a hook that fails."""

from collections.abc import Callable, Mapping

from muster.control.session.cluster.workloads import SpecClasses, workload_class
from muster.core.ids import JobId, SessionId
from muster.core.owner import Owner
from muster.core.specs import SessionSpec
from muster.core.states import KERNEL_TABLE
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.policy.guard import PluginFault
from muster.scheduling.policy.hooks import BUILT_IN, BatchHook, KernelEnds, KernelPorts
from muster.scheduling.policy.plugins import SessionHook
from muster.scheduling.workload import SessionWorkload, WorkloadClass
from muster.store.records import Kernel, Session


class Hooks:
    """Asks the hook of a session's type in its group.

    ``failed`` is called for a hook that fails; afterwards its group has a policy without that hook.
    """

    def __init__(
        self, groups: Mapping[str, GroupState], failed: Callable[[str, PluginFault], None]
    ) -> None:
        self._groups = groups
        self._failed = failed
        self._class_of_job: dict[JobId, WorkloadClass] = {}
        self._classes = SpecClasses()

    def _hook(self, session: Session) -> SessionHook:
        return self._groups[session.group].policy.hooks[session.type]

    def _of_type(self, session: Session) -> BatchHook:
        """The built-in hook that does what the session's type needs. A plug-in has no say in that:
        it is asked besides."""
        hook = self._hook(session)
        return hook if isinstance(hook, BatchHook) else BUILT_IN[session.type]

    def handed_in(self, owner: Owner, spec: SessionSpec) -> WorkloadClass:
        """The class of a session without a job, before its hook is asked."""
        return self._classes.of(owner, spec)

    def arriving(self, session: Session) -> WorkloadClass:
        """The class of a session that enters the queue, as changed by its hook; a hook that fails
        is left out from now on."""
        while True:
            try:
                return self._on_schedule(session)
            except PluginFault as fault:
                self._failed(session.group, fault)

    def requeue(self, group: GroupState, sessions: Mapping[SessionId, Session]) -> None:
        """Have all waiting sessions of a group enter its queue again, each as its new hook changes
        it.

        Raises:
            PluginFault: a hook fails; the waiting sessions are unchanged.
        """

        def class_of(waiting: SessionWorkload) -> WorkloadClass:
            return self._on_schedule(sessions[waiting.id])

        name, of_job = group.snapshot.group, self._class_of_job.items()
        self._class_of_job = {id_: workload for id_, workload in of_job if workload.group != name}
        group.requeue(class_of)

    def _on_schedule(self, session: Session) -> WorkloadClass:
        """The class that the hook answers; the plain sessions of a job share one answer.

        Raises:
            PluginFault: the hook fails.
        """
        job, spec = session.job, session.spec
        if spec is not None and not session.failed_agents:
            return self._hook(session).on_schedule(self.handed_in(session.owner, spec))
        own = session.failed_agents or session.returns_to
        if job is None or own or len(session.kernels) != 1:
            return self._hook(session).on_schedule(workload_class(session))
        known = self._class_of_job.get(job.id)
        if known is None:
            known = self._hook(session).on_schedule(workload_class(session))
            self._class_of_job[job.id] = known
        return known

    def changes_environments(self, session: Session) -> bool:
        """Whether the session's hook may change the environments of its kernels; built-in hooks do
        not."""
        return type(self._hook(session)).before_start is not BatchHook.before_start

    def variables(self, kernel: Kernel, fixed_port: int | None) -> Mapping[str, str]:
        """The variables that a kernel about to start needs because of its session's type.

        Args:
            fixed_port: on which the kernel's program listens by itself, if it has one.
        """
        process = kernel.process
        ports = KernelPorts(kernel.ports[: process.ports], fixed_port)
        return self._of_type(kernel.session).variables(ports)

    def is_over(self, session: Session) -> bool:
        """Whether a running session of which a kernel has ended is to end."""
        tally = session.tally
        ended = tally.among(KERNEL_TABLE.terminal)
        ends = KernelEnds(len(session.kernels), ended, tally.ended_well, session.leader_ended_well)
        return self._of_type(session).is_over(ends)

    def before_start(self, session: Session, environment: Mapping[str, str]) -> Mapping[str, str]:
        """The environment of a kernel that is about to start, as changed by the session's hook."""
        try:
            return self._hook(session).before_start(environment)
        except PluginFault as fault:
            self._failed(session.group, fault)
            return self.before_start(session, environment)

    def after_end(self, session: Session) -> None:
        """Tell the hook that the session has ended."""
        all_well = all(kernel.exit_code == 0 for kernel in session.kernels)
        succeeded = all_well or session.leader_ended_well
        try:
            self._hook(session).after_end(session.id, succeeded)
        except PluginFault as fault:
            self._failed(session.group, fault)

    def forget_job(self, id_: JobId) -> None:
        """Forget the class of a job, because it has ended, or has another spec now."""
        self._class_of_job.pop(id_, None)
