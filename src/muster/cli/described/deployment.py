"""A deployment, and a route, as `muster show` tells them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from muster.cli.described.record import ago, environment, heading, sentences
from muster.cli.described.revision import command_of
from muster.cli.screen import fields, status
from muster.cli.streams import plain
from muster.cli.words import duration, moment, sentence_of
from muster.core.text import healthy_of

if TYPE_CHECKING:
    from muster.core.views.deployments import DeploymentDetail, DeploymentView, RouteView

MOST_ROUTES = 30
"""Routes that are shown with their deployment."""


def deployment_parts(found: "DeploymentDetail", now: float) -> list[RenderableType]:
    """A deployment: how it stands, its update, its revisions, and its routes."""
    revisions = [
        f"{each.number}{_mark(each.number, found)}  {moment(each.created_at)} by {each.by}"
        + (f", back to {each.of}" if each.of is not None else "")
        for each in found.revisions
    ]
    routes = [_route(each, now) for each in found.routes[:MOST_ROUTES]]
    if len(found.routes) > MOST_ROUTES:
        routes.append(f"and {len(found.routes) - MOST_ROUTES} more: `muster routes {found.name}`")
    return [
        heading(found.name, found.standing, found.id),
        fields(
            [
                ("reason", sentences(found.reason)),
                ("replicas", said_replicas(found) + _follows(found.spec)),
                ("update", said_rollout(found, now)),
                ("strategy", (found.spec.get("update") or {}).get("strategy", "rolling")),
                ("command", command_of(found.spec)),
                ("env", environment([found.spec])),
                ("reached at", f"/{found.name}/ of a proxy: `muster open {found.name}`"),
                ("host", found.host),
                ("access", _access(found.spec.get("access") or {})),
                ("uses", plain(", ".join(found.spec.get("uses") or ())) or None),
                ("after", plain(_after(found.spec)) or None),
                ("group", plain(found.group)),
                ("owner", plain(str(found.owner))),
                ("spec", sentences(found.spec_cut)),
                ("made", moment(found.created_at)),
                ("revisions", Text("\n".join(map(plain, revisions)))),
                ("routes", Text("\n".join(map(plain, routes))) if routes else None),
            ]
        ),
    ]


def route_parts(route: "RouteView", name: str, now: float) -> list[RenderableType]:
    """A route of the deployment of this name."""
    probed = {None: "no probe is over yet", True: "good", False: "bad"}
    lasted = f"{status(route.status).plain} for {duration(now - route.status_changed_at)}"
    ended = f", ended {moment(route.finished_at)}" if route.finished_at is not None else ""
    return [
        heading(route.id, route.status),
        fields(
            [
                ("reason", sentences(route.reason)),
                ("deployment", f"{name} ({route.deployment})"),
                ("revision", str(route.revision)),
                ("address", route.address),
                ("session", route.session),
                ("last probe", probed[route.good]),
                ("times", f"made {moment(route.created_at)}, {lasted}{ended}"),
            ]
        ),
    ]


def said_replicas(found: "DeploymentView") -> str:
    """How many replicas are healthy, and how the others are."""
    said = healthy_of(found.healthy, found.replicas)
    return ", ".join([said, *said_unready(found)])


def said_unready(found: "DeploymentView") -> list[str]:
    """How the replicas are that are not healthy."""
    return [f"{number} {how}" for how, number in found.unready.items()]


def said_rollout(found: "DeploymentView", now: float) -> str | None:
    """The update under way, or that one was given up; None if there is none of either."""
    rollout = found.rollout
    if rollout is None:
        given_up = found.revision != found.stable
        return f"revision {found.stable} serves, not {found.revision}" if given_up else None
    said = f"{rollout.strategy} from revision {rollout.from_revision} "
    if rollout.of is None:
        said += f"to {rollout.to_revision}"
    else:
        said += f"back to {rollout.of} (as {rollout.to_revision})"
    if rollout.paused_at is not None:
        resumed = f"`muster rollout resume {found.name}` has it go on"
        return f"{said}, paused {ago(rollout.paused_at, now)}: {resumed}"
    weight = rollout.weights.get(str(rollout.to_revision))
    return f"{said}, {weight} % of the requests" if weight is not None else said


def said_undo(before: "DeploymentView", after: "DeploymentView", to: int | None) -> str:
    """A sentence about what was done for somebody who asked to go back to revision ``to``."""
    said = f"deployment {after.name}"
    rollout = after.rollout
    if rollout is not None and rollout.of is not None:
        return f"{said} goes back to revision {rollout.of}, as revision {rollout.to_revision}"
    if rollout is not None:
        again = "is rolled out again" if before.rollout is None else "is being rolled out already"
        return f"{said}: revision {rollout.to_revision} {again}"
    if before.rollout is not None:
        undone = f"the update to revision {before.rollout.to_revision} is undone"
        return f"{said} goes back to revision {after.stable}; {undone}"
    if after.revision not in (before.revision, before.stable):
        return f"{said} goes back, as revision {after.revision}"
    alike = f", and is the same as revision {to}" if to not in (None, after.stable) else ""
    said += f": revision {after.stable} serves already{alike}"
    if before.revision == before.stable:
        return f"{said}: nothing is rolled out"
    return f"{said}; revision {before.revision}, which was given up, is not wished any more"


def _follows(spec: Mapping[str, Any]) -> str:
    """That the number of replicas follows load, if it does."""
    scale = spec.get("scale")
    return f", follows load from {scale.get('min', 1)} to {scale['max']}" if scale else ""


def _after(spec: Mapping[str, Any]) -> str:
    """The work on which the start of the first replica depends."""
    from muster.core.specs import Dependency

    work = map(Dependency.model_validate, spec.get("after") or ())
    return ", ".join(f"{each.called}:{each.condition}" for each in work)


def _access(access: Mapping[str, Any]) -> str:
    """The people who may send requests."""
    if access.get("public"):
        return "public"
    named = [("users", access.get("users")), ("projects", access.get("projects"))]
    return "; ".join(["owner", *(f"{what} {', '.join(who)}" for what, who in named if who)])


def _mark(number: int, found: "DeploymentDetail") -> str:
    if number == found.stable:
        return " (serves)"
    return " (new)" if found.rollout is not None and number == found.rollout.to_revision else ""


def _route(route: "RouteView", now: float) -> str:
    state = status(route.status).plain
    said = f"{route.id}  {state}  revision {route.revision}  {route.address or '-'}"
    said += f"  for {duration(now - route.status_changed_at)}"
    return f"{said}: {sentence_of(route.reason)}" if route.reason is not None else said
