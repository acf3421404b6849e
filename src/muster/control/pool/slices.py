"""The lifecycle of slices: what happens when one is made, gets ready, is doomed or is gone."""

from collections.abc import Iterable

from muster.autoscaling.standing import CreateOutcome
from muster.control.agent.lifecycle import AgentLifecycle, lose_kernels
from muster.control.engine.lifecycle import Lifecycle
from muster.control.engine.retries import NO_LIMIT, RetryPolicy
from muster.control.engine.work import Move, Work
from muster.control.pool.effects import ANSWER_S
from muster.control.pool.fleet import Fleet
from muster.control.pool.outlook import Usual
from muster.control.pool.records import OwnMachine, Pool, Slice, SliceId
from muster.control.pool.specs import forget_spec
from muster.control.pool.turns import SliceTurns
from muster.control.session.cluster.state import ClusterState
from muster.control.session.handlers.start import recall_prefilled
from muster.control.session.heard_time import LOOK_AGAIN_S
from muster.control.session.kernel_reports import KernelReports
from muster.control.session.must_leave import Departure, note_departure
from muster.core.ids import AgentId, IdKind
from muster.core.reasons import Reason
from muster.core.reasons.of_agents import AgentSliceGone
from muster.core.reasons.of_kernels import AgentLost
from muster.core.reasons.of_machines import ProviderRefused
from muster.core.results import SchedulingResult
from muster.core.states import AgentStatus
from muster.core.states.slice import SLICE_TABLE, SliceStatus
from muster.store.records import Agent
from muster.store.tokens import new_secret

RETRIES = RetryPolicy(NO_LIMIT, backoff_s=5.0, longest_backoff_s=300.0)
"""The tries to make a slice, which its time limit ends, and to delete one, which nothing ends:
machines that are not deleted cost money."""
DEAD_S = 300.0
"""How long a lost agent may come back before its slice is replaced, while its provider lists the
machine."""
WORDS_S = 20.0
"""How long the last words of a machine that did not join in time are waited for."""
LEAVE_S = 120.0
"""How long kernels that were told to leave may stay on a slice before its machines are deleted with
them."""
MAY_STAY_S = LEAVE_S / 2
"""How long services may keep work on a slice past the moment at which it has to have left; what has
to leave at once then has as long again."""
_FINAL = frozenset(
    {
        CreateOutcome.STOCK_OUT,
        CreateOutcome.QUOTA,
        CreateOutcome.CREDENTIALS,
        CreateOutcome.BAD_REQUEST,
    }
)
"""Outcomes with which nothing was made, and nothing would be by another try at once."""


