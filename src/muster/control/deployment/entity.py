"""The entities of deployments and routes: their records, tables, and the mappings between them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NewType

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    Row,
    String,
    Table,
    Text,
    select,
)

from muster.control.deployment.revisions import Revision, dump_revisions, load_revisions
from muster.core.ids import IdKind, KernelId, SessionId
from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.core.specs.deployment import DeploymentSpec
from muster.core.specs.serving import ProbeSpec
from muster.core.states.deployment import (
    DEPLOYMENT_TABLE,
    ROUTE_TABLE,
    EndpointLifecycle,
    RouteStatus,
)
from muster.serving.rollout import Rollout
from muster.store import schema
from muster.store.entity import Entity, Tried, Visible
from muster.store.live import Live
from muster.store.lookup import Lookup
from muster.store.mapping import RowMapping
from muster.store.queries.listing import owner_of
from muster.store.rows import OWNER, REASON, STORED_SPEC, load_reason
from muster.store.sql import one_of

DeploymentId = NewType("DeploymentId", str)
RouteId = NewType("RouteId", str)

deployments = Table(
    "deployments",
    schema.metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("host", String, nullable=True),
    *schema.owner_columns(),
    Column("group", String, nullable=False),
    Column("status", String, nullable=False),
    Column("status_changed_at", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("finished_at", Float, nullable=True),
    Column("spec", Text, nullable=False),  # JSON, as DeploymentSpec
    Column("revisions", Text, nullable=False),  # JSON, as a list of Revision
    Column("secret", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("stable", Integer, nullable=False),
    Column("proven", Boolean, nullable=False),
    Column("replicas", Integer, nullable=False),
    Column("scaled_at", Float, nullable=False),
    Column("probe_version", Integer, nullable=False),
    Column("rollout", Text, nullable=True),  # JSON, as Rollout
    Column("failed_starts", Integer, nullable=False),
    Column("failed_at", Float, nullable=True),
    Column("unserved_at", Float, nullable=True),
    Column("outage_told", Boolean, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("retry_at", Float, nullable=False),
    *schema.reason_columns(),
    *schema.stored_spec_columns(),
    sqlite_with_rowid=False,
)
schema.index_whole_specs(deployments, DEPLOYMENT_TABLE.terminal)
routes = Table(
    "routes",
    schema.metadata,
    Column("id", String, primary_key=True),
    Column("deployment_id", String, nullable=False),
    *schema.owner_columns(),
    Column("revision", Integer, nullable=False),
    Column("status", String, nullable=False),
    Column("status_changed_at", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("finished_at", Float, nullable=True),
    Column("session_id", String, nullable=True),
    Column("kernel_id", String, nullable=True),
    Column("address", String, nullable=True),  # as host:port
    Column("good", Boolean, nullable=True),
    Column("good_at", Float, nullable=True),
    Column("healthy_since", Float, nullable=True),
    Column("tries", Integer, nullable=False),
    Column("retry_at", Float, nullable=False),
    *schema.reason_columns(),
    sqlite_with_rowid=False,
)
_LIVE_DEPLOYMENTS = deployments.c.status.in_(sorted(DEPLOYMENT_TABLE.live))
_LIVE_ROUTES = routes.c.status.in_(sorted(ROUTE_TABLE.live))
Index(
    "deployments_live",
    deployments.c.id,
    sqlite_where=_LIVE_DEPLOYMENTS,
    postgresql_where=_LIVE_DEPLOYMENTS,
)
Index(
    "deployments_by_owner",
    deployments.c.domain,
    deployments.c.project,
    deployments.c.user,
    deployments.c.id,
)
Index("routes_live", routes.c.id, sqlite_where=_LIVE_ROUTES, postgresql_where=_LIVE_ROUTES)
Index("routes_by_deployment", routes.c.deployment_id, routes.c.id)
Index(
    "routes_live_by_deployment",
    routes.c.deployment_id,
    routes.c.status,
    sqlite_where=_LIVE_ROUTES,
    postgresql_where=_LIVE_ROUTES,
)


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

    id: DeploymentId
    name: str
    owner: Owner
    status: EndpointLifecycle
    created_at: float
    finished_at: float | None = None
    spec: DeploymentSpec
    revisions: tuple[Revision, ...]
    secret: str = field(repr=False)
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
    spec_bytes: int = 0
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

    id: RouteId
    deployment: Deployment
    revision: int
    status: RouteStatus
    created_at: float
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


_DEPLOYMENTS = Lookup(
    select(deployments)
    .where(one_of(deployments.c.status, DEPLOYMENT_TABLE.live))
    .order_by(deployments.c.id)
)
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
_ROUTES = Lookup(
    select(routes).where(one_of(routes.c.status, ROUTE_TABLE.live)).order_by(routes.c.id)
)


def _load_deployments(connection: Connection, live: Live) -> None:
    for row in _DEPLOYMENTS.named(connection):
        live.add(_deployment(row))


def _load_routes(connection: Connection, live: Live) -> None:
    """Bring the live routes, those of deployments that were destroyed before them too."""
    gone = {row.id: _deployment(row) for row in _DESTROYED.named(connection)}
    known = live.of(Deployment)
    for row in _ROUTES.named(connection):
        deployment = known.get(row.deployment_id) or gone.get(row.deployment_id)
        if deployment is not None:
            live.add(_route(row, deployment))


def _deployment(row: Row[Any]) -> Deployment:
    return Deployment(
        id=DeploymentId(row.id),
        name=row.name,
        owner=owner_of(row),
        status=EndpointLifecycle(row.status),
        status_changed_at=row.status_changed_at,
        created_at=row.created_at,
        finished_at=row.finished_at,
        spec=DeploymentSpec.model_validate_json(row.spec),
        revisions=load_revisions(row.revisions),
        secret=row.secret,
        spec_bytes=len(row.spec.encode()) + len(row.revisions.encode()),
        revision=row.revision,
        stable=row.stable,
        proven=bool(row.proven),  # SQLite has numbers only
        replicas=row.replicas,
        scaled_at=row.scaled_at,
        probe_version=row.probe_version,
        rollout=None if row.rollout is None else Rollout.from_json(row.rollout),
        failed_starts=row.failed_starts,
        failed_at=row.failed_at,
        unserved_at=row.unserved_at,
        outage_told=bool(row.outage_told),
        tries=row.tries,
        retry_at=row.retry_at,
        reason=load_reason(row.reason, row.reason_numbers),
    )


def _route(row: Row[Any], deployment: Deployment) -> Route:
    return Route(
        id=RouteId(row.id),
        deployment=deployment,
        revision=row.revision,
        status=RouteStatus(row.status),
        status_changed_at=row.status_changed_at,
        created_at=row.created_at,
        finished_at=row.finished_at,
        session_id=row.session_id,
        kernel_id=row.kernel_id,
        address=row.address,
        good=None if row.good is None else bool(row.good),
        good_at=row.good_at,
        healthy_since=row.healthy_since,
        tries=row.tries,
        retry_at=row.retry_at,
        reason=load_reason(row.reason, row.reason_numbers),
    )


def _dump_spec(spec: DeploymentSpec) -> str:
    return spec.model_dump_json(exclude_unset=True)


def stored_bytes(spec: DeploymentSpec, revisions: Sequence[Revision]) -> int:
    """The bytes of a deployment's spec and revisions as they are stored."""
    return len(_dump_spec(spec).encode()) + len(dump_revisions(revisions).encode())


