"""The mirror: all records that have not ended, in memory, and the indexes that passes need.

Only one store writes, so the mirror is exact: a unit of work changes mirror and SQL together. When
a commit fails, the mirror is thrown away and read again; it is never repaired in another way.
"""

import difflib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import chain
from operator import attrgetter
from typing import Any, cast
from weakref import WeakValueDictionary

from muster.core.errors import NotFound
from muster.core.ids import AgentId, JobId, KernelId, SessionId
from muster.core.owner import Owner
from muster.core.specs import Level, QuotaSpec, ScalingGroup, SessionSpec
from muster.core.states import SessionStatus
from muster.scheduling.accounting.holdings import Holdings
from muster.scheduling.workload import DependencyProgress
from muster.store.accounts import Accounts
from muster.store.entity import Entities, Entity, R, Record
from muster.store.index import Index
from muster.store.records import Agent, Allocation, Job, Kernel, LedgerKey, Session


def _is_ending(session: Session) -> bool | None:
    """Whether the session is told to end; None otherwise."""
    return True if session.status is SessionStatus.TERMINATING else None


class Live:
    """The records of the mirror by id, in the order of their creation, and the ledger."""

    def __init__(self, entities: Entities) -> None:
        self.entities = entities
        self._records: dict[type, dict[Any, Any]] = {kind: {} for kind in entities}
        self.indexes: dict[type, list[Index[Any]]] = {kind: [] for kind in entities}
        self.groups: dict[str, ScalingGroup] = {}
        self.quotas: dict[tuple[Level, str], QuotaSpec] = {}
        self.accounts = Accounts()
        self.cluster = ""  # the id of the cluster, once it has one
        self.agents: dict[AgentId, Agent] = self._records[Agent]
        self.agent_names: dict[str, Agent] = {}  # the newest agent of each name
        self.credentials: dict[str, AgentId] = {}  # by hash, those of removed agents too
        self.jobs: dict[JobId, Job] = self._records[Job]
        self.sessions: dict[SessionId, Session] = self._records[Session]
        self.kernels: dict[KernelId, Kernel] = {}
        self.ended_dependencies: dict[str, DependencyProgress] = {}  # of live work
        self.job_names: dict[tuple[Owner, str], Job] = {}
        self.session_names: dict[tuple[Owner, str], Session] = {}  # the newest session of each name
        # The ledger; the allocations of an agent are in the order in which they were made.
        self.ledger: dict[LedgerKey, Allocation] = {}
        self.allocations_on: dict[AgentId, dict[LedgerKey, Allocation]] = {}
        self.specs: WeakValueDictionary[str, SessionSpec] = WeakValueDictionary()
        self.allocations_of: dict[KernelId, tuple[Allocation, ...]] = {}  # not proven gone, by age
        self.holdings = Holdings()
        self.left: dict[KernelId, Kernel] = {}  # of sessions that have ended, and hold room still
        self._ending = self.index(Session, by=_is_ending)

    def group(self, name: str) -> ScalingGroup:
        """A group by name.

        Raises:
            NotFound: no such group; the message names the nearest of the existing groups, or all.
        """
        try:
            return self.groups[name]
        except KeyError:
            near = difflib.get_close_matches(name, self.groups, 1)
            known = ", ".join(sorted(self.groups)) or "none yet"
            hint = f"did you mean {near[0]!r}?" if near else f"groups are: {known}"
            raise NotFound(f"there is no group {name!r}; {hint}") from None

    def shared(self, spec: SessionSpec) -> SessionSpec:
        """One shared object, without a name, for all specs that differ in their names alone: there
        are many sessions, and most are alike."""
        key = spec.model_dump_json(exclude={"name"}, exclude_defaults=True)
        known = self.specs.get(key)
        if known is None:
            known = self.specs[key] = spec.model_copy(update={"name": None})
        return known

    def of(self, kind: type[R]) -> Mapping[str, R]:
        """The records of an entity, by id."""
        return cast(Mapping[str, R], self._records[kind])

    def all_of(self, entity: Entity[R]) -> Iterable[R]:
        """The records of an entity, also of one that goes with another."""
        return self.of(entity.record).values() if entity.listed is None else entity.listed(self)

    def index(self, kind: type[R], by: str | Callable[[R], Hashable | None]) -> Index[R]:
        """A new index of the records of an entity, which lasts as long as the mirror.

        Args:
            by: the field that is a record's key, or a function that gives it; a record whose key is
                None is left out.
        """
        entity = self.entities[kind]
        index: Index[R] = Index(entity, attrgetter(by) if isinstance(by, str) else by)
        for record in self.all_of(entity):
            index.note(record)
        self.indexes[kind].append(index)
        return index

    def find(self, id_: str) -> Record | None:
        """The record of any entity with this id, by which history and events call it."""
        found = (records[id_] for records in self._records.values() if id_ in records)
        return next(found, None)

    def swept(self) -> Iterator[Record]:
        """All records except those of entities that go with others."""
        for records in self._records.values():
            yield from records.values()

    def add(self, record: Record) -> None:
        entity = self.entities[type(record)]
        if not entity.goes_with:
            self._records[type(record)][entity.id_of(record)] = record
        if entity.joins is not None:
            entity.joins(self, record)
        for index in self.indexes[type(record)]:
            index.note(record)

    def drop(self, record: Record) -> None:
        entity = self.entities[type(record)]
        del self._records[type(record)][entity.id_of(record)]
        if entity.leaves is not None:
            entity.leaves(self, record)

    def work_of(self, kernel: KernelId) -> str | None:
        """The id of the job, or of the session without a job, to which a kernel with a ledger row
        belongs."""
        record = self.kernels.get(kernel) or self.left.get(kernel)
        if record is None:
            return None
        session = record.session
        return session.job.id if session.job is not None else session.id

    def remains(self) -> dict[JobId, list[Kernel]]:
        """The kernels of jobs that have ended which hold room still: their processes are not proven
        gone."""
        found: dict[JobId, list[Kernel]] = {}
        of_ending = chain.from_iterable(session.kernels for session in self._ending)
        for kernel in chain(of_ending, self.left.values()):
            job = kernel.session.job
            if job is None or job.id in self.jobs or kernel.id not in self.allocations_of:
                continue
            found.setdefault(job.id, []).append(kernel)
        return found

    def allocate(self, allocation: Allocation) -> None:
        self.ledger[allocation.key] = allocation
        of_agent = self.allocations_on.get(allocation.agent_id)
        if of_agent is None:
            of_agent = self.allocations_on[allocation.agent_id] = {}
        of_agent[allocation.key] = allocation
        self.allocations_of[allocation.kernel_id] = (
            *self.allocations_of.get(allocation.kernel_id, ()),
            allocation,
        )

    def release(self, key: LedgerKey) -> Allocation | None:
        allocation = self.ledger.pop(key, None)
        if allocation is not None:
            del self.allocations_on[allocation.agent_id][key]
            others = self.allocations_of[allocation.kernel_id]
            left = tuple([other for other in others if other is not allocation])
            if left:
                self.allocations_of[allocation.kernel_id] = left
            else:
                del self.allocations_of[allocation.kernel_id]
                self.left.pop(allocation.kernel_id, None)
        return allocation
