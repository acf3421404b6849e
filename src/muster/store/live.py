"""The mirror: all that has not ended, in memory, and the sums that passes need.

The leader alone writes, so the mirror is exact: a unit of work changes it and SQL together. When a
commit fails the mirror is thrown away and read again; nothing else may repair it.
"""

from weakref import WeakValueDictionary

from muster.core.errors import NotFound
from muster.core.ids import AgentId, JobId, KernelId, SessionId
from muster.core.owner import Owner
from muster.core.specs import Level, QuotaSpec, ScalingGroup, SessionSpec
from muster.scheduling.workload import Progress
from muster.store.accounts import Accounts
from muster.store.records import Agent, Allocation, Job, Kernel, LedgerKey, Session, tally_of


class Live:
    """Records by id. Iteration order is order of creation."""

    def __init__(self) -> None:
        self.groups: dict[str, ScalingGroup] = {}
        self.quotas: dict[tuple[Level, str], QuotaSpec] = {}
        self.accounts = Accounts()
        self.agents: dict[AgentId, Agent] = {}
        self.credentials: dict[str, AgentId] = {}  # by hash; those of removed agents too
        self.jobs: dict[JobId, Job] = {}
        self.sessions: dict[SessionId, Session] = {}
        self.kernels: dict[KernelId, Kernel] = {}
        self.ended_targets: dict[str, Progress] = {}  # how work ended that live work waits for
        self.job_names: dict[tuple[Owner, str], Job] = {}
        self.session_names: dict[tuple[Owner, str], Session] = {}  # the newest of each
        # The ledger; an agent's rows in order of their making.
        self.ledger: dict[LedgerKey, Allocation] = {}
        self.held_by: dict[AgentId, dict[LedgerKey, Allocation]] = {}
        self.specs: WeakValueDictionary[str, SessionSpec] = WeakValueDictionary()
        self.rows_of: dict[KernelId, tuple[Allocation, ...]] = {}  # not proven gone, by age
        self.left_by: dict[KernelId, str] = {}  # whose those of them were that have ended

    def group(self, name: str) -> ScalingGroup:
        """A group by name.

        Raises:
            NotFound: no such group; the message names those there are.
        """
        try:
            return self.groups[name]
        except KeyError:
            known = ", ".join(sorted(self.groups)) or "none yet"
            raise NotFound(f"there is no group {name!r}; groups are: {known}") from None

    def shared(self, spec: SessionSpec) -> SessionSpec:
        """The one object for all specs that differ by their name at most, and without it: sessions
        are many, and mostly alike."""
        key = spec.model_dump_json(exclude={"name"}, exclude_defaults=True)
        return self.specs.setdefault(key, spec.model_copy(update={"name": None}))

    def add_session(self, session: Session) -> None:
        self.sessions[session.id] = session
        if session.name is not None:
            self.session_names[session.owner, session.name] = session
        session.tally = tally_of(session.kernels)
        for kernel in session.kernels:
            self.kernels[kernel.id] = kernel

    def drop_session(self, session: Session) -> None:
        del self.sessions[session.id]
        if session.name is not None:
            name = (session.owner, session.name)
            if self.session_names.get(name) is session:
                del self.session_names[name]
        for kernel in session.kernels:
            del self.kernels[kernel.id]
            if kernel.id in self.rows_of:
                self.left_by[kernel.id] = session.job.id if session.job else session.id

    def work_of(self, kernel: KernelId) -> str | None:
        """The job, or the session of its own, that a kernel with a row of the ledger belongs to."""
        record = self.kernels.get(kernel)
        if record is None:
            return self.left_by.get(kernel)
        session = record.session
        return session.job.id if session.job is not None else session.id

    def add_job(self, job: Job) -> None:
        self.jobs[job.id] = job
        self.job_names[job.owner, job.name] = job

    def drop_job(self, job: Job) -> None:
        del self.jobs[job.id]
        del self.job_names[job.owner, job.name]

    def hold(self, row: Allocation) -> None:
        self.ledger[row.key] = row
        of_agent = self.held_by.get(row.agent_id)
        if of_agent is None:
            of_agent = self.held_by[row.agent_id] = {}
        of_agent[row.key] = row
        self.rows_of[row.kernel_id] = (*self.rows_of.get(row.kernel_id, ()), row)

    def release(self, key: LedgerKey) -> Allocation | None:
        row = self.ledger.pop(key, None)
        if row is not None:
            del self.held_by[row.agent_id][key]
            left = tuple([other for other in self.rows_of[row.kernel_id] if other is not row])
            if left:
                self.rows_of[row.kernel_id] = left
            else:
                del self.rows_of[row.kernel_id]
                self.left_by.pop(row.kernel_id, None)
        return row
