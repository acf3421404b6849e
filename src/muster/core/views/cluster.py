"""Answers about the cluster: agents, scaling groups, quotas, and the controller itself."""

from typing import Any

from msgspec import field

from muster.core.states import AgentBar, AgentStatus, KernelStatus
from muster.core.states.health import HealthStatus
from muster.core.views.base import OwnerView, ReasonView, RecordView, ResourcesView, View
from muster.core.views.work import ShareView


class DeviceView(View):
    """One GPU of an agent; ``free`` is the share of it that nobody holds."""

    index: int
    model: str
    uuid: str = ""
    memory_bytes: int = 0
    free: float = 1.0


class AgentView(RecordView):
    """A machine; of one that was removed nothing is ``free`` or ``held``.

    ``kernels`` counts those that hold resources of it, ``prefilled`` those in its backlog;
    ``seen_at`` is when it last spoke, None if that is not known because this controller has not
    heard it yet; ``connected`` is whether the controller can reach it now, ``barred`` why it takes
    no new work, if it takes none, with ``bar_note`` in an operator's words. The kernels of a
    draining agent are stopped at ``leave_by``; an agent that is ``disk_full`` takes no new work
    until it has room, and a machine of a slice none while it is ``withheld`` for the reason told
    there. ``ill`` says in a word or two why an incident keeps it out of work, empty if none does;
    ``incident`` is the id of the incident that has not ended, if there is one. ``stragglers`` tells
    of GPUs that may hold up the gangs that run on them."""

    name: str
    group: str
    status: AgentStatus
    status_changed_at: float
    version: str
    host: str
    capacity: ResourcesView
    free: ResourcesView
    held: ResourcesView
    devices: tuple[DeviceView, ...] = ()
    attributes: dict[str, str] = field(default_factory=dict)
    kernels: int = 0
    prefilled: int = 0
    joined_at: float
    seen_at: float | None
    barred: AgentBar | None = None
    bar_note: str = ""
    leave_by: float | None = None
    disk_full: bool = False
    withheld: str = ""
    ill: str = ""
    incident: str | None = None
    stragglers: tuple[str, ...] = ()
    connected: bool = True
    reason: ReasonView | None = None


class AgentPage(View):
    """The agents that match the question, by name, all on one page: ``next`` is None."""

    items: tuple[AgentView, ...]
    next: str | None = None


class HeldKernelView(View):
    """A kernel that holds room of an agent.

    Args:
        work: the name of its work as people type it, such as train/3.
        owner: of the work; None for a service of the machine itself.
        service: the service's name, if it is one.
        devices, resources: what it holds of the agent.
        since: when it got that, in seconds since the epoch.
        started_at: when it began to run, if it has.
    """

    id: str
    session_id: str
    job_id: str | None = None
    work: str
    owner: OwnerView | None = None
    service: str = ""
    status: KernelStatus
    devices: tuple[ShareView, ...] = ()
    resources: ResourcesView
    since: float
    started_at: float | None = None


class HeldKernelPage(View):
    """The kernels that hold room of an agent, those that have it longest first, all on one page.
    ``others`` counts those of others, which the asker may not see, ``other_gpu_milli`` their
    thousandths of GPUs."""

    items: tuple[HeldKernelView, ...]
    others: int = 0
    other_gpu_milli: int = 0


class GroupView(View):
    """A scaling group: its policy in the form of ``ScalingGroup``, its agents, its queue.

    Args:
        agents: its machines, whoever made them.
        statuses: how many of them have which status.
        devices, devices_free: their GPUs, and how much of these nobody holds.
        pools: how many it has.
        machines, gpus, price: of all slices of its pools, those being deleted included: what counts
            toward ``max_machines``, ``max_gpus`` and ``max_price``; the price is that of an hour.
        incidents: of its machines, by status.
        out: how many machines take no work for the sake of an incident.
        may_be_out: how many may be emptied, checked and healed at a time
            (``health.max_unhealthy``).
        refused: the plug-ins of the policy that do not serve, and why, and the health checks of it
            that connected agents lack.
    """

    name: str
    spec: dict[str, Any]
    agents: int = 0
    statuses: dict[AgentStatus, int] = field(default_factory=dict)
    devices: int = 0
    devices_free: float = 0.0
    waiting: int = 0
    pools: int = 0
    machines: int = 0
    gpus: int = 0
    price: float = 0.0
    incidents: dict[HealthStatus, int] = field(default_factory=dict)
    out: int = 0
    may_be_out: int = 0
    refused: tuple[ReasonView, ...] = ()


