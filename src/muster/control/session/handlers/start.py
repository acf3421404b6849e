"""StartSessions: PREPARED → CREATING, while agents start the kernels."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from muster.control.engine.handler import HandlerResult, TransitionStatus
from muster.control.engine.work import Work
from muster.control.session.cluster.state import ClusterState
from muster.control.session.handlers.barrier import is_closed
from muster.control.session.handlers.environment import (
    Gang,
    fixed_port,
    gang_of,
    has_own_command,
    is_gang,
    own_variables,
    template,
)
from muster.control.session.heard_time import HeardPhase, Unheard
from muster.control.session.lifecycle import (
    RECALL_AFTER_S,
    UNSTARTED,
    begin_again,
    failure_to_judge,
    is_prefilled,
    tried_in_place,
)
from muster.control.tell_agent import TellAgent
from muster.core.ids import AgentId, SessionId
from muster.core.owner import Owner
from muster.core.reasons.of_dependencies import NoAddressYet
from muster.core.specs.session import url_variable
from muster.core.states import KernelStatus, SessionStatus
from muster.core.uids import ClusterUid
from muster.store.live import Live
from muster.store.records import Agent, Kernel, Session
from muster.wire.messages import KernelTemplate, Recall, Start

LOOK_FOR_ADDRESS_S = 1.0
"""How often it is looked whether the address of a deployment is known."""
_TO_START = frozenset({KernelStatus.PREPARED, KernelStatus.CREATING})


class StartSessions(HeardPhase):
    """Starts the kernels of PREPARED sessions, and starts kernels again that an agent failed to
    start.

    A prefilled kernel that waits for too long is recalled: there may be room for it elsewhere.
    """

    name = "StartSessions"
    between_tries = True
    target_kernel_statuses = UNSTARTED
    entity = Session
    statuses = frozenset({SessionStatus.PREPARED, SessionStatus.CREATING})
    transitions = tried_in_place(
        TransitionStatus(SessionStatus.CREATING, TransitionStatus(KernelStatus.CREATING))
    )

    def __init__(self, cluster: ClusterState, unheard: Unheard) -> None:
        super().__init__(unheard)
        self._cluster = cluster

    def execute(self, targets: Sequence[Session], work: Work) -> HandlerResult[Session]:
        result: HandlerResult[Session] = HandlerResult()
        for session in targets:
            failure = failure_to_judge(session)
            if failure is not None:
                result.failures[session] = failure
            elif session.tally.failed:
                if again := begin_again(session, work):
                    send_starts(session, again, work, self._cluster)
            elif lacking := without_address(session, work.live, self._cluster, work.now):
                work.try_later(session, work.now + LOOK_FOR_ADDRESS_S)
                result.skipped[session] = (NoAddressYet(on=lacking),)
            elif session.status is SessionStatus.PREPARED:
                send_starts(session, session.kernels, work, self._cluster)
                result.successes.append(session)
            elif is_prefilled(session, work):
                self._recall_late(session, work)
        return result

    def _recall_late(self, session: Session, work: Work) -> None:
        kernel = session.kernels[0]
        if work.now >= session.status_changed_at + RECALL_AFTER_S:
            recall(kernel, work)

    def began(self, record: Session) -> float:
        """When the phase began; for a gang whose barrier is open, when it was opened."""
        return max(record.status_changed_at, record.barrier_opened_at or 0.0)

    def timeout_s(self, record: Session, work: Work) -> float | None:
        if record.status is SessionStatus.CREATING and is_prefilled(record, work):
            return None  # a prefilled kernel waits for another to end
        return work.live.groups[record.group].create_timeout


def recall_prefilled(
    work: Work, agent_id: AgentId, unless: Callable[[Session], bool] = lambda session: False
) -> None:
    """Have the agent give back its prefilled kernels, which it has not started.

    Args:
        unless: whether a session's kernel may stay.
    """
    for allocation in work.live.allocations_on.get(agent_id, {}).values():
        kernel = work.live.kernels.get(allocation.kernel_id)
        if allocation.charged or kernel is None or kernel.generation != allocation.generation:
            continue
        if not unless(kernel.session):
            recall(kernel, work)


def recall(kernel: Kernel, work: Work) -> None:
    """Have the agent give the kernel back, unless it has begun; the agent is told once. A kernel
    that is to end is told to stop instead."""
    if kernel.status is KernelStatus.TERMINATING or kernel.agent_id is None:
        return
    if not kernel.recalled:
        kernel.recalled = True
        work.emit(TellAgent(kernel.agent_id, Recall(kernel.id, kernel.generation)))


class Templates:
    """The templates and gangs that kernels which start in one wake share."""

    def __init__(self) -> None:
        self._gangs: dict[tuple[SessionId, int], Gang] = {}  # by session and generation
        # Keys hold identities, because sessions with equal specs share one object.
        self._made: dict[
            tuple[int, int, bool, int | None, Owner, ClusterUid | None], KernelTemplate
        ] = {}
        self._bare: dict[int, KernelTemplate] = {}

    def gang(self, session: Session, work: Work) -> Gang | None:
        """The facts that the session's kernels know of each other; None if it is no gang."""
        if not is_gang(session):
            return None
        key = session.id, session.kernels[0].generation
        made = self._gangs.get(key)
        if made is None:
            made = self._gangs[key] = gang_of(session, work.live.agents)
        return made

    def of(self, kernel: Kernel, gang: Gang | None, uid: ClusterUid | None) -> KernelTemplate:
        lists_hosts = gang is not None and gang.hosts != "" and kernel.index == 0
        task = kernel.task_index if has_own_command(kernel) else None
        key = id(kernel.process), id(gang), lists_hosts, task, kernel.session.owner, uid
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = template(kernel, gang, uid)
        return made

    def changed(
        self, shared: KernelTemplate, wanted: Mapping[str, str]
    ) -> tuple[KernelTemplate, Mapping[str, str]]:
        """A template and variables that together give a kernel the environment ``wanted``, which a
        hook made from the environment of ``shared``."""
        if wanted.keys() >= shared.env.keys():
            has = shared.env
            return shared, {name: text for name, text in wanted.items() if has.get(name) != text}
        bare = self._bare.get(id(shared))
        if bare is None:
            bare = self._bare[id(shared)] = replace(shared, env={})
        return bare, wanted


