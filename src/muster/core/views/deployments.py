"""Answers about deployments and their routes."""

from typing import Any

import msgspec

from muster.core.states.deployment import EndpointLifecycle, RouteStatus, deployment_standing
from muster.core.views.base import OwnerView, ReasonView, RecordView, View


class RolloutView(View):
    """A revision that takes the place of another.

    Args:
        from_revision, to_revision: their numbers; the former is None for a first one.
        strategy: rolling, blue-green or canary.
        step: of a canary, from 0.
        weights: percent of the requests by revision.
        failed_starts: replicas of the new revision that did not become healthy.
        progress_at: when a further replica became available.
        paused_at: since when it is paused; None if it is not.
        of: the revision to which it goes back, which ``to_revision`` copies; None if it is new.
    """

    from_revision: int | None
    to_revision: int
    strategy: str
    step: int
    weights: dict[str, int]
    failed_starts: int
    progress_at: float
    paused_at: float | None = None
    of: int | None = None


class DeploymentView(RecordView):
    """A deployment; times are seconds since the epoch.

    Args:
        revision: the number of the spec's revision; ``stable`` of the one that serves.
        replicas: how many are wished.
        up: routes that count as replicas; ``healthy`` of them are HEALTHY.
        unready: how many of the others are "pending" (their session does not run yet), "starting"
            (never healthy), "not probed" (for too long), and "unhealthy".
        rollout: the update under way.
        warnings: in the answer to one that is handed in, what of it is allowed and hardly meant.
    """

    name: str
    host: str | None = None
    group: str
    owner: OwnerView
    status: EndpointLifecycle
    status_changed_at: float
    created_at: float
    finished_at: float | None = None
    revision: int
    stable: int
    replicas: int
    up: int = 0
    healthy: int = 0
    unready: dict[str, int] = msgspec.field(default_factory=dict)
    rollout: RolloutView | None = None
    reason: ReasonView | None = None
    warnings: tuple[ReasonView, ...] = ()

    @property
    def standing(self) -> str:
        """How the deployment stands: NOT_READY where none of its replicas is healthy."""
        return deployment_standing(self.status, self.replicas, self.healthy)

    @property
    def is_given_up(self) -> bool:
        """Whether the wished revision is not rolled out any further, and another one serves."""
        return self.rollout is None and self.revision != self.stable

    @property
    def is_complete(self) -> bool:
        """Whether all of its wished replicas are there and healthy, and no others."""
        return self.up <= self.replicas <= self.healthy

    @property
    def succeeded(self) -> bool | None:
        """Whether the wished revision serves with all of its replicas; None while it may come to
        that, and False once it will not by itself."""
        if self.is_given_up or self.finished_at is not None:
            return False
        if self.rollout is None and self.is_complete:
            return True
        from muster.core.reasons import ReasonKind  # late: every command imports this module

        stuck = self.reason is not None and self.reason.kind == ReasonKind.REQUEST
        return False if stuck else None


class RevisionView(View):
    """A revision: what replicas are made of.

    Args:
        of: the revision to which it goes back; None for one that was new.
    """

    number: int
    digest: str
    template: dict[str, Any]
    created_at: float
    by: str
    of: int | None = None


class RouteView(RecordView):
    """A replica. ``good`` is whether its last completed probe was, None before the first."""

    deployment: str
    revision: int
    status: RouteStatus
    status_changed_at: float
    created_at: float
    finished_at: float | None = None
    session: str | None = None
    address: str | None = None
    good: bool | None = None
    reason: ReasonView | None = None


class LoadView(View):
    """Requests of one replica, or of all of a deployment, as the proxies saw them.

    Args:
        in_flight: under way; ``held`` wait for a replica.
        rate: a second.
        requests, failures: since the controller began.
        recent, recent_failures: of the last half to whole minute.
        p50_s, p99_s: their latencies; None where there were none.
    """

    in_flight: int = 0
    held: int = 0
    rate: float = 0.0
    requests: int = 0
    failures: int = 0
    recent: int = 0
    recent_failures: int = 0
    p50_s: float | None = None
    p99_s: float | None = None


class RouteLoadView(View):
    route: RouteView
    load: LoadView


class DeploymentDetail(DeploymentView):
    """A deployment with its spec, its revisions, latest last, and its routes that have not ended,
    newest first. ``spec_cut`` is why long values of spec and revisions are missing, once they are
    no longer kept."""

    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    spec_cut: ReasonView | None = None
    revisions: tuple[RevisionView, ...] = ()
    routes: tuple[RouteView, ...] = ()


class DeploymentPage(View):
    """Deployments, newest first. ``next`` continues the listing as ``cursor``; None at its end."""

    items: tuple[DeploymentView, ...]
    next: str | None = None


class RoutePage(View):
    """Routes, newest first. ``next`` continues the listing as ``cursor``; None at its end."""

    items: tuple[RouteView, ...]
    next: str | None = None


class DeploymentLoadView(View):
    """A deployment, with the load of all of its replicas."""

    deployment: DeploymentView
    load: LoadView


class DeploymentLoadPage(View):
    """Deployments with their load, newest first. ``next`` continues the listing as ``cursor``; None
    at its end."""

    items: tuple[DeploymentLoadView, ...]
    next: str | None = None


class TopView(View):
    """The load of a deployment, in all and by replica."""

    deployment: DeploymentView
    load: LoadView
    routes: tuple[RouteLoadView, ...] = ()
