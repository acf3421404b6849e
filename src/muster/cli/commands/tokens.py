"""``muster tokens``."""

from typing import TYPE_CHECKING, Annotated

import click
from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.command_group import ListedGroup
from muster.cli.completion import complete_user
from muster.cli.parameters import Argument, Option, annotated
from muster.cli.screen import Column, show_change, show_listing, stderr
from muster.cli.streams import print_json
from muster.cli.words import moment
from muster.core.owner import Role

if TYPE_CHECKING:
    from muster.core.views.accounts import TokenView


_COLUMNS = [
    Column("ID"),
    Column("NAME", shrinks=12),
    Column("OWNER", shrinks=16),
    Column("ROLE"),
    Column("CREATED", drops=2),
    Column("EXPIRES"),
    Column("LAST USED", drops=1),
]


@click.group(cls=ListedGroup)
def tokens() -> None:
    """List, create and revoke API tokens."""


@tokens.command(name="list")
@annotated
@on_cluster
def list_tokens(cluster: Cluster, as_json: AsJson = False) -> None:
    """List the API tokens, without their secrets."""
    with cluster.client() as client:
        found = client.tokens()
    show_listing(found, _COLUMNS, _row, as_json=as_json)


@tokens.command()
@annotated
@on_cluster
def create(
    cluster: Cluster,
    name: Annotated[str, Argument(metavar="NAME")] = "token",
    role: Annotated[Role, Option("--role", help="Rights that it gives.")] = Role.USER,
    user: Annotated[
        str | None,
        Option(
            "--user",
            metavar="USER",
            help="User whose token it is. [default: you]",
            autocompletion=complete_user,
        ),
    ] = None,
    domain: Annotated[
        str | None,
        Option("--domain", metavar="DOMAIN", help="Domain of the user. [default: yours]"),
    ] = None,
    project: Annotated[
        str | None,
        Option("--project", "-p", metavar="PROJECT", help="Only project that it is good for."),
    ] = None,
    expires: Annotated[
        str | None, Option("--expires", metavar="TIME", help="Let it expire after so long, as 30d.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make an API token, and show its secret, once."""
    with cluster.client() as client:
        made = client.create_token(
            name, role=role, user=user, domain=domain, project=project, expires=expires
        )
    if as_json:
        print_json(made)
        return
    token = made.token
    ends = "" if token.expires_at is None else f", until {moment(token.expires_at)}"
    stderr().print(
        Text(
            f"token {token.name} ({token.id}) of {token.domain}/{token.user}, {token.role}{ends}; "
            f"this is the only time that it is shown:"
        ),
        soft_wrap=True,
    )
    click.echo(made.secret)


@tokens.command()
@annotated
@on_cluster
def revoke(
    cluster: Cluster,
    ref: Annotated[str, Argument(metavar="TOKEN", help="Its id, the beginning of it, or a name.")],
    as_json: AsJson = False,
) -> None:
    """Have a token open nothing any more, from this moment on."""
    with cluster.client() as client:
        token = client.revoke_token(ref)
    said = f"token {token.name} ({token.id}) of {token.domain}/{token.user} is revoked"
    show_change(token, said, as_json=as_json)


def _row(token: "TokenView") -> list[Text | str]:
    expires = "expired" if token.expired else moment(token.expires_at)
    return [
        token.id,
        token.name,
        f"{token.domain}/{token.project or '*'}/{token.user}",
        token.role.value,
        moment(token.created_at),
        expires,
        moment(token.last_used_at),
    ]