def without_address(session: Session, live: Live, cluster: ClusterState, now: float) -> str | None:
    """A deployment that a PREPARED session uses, and whose address is not known: after a start of
    the controller proxies have to report first, which they do within a second or two."""
    if session.status is not SessionStatus.PREPARED:
        return None
    for kernel in session.kernels:
        agent = None if kernel.agent_id is None else live.agents.get(kernel.agent_id)
        if agent is None:
            continue
        for name in kernel.process.uses:
            if cluster.deployments.url(name, agent.host, now) is None:
                return name
    return None


def _urls(kernel: Kernel, agent: Agent, work: Work, cluster: ClusterState) -> dict[str, str]:
    """The addresses of the deployments that a kernel uses, by their variables."""
    urls = {
        url_variable(name): cluster.deployments.url(name, agent.host, work.now)
        for name in kernel.process.uses
    }
    return {variable: url for variable, url in urls.items() if url is not None}


def send_starts(
    session: Session, kernels: Iterable[Kernel], work: Work, cluster: ClusterState
) -> None:
    """Send start commands for those of the ``kernels`` that are to start."""
    templates = work.once(Templates)
    gang = templates.gang(session, work)
    hold = is_closed(session)
    is_work = session.service is None
    of_service = cluster.service_variables.of(session.id)
    asks_hook = is_work and cluster.hooks.changes_environments(session)
    for kernel in kernels:
        allocation = work.live.ledger.get((kernel.id, kernel.generation))
        if kernel.status not in _TO_START or allocation is None:
            continue
        agent = work.live.agents.get(allocation.agent_id)
        uid = cluster.uids.for_agent(work, session.owner, agent) if is_work else None
        shared = templates.of(kernel, gang, uid)
        own: Mapping[str, str] = own_variables(kernel, gang, agent.name if agent else "")
        if kernel.process.uses and agent is not None:
            own = {**own, **_urls(kernel, agent, work, cluster)}
        if is_work:
            needed = cluster.hooks.variables(kernel, fixed_port(kernel))
            own = {**own, **needed} if needed else own
        if asks_hook:
            whole = {**shared.env, **own}
            wanted = cluster.hooks.before_start(session, whole)
            if wanted is not whole:
                shared, own = templates.changed(shared, wanted)
        if of_service:  # after the hook, which is not to see a secret
            own = {**own, **of_service}
        command = Start(
            kernel.id,
            kernel.generation,
            shared,
            own,
            allocation.shares,
            not allocation.charged,
            hold,
        )
        work.emit(TellAgent(allocation.agent_id, command))