def _joins(live: Live, deployment: Deployment) -> None:
    live.holdings.set_open(deployment.id, deployment.owner, deployment.spec_bytes)


def _leaves(live: Live, deployment: Deployment) -> None:
    live.holdings.ended(deployments.name, deployment.id)


def _dump_rollout(rollout: Rollout | None) -> str | None:
    return None if rollout is None else rollout.to_json()


DEPLOYMENT = Entity(
    "deployment",
    Deployment,
    DEPLOYMENT_TABLE,
    RowMapping[Deployment](
        deployments,
        changing=(
            "status",
            "status_changed_at",
            "finished_at",
            "revision",
            "stable",
            "proven",
            "replicas",
            "scaled_at",
            "probe_version",
            "rollout",
            "failed_starts",
            "failed_at",
            "unserved_at",
            "outage_told",
            "tries",
            "retry_at",
            *REASON,
        ),
        seldom=("host", "group", "spec", "revisions", "large_bytes"),
        sources={
            "spec": ("spec", _dump_spec),
            "revisions": ("revisions", dump_revisions),
            "rollout": ("rollout", _dump_rollout),
            **STORED_SPEC,
            **OWNER,
            **REASON,
        },
    ),
    _load_deployments,
    described="a service that wants replicas",
    joins=_joins,
    leaves=_leaves,
    prefix=IdKind.DEPLOYMENT,
    visible=Visible.TO_OWNER,
)

ROUTE = Entity(
    "route",
    Route,
    ROUTE_TABLE,
    RowMapping[Route](
        routes,
        changing=(
            "status",
            "status_changed_at",
            "finished_at",
            "session_id",
            "kernel_id",
            "address",
            "good",
            "good_at",
            "healthy_since",
            "tries",
            "retry_at",
            *REASON,
        ),
        sources={
            "deployment_id": "deployment.id",
            "domain": "deployment.owner.domain",
            "project": "deployment.owner.project",
            "user": "deployment.owner.user",
            **REASON,
        },
    ),
    _load_routes,
    described="a replica of a deployment: an inference session and its address",
    prefix=IdKind.ROUTE,
    visible=Visible.TO_OWNER,
    id_of=lambda route: route.name,
    id_column=routes.c.deployment_id + "/" + routes.c.id,
    part_of=lambda route: route.deployment,
)
