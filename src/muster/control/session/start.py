"""StartSessions: PREPARED → CREATING, and its agents start the kernels."""

from collections.abc import Iterable, Sequence

from muster.control.engine.handler import (
    HandlerResult,
    StatusTransitions,
    TransitionStatus,
)
from muster.control.engine.work import Work
from muster.control.session.environment import session_environments, template
from muster.control.session.lifecycle import (
    RECALL_AFTER_S,
    HeardPhase,
    failure_to_judge,
    held_ahead,
)
from muster.core.specs.session import Process
from muster.core.states import KernelStatus, SessionStatus
from muster.store.records import Kernel, Session
from muster.wire.messages import KernelTemplate, Recall, Start

_TO_START = frozenset({KernelStatus.PREPARED, KernelStatus.CREATING})


class StartSessions(HeardPhase):
    """Starts the kernels of PREPARED sessions, and tries again those that an agent could not.

    A kernel that waits too long in an agent's backlog is recalled: it may fit elsewhere.
    """

    name = "StartSessions"
    entity = Session
    targets = frozenset({SessionStatus.PREPARED, SessionStatus.CREATING})
    transitions = StatusTransitions(
        success=TransitionStatus(SessionStatus.CREATING, KernelStatus.CREATING),
        need_retry=None,
        expired=TransitionStatus(SessionStatus.PENDING, KernelStatus.PENDING),
        give_up=TransitionStatus(SessionStatus.PENDING, KernelStatus.PENDING),
    )

    def execute(self, targets: Sequence[Session], work: Work) -> HandlerResult[Session]:
        result: HandlerResult[Session] = HandlerResult()
        templates: dict[int, KernelTemplate] = {}
        for session in targets:
            failed = [kernel for kernel in session.kernels if kernel.failure is not None]
            failure = failure_to_judge(session, failed)
            if failure is not None:
                result.failures[session] = failure
            elif failed:
                if work.now >= session.retry_at:
                    session.retry_at = 0.0
                    work.unit.touch(session)
                    for kernel in failed:
                        kernel.failure = None
                    send_starts(session, failed, work, templates)
            elif session.status is SessionStatus.PREPARED:
                send_starts(session, session.kernels, work, templates)
                result.successes.append(session)
            elif held_ahead(session, work):
                self._recall_late(session, work)
        return result

    def _recall_late(self, session: Session, work: Work) -> None:
        kernel = session.kernels[0]
        late = work.now >= session.status_changed_at + RECALL_AFTER_S
        if late and kernel.stop_sent_at is None and kernel.agent_id is not None:
            kernel.stop_sent_at = work.now
            work.send(kernel.agent_id, Recall(kernel.id, kernel.generation))

    def timeout_s(self, record: Session, work: Work) -> float | None:
        if record.status is SessionStatus.CREATING and held_ahead(record, work):
            return None  # it has nothing to start with yet
        return work.live.groups[record.group].create_timeout


def send_starts(
    session: Session,
    kernels: Iterable[Kernel],
    work: Work,
    templates: dict[int, KernelTemplate] | None = None,
) -> None:
    """Start commands for those kernels that are to start; ``templates`` by process, to share."""
    templates = {} if templates is None else templates
    environments = session_environments(session, work.live.agents)
    for kernel in kernels:
        row = work.live.ledger.get((kernel.id, kernel.generation))
        if kernel.status not in _TO_START or row is None:
            continue
        command = Start(
            kernel.id,
            kernel.generation,
            _shared_template(kernel, kernel.process, templates),
            environments[kernel.index],
            row.shares,
            queued=not row.charged,
        )
        work.send(row.agent_id, command)


def _shared_template(
    kernel: Kernel, process: Process, templates: dict[int, KernelTemplate]
) -> KernelTemplate:
    made = templates.get(id(process))
    if made is None:
        made = templates[id(process)] = template(kernel)
    return made
