"""StartSessions: PREPARED → CREATING, and its agents start the kernels."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from muster.control.engine.handler import (
    HandlerResult,
    StatusTransitions,
    TransitionStatus,
)
from muster.control.engine.work import Work
from muster.control.session.board import Board
from muster.control.session.environment import session_environments, template
from muster.control.session.lifecycle import (
    RECALL_AFTER_S,
    HeardPhase,
    failure_to_judge,
    held_ahead,
)
from muster.core.ids import AgentId
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

    def __init__(self, board: Board) -> None:
        self._board = board

    def execute(self, targets: Sequence[Session], work: Work) -> HandlerResult[Session]:
        result: HandlerResult[Session] = HandlerResult()
        templates = Templates()
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
                    send_starts(session, failed, work, self._board, templates)
            elif session.status is SessionStatus.PREPARED:
                send_starts(session, session.kernels, work, self._board, templates)
                result.successes.append(session)
            elif held_ahead(session, work):
                self._recall_late(session, work)
        return result

    def _recall_late(self, session: Session, work: Work) -> None:
        kernel = session.kernels[0]
        if work.now >= session.status_changed_at + RECALL_AFTER_S:
            _recall(kernel, work)

    def timeout_s(self, record: Session, work: Work) -> float | None:
        if record.status is SessionStatus.CREATING and held_ahead(record, work):
            return None  # it has nothing to start with yet
        return work.live.groups[record.group].create_timeout


def recall_held_ahead(
    work: Work, agent_id: AgentId, unless: Callable[[Session], bool] = lambda session: False
) -> None:
    """Have the agent give back what it holds ahead and has not started."""
    for row in work.live.held_by.get(agent_id, {}).values():
        kernel = work.live.kernels.get(row.kernel_id)
        if row.charged or kernel is None or kernel.generation != row.generation:
            continue
        if not unless(kernel.session):
            _recall(kernel, work)


def _recall(kernel: Kernel, work: Work) -> None:
    if kernel.stop_sent_at is None and kernel.agent_id is not None:
        kernel.stop_sent_at = work.now
        work.send(kernel.agent_id, Recall(kernel.id, kernel.generation))


class Templates:
    """What kernels of one process share, made once for all that start together."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, bool], KernelTemplate] = {}  # by the identity of a process

    def of(self, kernel: Kernel, *, bare: bool) -> KernelTemplate:
        """The kernel's; ``bare`` without the environment that its process asks for."""
        key = id(kernel.process), bare
        made = self._made.get(key)
        if made is None:
            made = template(kernel)
            made = self._made[key] = replace(made, env={}) if bare else made
        return made


def send_starts(
    session: Session,
    kernels: Iterable[Kernel],
    work: Work,
    board: Board,
    templates: Templates | None = None,
) -> None:
    """Start commands for those kernels that are to start; ``templates`` to share with others."""
    templates = templates or Templates()
    environments = session_environments(session, work.live.agents)
    for kernel in kernels:
        row = work.live.ledger.get((kernel.id, kernel.generation))
        if kernel.status not in _TO_START or row is None:
            continue
        own = environments[kernel.index]
        whole = {**kernel.process.env, **own} if kernel.process.env else own
        wanted = board.before_start(session, whole)
        changed = wanted is not whole
        command = Start(
            kernel.id,
            kernel.generation,
            templates.of(kernel, bare=changed),
            wanted if changed else own,
            row.shares,
            queued=not row.charged,
        )
        work.send(row.agent_id, command)