class GroupPage(View):
    """All scaling groups, by name."""

    items: tuple[GroupView, ...]


class LimitView(View):
    """A limit and its use, in canonical amounts or numbers of sessions; ``used`` is None where the
    limit holds for each of several owners. ``group`` and ``model`` are the only ones that it
    counts."""

    resource: str
    used: int | None
    limit: int
    group: str | None = None
    model: str | None = None


class QuotaView(View):
    """The limits of one owner at one level (``core.specs.quota.QuotaSpec``).

    Args:
        level: domain, project or user.
        name: as the quota names its owner; with ``*`` it stands for several owners.
        of: the owner whose use is counted; None with ``*``, unless an owner asks whom the quota
            binds.
        limits: of the amounts that placed sessions hold together.
        sessions: how many may be placed at a time.
        pending_sessions: how many may wait.
        open_work: how many jobs, sessions and deployments that have not ended may be there.
        open_specs: bytes that their specs may take.
        ended_specs: bytes of large specs of ended work that are kept whole.
        max_priority: the highest priority of work.
        unlimited: keys that have no limit, whatever other quotas say.
        largest: the limit for one session, in canonical amounts; ``gpu (H100)`` is one of GPUs of a
            model.
        is_nobodys: whether there is no such domain, project or user yet.
    """

    level: str
    name: str
    of: str | None = None
    limits: tuple[LimitView, ...] = ()
    sessions: LimitView | None = None
    pending_sessions: LimitView | None = None
    open_work: LimitView | None = None
    open_specs: LimitView | None = None
    ended_specs: LimitView | None = None
    max_priority: LimitView | None = None
    unlimited: tuple[str, ...] = ()
    largest: dict[str, int] = field(default_factory=dict)
    weight: float = 1.0
    is_nobodys: bool = False


class QuotaPage(View):
    """All quotas for an admin, else the quotas that bind the caller; by level and name."""

    items: tuple[QuotaView, ...]


class HealthView(View):
    """The controller's health; the only answer without a token. ``status`` is "ok", or "degraded"
    while nothing can be stored, or a part of the controller rests because it failed; ``reason`` is
    a sentence that says which. ``proxies`` are the URLs at which deployments are reached."""

    status: str
    version: str
    reason: str | None = None
    proxies: tuple[str, ...] = ()


class ClusterView(View):
    """The cluster as a whole; ``agents`` are by status, ``unauthenticated`` the requests without a
    good token since the controller started; the other counts are of live records. ``trouble`` is
    why the controller is "degraded", if it is; only admins are told. ``now`` is the cluster's time,
    of which the time of day on the controller's machine is ``clock_leap_s`` ahead: a clock that is
    set does not change the cluster's time. Of these seconds the machine was suspended for
    ``clock_suspended_s``, while the controller ran. It is not ``clock_confirmed`` where no agent
    could tell how much time had passed when the controller started. Users are given uids of the
    range ``uids``, written FIRST-LAST; ``uids_left`` of them are free. ``balancers`` has what is
    wrong with each that stands outside Muster, by its name, nothing if it follows; admins alone are
    told."""

    id: str
    version: str
    now: float
    clock_leap_s: float = 0.0
    clock_suspended_s: float = 0.0
    clock_confirmed: bool = True
    uids: str = ""
    uids_left: int = 0
    agents: dict[AgentStatus, int] = field(default_factory=dict)
    jobs: int = 0
    sessions: int = 0
    waiting: int = 0
    kernels: int = 0
    unauthenticated: int = 0
    trouble: str | None = None
    balancers: dict[str, str] = field(default_factory=dict)
