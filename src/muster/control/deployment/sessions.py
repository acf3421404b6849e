"""The session of a route, made of its revision's template, and the variables that its kernel gets
besides."""

from collections.abc import Mapping

from muster.control.deployment.book import Routes
from muster.control.deployment.entity import Route
from muster.control.session.cluster.service_variables import ServiceVariables
from muster.core.ids import SessionId
from muster.core.serving.health_command import VARIABLE, beside
from muster.core.serving.secret import SECRET_VARIABLE
from muster.core.specs import SessionSpec, SessionType
from muster.core.specs.session import KernelSpec


def session_spec(route: Route) -> SessionSpec:
    """The spec of a route's session: one kernel, with a port of its own unless the program has a
    fixed one, on another agent than others of its revision where that can be."""
    deployment = route.deployment
    revision = deployment.numbered(route.revision)
    spec = deployment.spec
    if revision is not None and revision.number != deployment.revision:
        spec = spec.with_template(revision.template)
    env = {
        **spec.env,
        "MUSTER_DEPLOYMENT": deployment.name,
        "MUSTER_REVISION": str(route.revision),
    }
    command, probe = spec.command, route.probe
    if probe.command is not None:
        command = beside(command, probe.command, probe.interval, probe.timeout)
        env[VARIABLE] = "command"
    kernel = KernelSpec(
        command=command,
        env=env,
        workdir=spec.workdir,
        files=spec.files,
        resources=spec.resources,
        uses=spec.uses,
        ports=spec.ports or (1 if spec.port is None else 0),
        grace=spec.grace,
        port=spec.port,
    )
    # By revision: those of the former one, which are to go, would push two new ones together.
    siblings = f"{deployment.id}.{route.revision}"
    placement = spec.placement.model_copy(update={"set": siblings})
    return SessionSpec(
        name=f"{deployment.name}-{route.revision}",
        type=SessionType.INFERENCE,
        group=spec.group,
        kernels=[kernel],
        priority=deployment.spec.priority,
        placement=placement,
    )


class ReplicaVariables(ServiceVariables):
    """The secret of its deployment for each replica."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    def of(self, session: SessionId) -> Mapping[str, str]:
        route = self._routes.of_session(session)
        return {} if route is None else {SECRET_VARIABLE: route.deployment.secret}
