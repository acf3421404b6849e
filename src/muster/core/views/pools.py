"""Answers about pools, slices, and the decisions of the autoscaler."""

from typing import Any

from msgspec import field

from muster.core.states.slice import SliceStatus
from muster.core.views.base import ReasonView, RecordView, View


class PoolView(RecordView):
    """A pool. What is counted, and all that follows ``replacing``, is of a pool that exists.

    Args:
        spec: as ``PoolSpec``; the values of ``settings`` are for admins alone.
        revision: counts the changes that concern its machines; slices of a former one are outdated.
        slices: how many there are in each status; ``leaving`` counts those that are being deleted,
            and ``outdated`` those of former revisions.
        machines: of all its slices.
        price: of all its machines an hour.
        replacing: how many outdated slices are replaced at a time; 0 if none are.
        closed: why it makes nothing now; None if it may.
        reported: the shape that its machines have, as ``MachineShape``; None until some were ready.
        differs: how that shape differs from the one in the spec; None where it does not.
        listed_at: when its provider last listed its machines, in seconds since the epoch.
        list_error: why the last list failed, in the provider's words.
        unknown_machines: machines that are listed, and belong to no known slice.
        losses: slices that it lost of late.
        usual_s: the usual time from the wish for a slice until it is READY; None until one was.
    """

    name: str
    group: str
    provider: str
    status: str
    status_changed_at: float
    created_at: float
    finished_at: float | None = None
    spec: dict[str, Any] = field(default_factory=dict)
    revision: int
    reason: ReasonView | None = None
    slices: dict[SliceStatus, int] = field(default_factory=dict)
    leaving: int = 0
    outdated: int = 0
    machines: int = 0
    price: float = 0.0
    replacing: int = 0
    closed: ReasonView | None = None
    reported: dict[str, Any] | None = None
    differs: ReasonView | None = None
    listed_at: float | None = None
    list_error: str = ""
    unknown_machines: int = 0
    losses: int = 0
    usual_s: float | None = None


class PoolPage(View):
    """Pools, newest first. ``next`` continues the listing as ``cursor``; None at its end."""

    items: tuple[PoolView, ...]
    next: str | None = None


class MachineView(View):
    """A machine of a slice: the name that its agent takes, the provider's id and an address, empty
    until they are known; ``agent`` is the agent's id once it has ``joined``, and nothing was heard
    of it since ``silent_since``, None while it is heard."""

    name: str
    id: str = ""
    address: str = ""
    agent: str | None = None
    joined: bool = False
    silent_since: float | None = None


class SliceView(RecordView):
    """Machines of a pool that are made and deleted together; times are seconds since the epoch.

    Args:
        revision: of the pool, when it was made; ``outdated`` if the pool has another now.
        machines: the first of them, none in a list; ``other_machines`` are not told. As many as
            ``joined`` are heard now.
        kernels: how many hold room on it.
        doomed: why it is being deleted, None if it is not; work may stay until ``leave_by``, or
            to its end where that is None.
        failed: whether it is deleted because it went wrong.
        held_by: the operator who keeps it.
        idle_since: since when nobody used it nor was promised room on it.
        silent: which of its machines is silent, and when the slice is replaced for that.
        stays: why it is not being deleted.
        deletes_at: when it is deleted if nobody uses it.
        tries: of the present call of the provider that failed; ``reason`` is why the last one did,
            or why it ended.
        price: of its machines an hour; ``cost`` is that times the hours since it was asked for, of
            machines that the provider made.
    """

    pool: str
    group: str
    status: SliceStatus
    status_changed_at: float
    revision: int
    outdated: bool = False
    machines: tuple[MachineView, ...] = ()
    other_machines: int = 0
    joined: int = 0
    kernels: int = 0
    doomed: ReasonView | None = None
    doomed_at: float | None = None
    leave_by: float | None = None
    failed: bool = False
    held_by: str | None = None
    idle_since: float | None = None
    silent: ReasonView | None = None
    stays: ReasonView | None = None
    deletes_at: float | None = None
    tries: int = 0
    reason: ReasonView | None = None
    created_at: float
    ready_at: float | None = None
    finished_at: float | None = None
    price: float = 0.0
    machine_hours: float = 0.0
    cost: float = 0.0


class SlicePage(View):
    """Slices, newest first. ``next`` continues the listing as ``cursor``; None at its end."""

    items: tuple[SliceView, ...]
    next: str | None = None


class ShapeView(View):
    """The shape of sessions: what each kernel asks for, how many kernels a session has, and the
    rules that bind them to machines. ``sessions`` wait with this shape, the ``first`` of them in
    the queue, if the caller may see it."""

    asks: str
    kernels: int = 1
    rules: tuple[str, ...] = ()
    sessions: int = 0
    first: str | None = None


