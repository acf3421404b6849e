"""Domains, projects and users over HTTP, and who the caller is."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from muster.api.answers import answer
from muster.api.bodies import read_spec
from muster.api.context import Call, Caller
from muster.api.openapi import spec_body
from muster.api.tokens import token_view
from muster.control.accounts import (
    add_domain,
    add_project,
    add_user,
    change_user,
    remove_domain,
    remove_project,
    remove_user,
    set_hosts,
)
from muster.core.owner import AS_OWNER, RUNS_AS
from muster.core.specs.account import DomainSpec, HostsSpec, ProjectSpec, ProjectsSpec, UserSpec
from muster.core.views.accounts import (
    DomainPage,
    DomainView,
    ProjectPage,
    ProjectView,
    UserPage,
    UserView,
    WhoamiView,
)
from muster.core.views.projection import view_of
from muster.store.accounts import Accounts, Project, User
from muster.store.live import Live

router = APIRouter(prefix="/v1", tags=["accounts"])

Cancel = Annotated[bool, Query(description="cancel work of theirs that is alive")]


@router.get("/whoami", response_model=WhoamiView)
async def get_whoami(call: Call) -> Response:
    """The caller's identity, as the controller sees it in the token."""
    principal, accounts = call.principal, _accounts(call)
    token = accounts.tokens.get(principal.token)
    view = WhoamiView(
        domain=principal.owner.domain,
        user=principal.owner.user,
        project=principal.owner.project,
        projects=principal.projects,
        role=principal.role,
        token=None if token is None else token_view(token, call.api.clock.now()),
    )
    return answer(view)


# -- domains ---------------------------------------------------------------------------------------


@router.get("/domains", response_model=DomainPage)
async def get_domains(call: Call) -> Response:
    """Domains by name: all for an admin, else the caller's own."""
    domains = _accounts(call).domains
    mine = None if call.principal.is_admin else call.principal.owner.domain
    names = sorted(name for name in domains if mine in (None, name))
    views = tuple(DomainView(name=name, created_at=domains[name]) for name in names)
    return answer(DomainPage(items=views))


@router.post(
    "/domains", status_code=201, response_model=DomainView, openapi_extra=spec_body(DomainSpec)
)
async def post_domain(request: Request, call: Call) -> Response:
    """Add a domain; for admins."""
    call.must_be_admin("add domains")
    spec = await read_spec(request, DomainSpec)
    name = await call.change(lambda work, _: add_domain(work, spec))
    return answer(DomainView(name=name, created_at=_accounts(call).domains[name]), 201)


@router.delete("/domains/{domain}", status_code=204)
async def delete_domain(call: Call, domain: str) -> Response:
    """Remove a domain that has neither users nor projects; for admins."""
    call.must_be_admin("remove domains")
    await call.change(lambda work, _: remove_domain(work, domain))
    return Response(status_code=204)


# -- projects --------------------------------------------------------------------------------------


@router.get("/projects", response_model=ProjectPage)
async def get_projects(call: Call) -> Response:
    """Projects by domain and name: all for an admin, else the caller's own."""
    projects, principal = _accounts(call).projects, call.principal
    seen = [
        _project_view(project)
        for (domain, name), project in sorted(projects.items())
        if call.principal.is_admin
        or (domain == principal.owner.domain and name in principal.projects)
    ]
    return answer(ProjectPage(items=tuple(seen)))


@router.post(
    "/projects", status_code=201, response_model=ProjectView, openapi_extra=spec_body(ProjectSpec)
)
async def post_project(request: Request, call: Call) -> Response:
    """Add a project to a domain; for admins."""
    call.must_be_admin("add projects")
    spec = await read_spec(request, ProjectSpec)
    project = await call.change(lambda work, _: add_project(work, spec))
    return answer(_project_view(project), 201)


