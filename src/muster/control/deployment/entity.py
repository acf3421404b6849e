"""The entities of deployments and routes: their records and their tables."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NewType

from sqlalchemy import Connection, Index, Row, String, select

from muster.control.deployment.revisions import Revision
from muster.core.ids import IdKind, KernelId, SessionId
from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.core.results import SchedulingResult
from muster.core.specs.deployment import DeploymentSpec
from muster.core.specs.serving import ProbeSpec
from muster.core.states.deployment import (
    DEPLOYMENT_TABLE,
    ROUTE_TABLE,
    EndpointLifecycle,
    RouteStatus,
)
from muster.serving.rollout import Rollout
from muster.store.entity import Entity, Tried, Visible
from muster.store.fields import (
    Fixed,
    Key,
    LongText,
    Memory,
    Reference,
    Seldom,
    StoredAs,
    Written,
)
from muster.store.live import Live
from muster.store.lookup import Lookup
from muster.store.record_table import (
    Computed,
    RecordTable,
    index,
    index_by_owner,
    index_live,
    owner_through,
)
from muster.store.spec_columns import index_whole_specs, spec_columns
from muster.store.sql import one_of

DeploymentId = NewType("DeploymentId", str)
RouteId = NewType("RouteId", str)


def _dump_spec(spec: DeploymentSpec) -> str:
    return spec.model_dump_json(exclude_unset=True)


@dataclass(slots=True, eq=False, kw_only=True)
class Deployment(Tried):
    """A service that wants replicas.

    ``revision`` is the number of the spec's own revision, ``stable`` that of the revision which
    serves while none is rolled out; they differ while ``rollout`` is under way, and after it has
    failed. ``proven`` says that a replica of ``stable`` has been healthy. ``replicas`` is how many
    are wished, changed last at ``scaled_at``. ``probe_version`` counts changes of probes.
    ``failed_starts`` counts replicas of ``stable`` in a row that ended before they had served, the
    last of them at ``failed_at``. ``unserved_at`` is when its last replica that served was lost,
    None while one serves; ``outage_told`` says that channels were told of that. ``spec_bytes`` is
    the size of spec and revisions as they are stored. ``reason`` is why it is as it is: why a
    revision was given up, until there is another. ``secret`` is what requests of proxies and
    probers carry to its replicas (``muster.core.serving.secret``); no view has it but that of
    proxies.
    """

    id: Key[DeploymentId]
    name: Fixed[str]
    owner: Fixed[Owner]
    status: EndpointLifecycle
    created_at: Fixed[float]
    finished_at: float | None = None
    spec: Seldom[Annotated[DeploymentSpec, StoredAs(dump=_dump_spec)]]
    revisions: Seldom[tuple[Revision, ...]]
    secret: Fixed[LongText] = field(repr=False)
    revision: int
    stable: int
    proven: bool = False
    replicas: int
    scaled_at: float
    probe_version: int = 0
    rollout: Rollout | None = None
    failed_starts: int = 0
    failed_at: float | None = None
    unserved_at: float | None = None
    outage_told: bool = False
    spec_bytes: Memory[int] = 0
    reason: Reason | None = None

    @property
    def is_going(self) -> bool:
        """Whether it is being taken down, or is over."""
        return self.status in (EndpointLifecycle.DESTROYING, EndpointLifecycle.DESTROYED)

    @property
    def host(self) -> str | None:
        return self.spec.host

    @property
    def group(self) -> str:
        """The group of its own revision; replicas of another have that of their template."""
        return self.spec.group

    def numbered(self, number: int) -> Revision | None:
        """A revision by its number; None if it is not kept."""
        return next((each for each in self.revisions if each.number == number), None)

    def probe_of(self, number: int) -> ProbeSpec:
        """The probe of a revision's replicas. That of a former one is what it was when another was
        handed in, so that no probe of another program judges it."""
        if number == self.revision:
            return self.spec.probe
        revision = self.numbered(number)
        if revision is None or revision.probe is None:
            return self.spec.probe
        return revision.probe


@dataclass(slots=True, eq=False, kw_only=True)
class Route(Tried):
    """A replica of a deployment: an inference session and its address.

    ``good`` is whether its last completed probe was, None before the first; ``good_at`` is when it
    was first HEALTHY, and ``healthy_since`` the beginning of the time in which it has been HEALTHY
    without a bad probe; None while it is not HEALTHY.
    ``kernel_id`` is that of its session, by which it is known whether room is held for it still.
    """

    id: Key[RouteId]
    deployment: Annotated[Deployment, Reference("deployment_id")]
    revision: Fixed[int]
    status: RouteStatus
    created_at: Fixed[float]
    finished_at: float | None = None
    session_id: SessionId | None = None
    kernel_id: KernelId | None = None
    address: str | None = None
    good: bool | None = None
    good_at: float | None = None
    healthy_since: float | None = None
    reason: Reason | None = None

    @property
    def name(self) -> str:
        """Its name in the mirror and in history: below its deployment, whose history it is in."""
        return f"{self.deployment.id}/{self.id}"

    @property
    def owner(self) -> Owner:
        return self.deployment.owner

    @property
    def probe(self) -> ProbeSpec:
        """The probe of its revision."""
        return self.deployment.probe_of(self.revision)


NOT_BEGUN = frozenset({EndpointLifecycle.PENDING, EndpointLifecycle.CREATED})
"""The states in which a deployment waits for the work on which it depends."""


def waits_for(deployment: Deployment) -> Collection[str]:
    """The ids of the work for which a deployment waits; none once it has begun."""
    if deployment.status not in NOT_BEGUN:
        return ()
    return {each.on for each in deployment.spec.after}


DEPLOYMENTS = RecordTable(
    Deployment,
    "deployments",
    DEPLOYMENT_TABLE,
    computed={
        "host": Computed(String, "spec.host", may_be_null=True, written=Written.SELDOM),
        "group": Computed(String, "spec.group", written=Written.SELDOM),
        **spec_columns(Written.SELDOM),
    },
)
deployments = DEPLOYMENTS.table
index_live(DEPLOYMENTS)
index_by_owner(deployments)
index_whole_specs(DEPLOYMENTS)

ROUTES = RecordTable(Route, "routes", ROUTE_TABLE, computed=owner_through("deployment.owner"))
routes = ROUTES.table
index_live(ROUTES)
Index("routes_by_deployment", routes.c.deployment_id, routes.c.id)
_IS_LIVE = routes.c.status.in_(sorted(ROUTE_TABLE.live))
index("routes_live_by_deployment", routes.c.deployment_id, routes.c.status, where=_IS_LIVE)

_DESTROYED = Lookup(
    select(deployments)
    .where(
        deployments.c.status == str(EndpointLifecycle.DESTROYED),
        deployments.c.id.in_(
            select(routes.c.deployment_id).where(one_of(routes.c.status, ROUTE_TABLE.live))
        ),
    )
    .order_by(deployments.c.id)
)


def _load_deployments(connection: Connection, live: Live) -> None:
    for row in DEPLOYMENTS.live.named(connection):
        live.add(_deployment(row))


def _load_routes(connection: Connection, live: Live) -> None:
    """Bring the live routes, those of deployments that were destroyed before them too."""
    gone = {row.id: _deployment(row) for row in _DESTROYED.named(connection)}
    known = live.of(Deployment)
    for row in ROUTES.live.named(connection):
        deployment = known.get(row.deployment_id) or gone.get(row.deployment_id)
        if deployment is not None:
            live.add(ROUTES.load(row, deployment=deployment))


def _deployment(row: Row[Any]) -> Deployment:
    size = len(row.spec.encode()) + len(row.revisions.encode())
    return DEPLOYMENTS.load(row, spec_bytes=size)


dump_revisions = DEPLOYMENTS.dumper("revisions")
load_revisions = DEPLOYMENTS.loader("revisions")
load_rollout = DEPLOYMENTS.loader("rollout")


def stored_bytes(spec: DeploymentSpec, revisions: Sequence[Revision]) -> int:
    """The bytes of a deployment's spec and revisions as they are stored."""
    return len(_dump_spec(spec).encode()) + len(dump_revisions(revisions).encode())


def _joins(live: Live, deployment: Deployment) -> None:
    live.holdings.set_open(deployment.id, deployment.owner, deployment.spec_bytes)


def _leaves(live: Live, deployment: Deployment) -> None:
    live.holdings.ended(deployments.name, deployment.id)


DEPLOYMENT = Entity(
    "deployment",
    DEPLOYMENTS,
    _load_deployments,
    described="a service that wants replicas",
    joins=_joins,
    leaves=_leaves,
    waits_for=waits_for,
    prefix=IdKind.DEPLOYMENT,
    visible=Visible.TO_OWNER,
    not_attempted=SchedulingResult.FAILURE,
)

ROUTE = Entity(
    "route",
    ROUTES,
    _load_routes,
    described="a replica of a deployment: an inference session and its address",
    prefix=IdKind.ROUTE,
    visible=Visible.TO_OWNER,
    not_attempted=SchedulingResult.FAILURE,
    id_of=lambda route: route.name,
    id_column=routes.c.deployment_id + "/" + routes.c.id,
    part_of=lambda route: route.deployment,
)