class RoutedView(View):
    """Waiting sessions of one shape that are to find room: on agents that are there
    (``destination`` "free"), on slices that are coming ("coming"), or on slices that were just
    asked for ("launch"), some of which are ``slices`` of ``pool``; ``other_slices`` are not
    told."""

    shape: ShapeView
    destination: str
    pool: str | None = None
    slices: tuple[str, ...] = ()
    other_slices: int = 0


class RefusalView(View):
    """Why a pool does not serve a shape."""

    pool: str
    reasons: tuple[ReasonView, ...]


class UnmetView(View):
    """Waiting sessions of one shape that no pool serves now.

    Args:
        could_be_met: whether a pool has such machines, and only may not make more of them now.
        never: why the group could never hold such a gang, whatever its pools make.
        nearest: a value of pools that may have been meant.
        pools: why each does not; ``other_pools`` are not told.
    """

    shape: ShapeView
    could_be_met: bool
    never: ReasonView | None = None
    nearest: str | None = None
    pools: tuple[RefusalView, ...] = ()
    other_pools: int = 0


class EntryView(View):
    """A waiting session that is to find room: its ``tasks``, where a job has it, as ids; the slices
    of ``pool`` on which its room is, ids or ``pool+number`` of one that is still to be asked for,
    ``other_slices`` are not told; and ``why`` it goes there."""

    session: str
    tasks: tuple[str, ...] = ()
    destination: str
    pool: str | None = None
    slices: tuple[str, ...] = ()
    other_slices: int = 0
    why: str = ""


class WithheldView(View):
    """Waiting sessions of one shape that are no demand, because a rule such as a quota forbids them
    to start once those ahead of them have."""

    shape: ShapeView
    reasons: tuple[ReasonView, ...]


class PendingView(View):
    """The slices of a pool that are coming or were asked for, how many entries are routed to them,
    and the amounts that these leave."""

    pool: str
    slices: int
    machines: int
    entries: int
    remaining: str


class DecisionView(View):
    """A decision about a group's demand; its fields are those of ``AutoscalerView``."""

    routed: tuple[RoutedView, ...] = ()
    other_routed: int = 0
    unmet: tuple[UnmetView, ...] = ()
    other_unmet: int = 0
    withheld: tuple[WithheldView, ...] = ()
    other_withheld: int = 0
    entries: tuple[EntryView, ...] = ()
    other_entries: int = 0
    pending: tuple[PendingView, ...] = ()
    launches: dict[str, int] = field(default_factory=dict)


class UsageView(View):
    """Slices with the hours of their machines, and what these cost in the currency of the pools'
    prices."""

    slices: int = 0
    machine_hours: float = 0.0
    cost: float = 0.0


class AutoscalerView(View):
    """A scaling group with pools: what it has, and the last decision about its demand.

    Args:
        pools: by name; ``other_pools`` are not told.
        slices: how many there are in each status; ``leaving`` counts those that are being deleted.
        machines, gpus, price: of all slices; the price is that of an hour.
        max_machines, max_gpus, max_price: the group's limits; None is no limit.
        decided_at: when that decision was made; None if none was yet.
        is_former: whether it was made before this controller started, which has made none yet.
        routed, unmet: waiting sessions by shape; ``other_routed`` and ``other_unmet`` are shapes
            that are not told.
        withheld: waiting sessions that are no demand; ``other_withheld`` shapes are not told.
        entries: the first waiting sessions that the caller may see and that are to find room;
            ``other_entries`` are not told.
        pending: the slices in flight by pool, with what the demand leaves of them.
        launches: how many slices of each pool the decision asked for.
        live, ended: the use so far: of slices that exist, and of those that ended after
            ``ended_since``, in seconds since the epoch (None if none has).
    """

    group: str
    pools: tuple[PoolView, ...] = ()
    other_pools: int = 0
    slices: dict[SliceStatus, int] = field(default_factory=dict)
    leaving: int = 0
    machines: int = 0
    gpus: int = 0
    price: float = 0.0
    max_machines: int | None = None
    max_gpus: int | None = None
    max_price: float | None = None
    decided_at: float | None = None
    is_former: bool = False
    routed: tuple[RoutedView, ...] = ()
    other_routed: int = 0
    unmet: tuple[UnmetView, ...] = ()
    other_unmet: int = 0
    withheld: tuple[WithheldView, ...] = ()
    other_withheld: int = 0
    entries: tuple[EntryView, ...] = ()
    other_entries: int = 0
    pending: tuple[PendingView, ...] = ()
    launches: dict[str, int] = field(default_factory=dict)
    live: UsageView = field(default_factory=UsageView)
    ended: UsageView = field(default_factory=UsageView)
    ended_since: float | None = None


class AutoscalerPage(View):
    """The groups that have pools, by name."""

    items: tuple[AutoscalerView, ...]