class SliceLifecycle(Lifecycle[Slice]):
    """Moves slices, and keeps what placement may do with their agents in line."""

    entity = Slice

    def __init__(
        self,
        cluster: ClusterState,
        agents: AgentLifecycle,
        kernel_reports: KernelReports,
        fleet: Fleet,
    ) -> None:
        self._cluster = cluster
        self._agents = agents
        self._kernel_reports = kernel_reports
        self._fleet = fleet
        self.turns = SliceTurns()
        self.changed_groups: set[str] = set()
        """Groups with slices that changed, so that demand is to be routed anew."""
        self.usual = Usual()

    # -- what others have slices do --------------------------------------------------------------

    def make(self, work: Work, pool: Pool, why: Reason) -> Slice:
        """Wish for a slice of a pool, as the pool is now."""
        id_ = SliceId(work.ids.new(IdKind.SLICE))
        spec = pool.spec
        names = [f"{spec.name}-{id_[-6:]}-{index}" for index in range(spec.slice_size)]
        slice_ = Slice(
            id=id_,
            pool=pool.name,
            group=pool.group,
            spec=spec,
            revision=pool.revision,
            status=SliceStatus.REQUESTING,
            status_changed_at=work.now,
            created_at=work.now,
            machines=tuple(map(OwnMachine, names)),
            secret=new_secret(),
        )
        work.unit.add(slice_)
        work.unit.note(slice_, "RouteDemand", SchedulingResult.SUCCESS, why)
        self._fleet.admit(slice_)
        work.mark(slice_)
        self.changed_groups.add(pool.group)
        return slice_

    def doom(
        self,
        work: Work,
        slice_: Slice,
        phase: str,
        why: Reason,
        *,
        failed: bool = False,
        leave_by: float | None = None,
    ) -> None:
        """Wish for the deletion of a slice; one that is to be deleted already goes no later.

        Args:
            failed: whether it went wrong.
            leave_by: until when work may stay on it; None is until now.
        """
        leave_by = work.now if leave_by is None else leave_by
        if slice_.doomed is not None:
            if slice_.leave_by is None or leave_by < slice_.leave_by:
                slice_.leave_by = leave_by
                work.unit.touch(slice_)
                work.mark(slice_)
                self._have_work_leave(work, slice_)
            return
        slice_.doomed, slice_.doomed_at, slice_.failed = why, work.now, failed
        slice_.leave_by, slice_.held_by = leave_by, None
        work.unit.touch(slice_)
        work.unit.note(slice_, phase, SchedulingResult.SUCCESS, why)
        slice_.reason = None  # it is to be made no more
        work.forget_tries(slice_)
        work.mark(slice_)
        agents = self._fleet.agents(slice_).values()
        self.withhold(slice_, agents)
        for agent in agents:
            recall_prefilled(work, agent.id)
        self.changed_groups.add(slice_.group)
        self._have_work_leave(work, slice_)

    def _have_work_leave(self, work: Work, slice_: Slice) -> None:
        for agent in self._fleet.agents(slice_).values():
            note_departure(work, agent, Departure(slice_.leave_by, slice_.doomed))

    def failed(self, work: Work, slice_: Slice, why: Reason) -> Reason:
        """Note why the last call of the provider about a slice failed; the answer is ``why``."""
        slice_.reason = why
        work.unit.touch(slice_)
        return why

    def give_up(self, work: Work, slice_: Slice, phase: str, why: Reason) -> None:
        """End a slice whose machines are off for good, whatever its provider says of them."""
        self.turns.end(slice_, work)  # a call under way may never succeed
        slice_.outcome = None
        self.doom(work, slice_, phase, why)
        if slice_.doomed != why:
            slice_.doomed, slice_.leave_by = why, work.now
            work.unit.note(slice_, phase, SchedulingResult.SUCCESS, why)
            work.unit.touch(slice_)
        work.forget_tries(slice_)
        work.mark(slice_)

    def agent_changed(self, agent: Agent) -> None:
        """Have placement see an agent as it is now."""
        self._cluster.agent_changed(agent)

    def withhold(self, slice_: Slice, agents: Iterable[Agent]) -> None:
        """Have these agents of the slice take work only while it is READY and to stay."""
        why = withheld(slice_)
        for agent in agents:
            if agent.withheld != why:
                agent.withheld = why
                if agent.status is not AgentStatus.REMOVED:
                    self._cluster.agent_changed(agent)

    # -- the engine's questions ------------------------------------------------------------------

    def moved(self, work: Work, record: Slice, move: Move) -> None:
        record.outcome = record.reason = None
        record.asked_words = record.words = None
        self.turns.end(record, work)
        self.changed_groups.add(record.group)
        pool = self._fleet.pool(record.pool)
        if pool is not None:
            work.mark(pool)
        if record.status is SliceStatus.READY:
            record.ready_at = work.now
            self.usual.saw(record)
            self._forget_secret(record)
            self.withhold(record, self._fleet.agents(record).values())
            self._keep_promises(record)
        elif record.status in SLICE_TABLE.terminal:
            record.finished_at = work.now
            record.reason = move.reason or record.doomed
            self._forget_secret(record)
            self._bury(work, record)
            self._forget_spec(work, record)

    def _forget_secret(self, slice_: Slice) -> None:
        self._fleet.admit_no_more(slice_)
        slice_.secret = ""

    def _forget_spec(self, work: Work, slice_: Slice) -> None:
        pool, revision = self._fleet.pool(slice_.pool), (slice_.pool, slice_.revision)
        is_former = pool is None or pool.revision != slice_.revision
        if is_former and not self._fleet.has_slices_of(revision):
            forget_spec(work.unit, revision)

    def _keep_promises(self, slice_: Slice) -> None:
        """Have room that was promised on coming machines be room on the agents that came."""
        agents = self._fleet.agents(slice_)
        came = {
            AgentId(f"{slice_.id}/{index}"): agents[name].id
            for index, name in enumerate(slice_.names)
            if name in agents
        }
        self._cluster.groups[slice_.group].queue.promises.came(came)

    def _bury(self, work: Work, slice_: Slice) -> None:
        """Forget the agents of a slice whose machines are gone, with all that ran there."""
        why = AgentSliceGone(slice=slice_.id, pool=slice_.pool)
        for agent in self._fleet.agents(slice_).values():
            held = list(work.live.allocations_on.get(agent.id, ()))
            lost = AgentLost(agent=agent.name)
            lose_kernels(work, agent, held, lost, self._kernel_reports, agent.seen_at)
            self._agents.remove(work, agent, "DeleteSlices", why)

    def deadlines(self, record: Slice, work: Work) -> Iterable[float]:
        if record.handed_at is not None:
            yield record.handed_at + ANSWER_S
        if record.doomed is not None:
            leave_by = record.leave_by or 0.0
            yield leave_by
            yield leave_by + LEAVE_S
            if leave_by <= work.now and self._fleet.kernels(record):
                yield work.now + LOOK_AGAIN_S  # a deployment may hold it up
            return
        limit_s = time_limit_s(record)
        if limit_s is not None:
            yield self._fleet.ends_at(record.status_changed_at, limit_s)
        if record.asked_words is not None:
            yield record.asked_words + WORDS_S
        for agent in self._fleet.agents(record).values():
            if agent.status is AgentStatus.LOST:
                yield self._fleet.ends_at(agent.status_changed_at, DEAD_S)

    def retry_policy(self, record: Slice, work: Work) -> RetryPolicy:
        return RETRIES

    def final(self, reason: Reason) -> bool:
        return isinstance(reason, ProviderRefused) and CreateOutcome(reason.outcome) in _FINAL

    def gave_up(self, phase: str, tries: int, reason: Reason) -> Reason:
        return reason


def withheld(slice_: Slice) -> str:
    """Why agents of the slice take no work, for people; empty if they may."""
    if slice_.doomed is not None:
        return "its slice is being deleted"
    if slice_.status is not SliceStatus.READY:
        return f"its slice is {slice_.status.lower()}"
    return ""


def time_limit_s(slice_: Slice) -> float | None:
    """How long the slice may stay in its status; None without a limit."""
    match slice_.status:
        case SliceStatus.REQUESTING:
            return slice_.spec.request_timeout
        case SliceStatus.BOOTING:
            return slice_.spec.boot_timeout
        case SliceStatus.INITIALIZING:
            return slice_.spec.join_timeout
        case _:
            return None
