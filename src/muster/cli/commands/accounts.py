"""``muster users``, ``muster projects``, ``muster domains`` and ``muster whoami``."""

from typing import TYPE_CHECKING, Annotated

import click
from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.command_group import ListedGroup
from muster.cli.completion import complete_user
from muster.cli.parameters import Argument, Option, annotated
from muster.cli.screen import Column, show_change, show_listing, stderr
from muster.cli.streams import plain, print_json
from muster.cli.words import moment

if TYPE_CHECKING:
    from muster.core.views.accounts import ProjectView, UserView

Domain = Annotated[str, Option("--domain", metavar="DOMAIN", help="Domain of the user or project.")]
Projects = Annotated[
    list[str] | None,
    Option(
        "--project",
        "-p",
        metavar="PROJECT",
        help="Project of the user; may be repeated, the first is the default.",
    ),
]
Hosts = Annotated[
    list[str] | None,
    Option(
        "--host",
        metavar="NAME",
        help="Its deployments may have this name and names below as `host`; may be repeated.",
    ),
]
Cancel = Annotated[
    bool,
    Option("--cancel", help="Cancel work that is alive, which is a reason to refuse otherwise."),
]
UserName = Annotated[str, Argument(metavar="USER", autocompletion=complete_user)]
ProjectName = Annotated[str, Argument(metavar="PROJECT")]
DomainName = Annotated[str, Argument(metavar="DOMAIN")]

DEFAULT = "default"


# -- users -----------------------------------------------------------------------------------------


@click.group(cls=ListedGroup)
def users() -> None:
    """Manage users, who hand in work."""


@users.command(name="list")
@annotated
@on_cluster
def list_users(cluster: Cluster, as_json: AsJson = False) -> None:
    """List the users, and their projects."""
    with cluster.client() as client:
        found = client.users()
    columns = [
        Column("USER"),
        Column("DOMAIN"),
        Column("PROJECTS"),
        Column("UID", right=True),
        Column("SINCE", drops=1),
    ]
    show_listing(found, columns, _user_row, as_json=as_json)