@router.put(
    "/projects/{domain}/{project}/hosts",
    response_model=ProjectView,
    openapi_extra=spec_body(HostsSpec),
)
async def put_project_hosts(request: Request, call: Call, domain: str, project: str) -> Response:
    """Have a project's deployments use these names of hosts and names below them, and no others;
    for admins. A deployment keeps the host that it has."""
    call.must_be_admin("change projects")
    spec = await read_spec(request, HostsSpec)
    changed, outside = await call.change(
        lambda work, _: set_hosts(work, domain, project, spec.hosts)
    )
    return answer(_project_view(changed, outside))


@router.delete("/projects/{domain}/{project}", status_code=204)
async def delete_project(call: Call, domain: str, project: str, cancel: Cancel = False) -> Response:
    """Remove a project, and the tokens that are good for it alone; for admins."""
    call.must_be_admin("remove projects")
    by = call.principal
    await call.change(
        lambda work, requests: remove_project(work, requests, by, domain, project, cancel=cancel)
    )
    return Response(status_code=204)


# -- users -----------------------------------------------------------------------------------------


@router.get("/users", response_model=UserPage)
async def get_users(call: Call) -> Response:
    """Users by domain and name: all for an admin, else the caller alone."""
    owner = call.principal.owner
    users = sorted(_accounts(call).users.items())
    seen = [
        _user_view(call, user)
        for key, user in users
        if call.principal.is_admin or key == (owner.domain, owner.user)
    ]
    return answer(UserPage(items=tuple(seen)))


@router.post("/users", status_code=201, response_model=UserView, openapi_extra=spec_body(UserSpec))
async def post_user(request: Request, call: Call) -> Response:
    """Add a user to a domain and to projects of it; for admins."""
    call.must_be_admin("add users")
    spec = await read_spec(request, UserSpec)
    user = await call.change(lambda work, _: add_user(work, spec))
    warning = _shared_account(call.api.plane.live)
    return answer(_user_view(call, user, warning), 201)


def _shared_account(live: Live) -> str:
    """A warning where kernels of several users run as one account of a machine; empty otherwise."""
    shared = {
        agent.name: account
        for agent in live.agents.values()
        if (account := agent.attributes.get(RUNS_AS, AS_OWNER)) != AS_OWNER
    }
    if not shared:
        return ""
    some = ", ".join(f"{name} ({account})" for name, account in list(shared.items())[:5])
    more = f" and {len(shared) - 5} others" if len(shared) > 5 else ""
    return (
        f"whoever may submit acts as the agent's account on {some}{more}: there the agent does not "
        f"run as root, so users are not kept apart"
    )


@router.put(
    "/users/{domain}/{user}/projects",
    response_model=UserView,
    openapi_extra=spec_body(ProjectsSpec),
)
async def put_user_projects(
    request: Request, call: Call, domain: str, user: str, cancel: Cancel = False
) -> Response:
    """Put a user in these projects and no others; for admins."""
    call.must_be_admin("change users")
    spec, by = await read_spec(request, ProjectsSpec), call.principal
    changed = await call.change(
        lambda work, requests: change_user(
            work, requests, by, domain, user, spec.projects, cancel=cancel
        )
    )
    return answer(_user_view(call, changed))


@router.delete("/users/{domain}/{user}", status_code=204)
async def delete_user(call: Call, domain: str, user: str, cancel: Cancel = False) -> Response:
    """Remove a user and revoke all of the user's tokens; for admins."""
    call.must_be_admin("remove users")
    by = call.principal
    await call.change(
        lambda work, requests: remove_user(work, requests, by, domain, user, cancel=cancel)
    )
    return Response(status_code=204)


def _accounts(call: Caller) -> Accounts:
    return call.api.plane.live.accounts


def _project_view(project: Project, outside: tuple[str, ...] = ()) -> ProjectView:
    return view_of(ProjectView, project, outside=outside)


def _user_view(call: Caller, user: User, warning: str = "") -> UserView:
    uid = _accounts(call).uids.of(user.domain, user.name)
    return view_of(UserView, user, uid=uid, warning=warning)