@users.command(name="add")
@annotated
@on_cluster
def add_user(
    cluster: Cluster,
    name: UserName,
    project: Projects = None,
    domain: Domain = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Add a user to a domain and to projects of it."""
    with cluster.client() as client:
        user = client.add_user(name, project or [DEFAULT], domain)
    if as_json:
        print_json(user)
        return
    click.echo(f"user {_user(user)} added, in {_in_projects(user)}")
    if user.warning:
        click.echo(f"warning: {plain(user.warning)}", err=True)
    stderr().print(
        Text(
            f"next: `muster tokens create --user {user.name}{_of_domain(domain)}` makes the token "
            f"that {user.name} gives to `muster login`"
        ),
        soft_wrap=True,
    )


@users.command(name="set")
@annotated
@on_cluster
def set_user(
    cluster: Cluster,
    name: UserName,
    project: Projects = None,
    domain: Domain = DEFAULT,
    cancel: Cancel = False,
    as_json: AsJson = False,
) -> None:
    """Have a user be in these projects and no others."""
    if not project:
        raise click.BadParameter("name the user's projects", param_hint="--project")
    with cluster.client() as client:
        user = client.set_projects(name, project, domain, cancel=cancel)
    show_change(user, f"user {_user(user)} is in {_in_projects(user)}", as_json=as_json)


@users.command(name="remove")
@annotated
@on_cluster
def remove_user(
    cluster: Cluster, name: UserName, domain: Domain = DEFAULT, cancel: Cancel = False
) -> None:
    """Remove a user, and revoke the user's tokens."""
    with cluster.client() as client:
        client.remove_user(name, domain, cancel=cancel)
    click.echo(f"user {domain}/{name} removed, and their tokens are revoked")


def _user_row(user: "UserView") -> list[Text | str]:
    uid = "-" if user.uid is None else str(user.uid)
    return [user.name, user.domain, ", ".join(user.projects), uid, moment(user.created_at)]


# -- projects --------------------------------------------------------------------------------------


@click.group(cls=ListedGroup)
def projects() -> None:
    """Manage projects, the units of accounting."""


@projects.command(name="list")
@annotated
@on_cluster
def list_projects(cluster: Cluster, as_json: AsJson = False) -> None:
    """List the projects."""
    with cluster.client() as client:
        found = client.projects()
    columns = [
        Column("PROJECT"),
        Column("DOMAIN"),
        Column("HOSTS", shrinks=12),
        Column("SINCE", drops=1),
    ]
    show_listing(found, columns, _project_row, as_json=as_json)


@projects.command(name="add")
@annotated
@on_cluster
def add_project(
    cluster: Cluster,
    name: ProjectName,
    host: Hosts = None,
    domain: Domain = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Add a project to a domain. `muster users add` and `set` put users in it."""
    with cluster.client() as client:
        added = client.add_project(name, domain, host or [])
    show_change(added, f"project {domain}/{name} added", as_json=as_json)


@projects.command(name="set")
@annotated
@on_cluster
def set_project(
    cluster: Cluster,
    name: ProjectName,
    host: Hosts = None,
    domain: Domain = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Say which hosts a project's deployments may have.

    These names and those below them, and no others. Deployments keep the hosts that they have.
    """
    if not host:
        raise click.BadParameter("name the project's hosts, or none", param_hint="--host")
    hosts = [] if host == ["none"] else host
    with cluster.client() as client:
        changed = client.set_hosts(name, hosts, domain)
    may = ", ".join(changed.hosts)
    said = f"project {domain}/{name} may use {f'{may}, and names below' if may else 'no host'}"
    show_change(changed, said, as_json=as_json)
    if changed.outside:
        stay = ", ".join(changed.outside)
        stderr().print(
            Text(f"deployments that have others keep them until they are changed: {stay}"),
            soft_wrap=True,
        )


def _project_row(project: "ProjectView") -> list[Text | str]:
    hosts = ", ".join(project.hosts) or "-"
    return [project.name, project.domain, hosts, moment(project.created_at)]


@projects.command(name="remove")
@annotated
@on_cluster
def remove_project(
    cluster: Cluster, name: ProjectName, domain: Domain = DEFAULT, cancel: Cancel = False
) -> None:
    """Remove a project. The tokens that are good for it alone are revoked."""
    with cluster.client() as client:
        client.remove_project(name, domain, cancel=cancel)
    click.echo(f"project {domain}/{name} removed")


# -- domains ---------------------------------------------------------------------------------------


@click.group(cls=ListedGroup)
def domains() -> None:
    """Manage domains, to which users and projects belong."""


@domains.command(name="list")
@annotated
@on_cluster
def list_domains(cluster: Cluster, as_json: AsJson = False) -> None:
    """List the domains."""
    with cluster.client() as client:
        found = client.domains()
    columns = [Column("DOMAIN"), Column("SINCE")]
    show_listing(found, columns, lambda d: [d.name, moment(d.created_at)], as_json=as_json)


@domains.command(name="add")
@annotated
@on_cluster
def add_domain(cluster: Cluster, name: DomainName, as_json: AsJson = False) -> None:
    """Add a domain."""
    with cluster.client() as client:
        added = client.add_domain(name)
    show_change(added, f"domain {name} added", as_json=as_json)


@domains.command(name="remove")
@annotated
@on_cluster
def remove_domain(cluster: Cluster, name: DomainName) -> None:
    """Remove a domain that has neither users nor projects."""
    with cluster.client() as client:
        client.remove_domain(name)
    click.echo(f"domain {name} removed")


# -- the caller ------------------------------------------------------------------------------------


@on_cluster
def whoami(cluster: Cluster, as_json: AsJson = False) -> None:
    """Say whom the controller takes you for, and how long."""
    with cluster.client() as client:
        me = client.whoami()
        url = client.url
    if as_json:
        print_json(me)
        return
    click.echo(f"{me.domain}/{me.project}/{me.user}, {me.role}, at {url}")
    others = [project for project in me.projects if project != me.project]
    if others:
        click.echo(f"further projects: {', '.join(others)} (`--project` names one)")
    if me.token is not None:
        ends = "does not expire"
        if me.token.expires_at is not None:
            ends = f"expires {moment(me.token.expires_at)}"
        click.echo(f"by token {me.token.name} ({me.token.id}), which {ends}")


def _user(user: "UserView") -> str:
    return f"{user.domain}/{user.name}"


def _in_projects(user: "UserView") -> str:
    named = ", ".join(user.projects)
    return f"project {named}" if len(user.projects) == 1 else f"projects {named}"


def _of_domain(domain: str) -> str:
    return "" if domain == DEFAULT else f" --domain {domain}"
