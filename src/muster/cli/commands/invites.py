"""``muster agents invite``, ``invites`` and ``uninvite``."""

import shlex
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import click
from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.completion import complete_group
from muster.cli.parameters import Argument, Option
from muster.cli.screen import Column, show_change, show_listing, stderr
from muster.cli.streams import plain, print_json
from muster.cli.words import count, moment
from muster.client.connection import is_loopback
from muster.core.host_port import joined, parted

if TYPE_CHECKING:
    from muster.core.views.accounts import JoinTokenView, NewJoinTokenView


@on_cluster
def invite(
    cluster: Cluster,
    name: Annotated[str | None, Argument(metavar="NAME")] = None,
    group: Annotated[
        str | None,
        Option("--group", "-g", help="Scaling group to join.", autocompletion=complete_group),
    ] = None,
    uses: Annotated[
        int, Option("--uses", min=1, help="Let so many agents join; for more than one, no NAME.")
    ] = 1,
    expires: Annotated[
        str, Option("--expires", metavar="TIME", help="Let it expire after so long, as 1h.")
    ] = "1h",
    unit: Annotated[
        bool, Option("--unit", help="Print the command that has systemd run the agent there.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a join token. Prints the command to run on the machine that is to be an agent."""
    with cluster.client() as client:
        made = client.create_join_token(name, group=group, uses=uses, expires=expires)
        url, ca = client.url, client.ca
    if as_json:
        print_json(made)
        return
    joins = f"agent {name}" if name else count(uses, "agent")
    until = moment(made.token.expires_at)
    stderr().print(
        Text(f"to have {plain(joins)} join, run this on its machine before {until}:"),
        soft_wrap=True,
    )
    if ca is not None:
        stderr().print(Text(f"with a copy of {plain(str(ca))} there, as ca.pem"), soft_wrap=True)
    if is_loopback(f"http://{_agent_address(made, url)}"):
        stderr().print(
            Text("the controller listens on this machine alone: no other reaches it at this URL"),
            soft_wrap=True,
        )
    if not unit:
        hint = "it runs as long as the command; --unit prints one that has systemd run it"
        stderr().print(Text(hint, style="dim"), soft_wrap=True)
    click.echo(unit_command(made, url) if unit else join_command(made, url))


def join_command(made: "NewJoinTokenView", url: str) -> str:
    """The command that makes a machine an agent. The token is a variable of the command, so that no
    list of processes shows it."""
    words = ["muster", "agent", *_options(made, url)]
    return f"MUSTER_JOIN_TOKEN={shlex.quote(made.secret)} {shlex.join(words)}"


def unit_command(made: "NewJoinTokenView", url: str) -> str:
    """The command that has systemd run a machine's agent. A part of the shell writes the token, so
    that no list of processes shows it, into a file for its owner alone."""
    words = ["muster", "service", "install", "agent", *_options(made, url)]
    written = f"(umask 077 && printf '%s\\n' {shlex.quote(made.secret)} > join-token)"
    return f"{written} && {shlex.join([*words, '--token-file', 'join-token'])}"


def _options(made: "NewJoinTokenView", url: str) -> list[str]:
    """The options of `muster agent` but for the token."""
    words = ["--controller", _agent_address(made, url)]
    if made.token.agent is not None:
        words += ["--name", made.token.agent]
    if made.token.group is not None:
        words += ["--group", made.token.group]
    if url.startswith("https:"):
        words += ["--ca", "ca.pem"]
    return words


def _agent_address(made: "NewJoinTokenView", url: str) -> str:
    """The controller's address for another machine: by the name with which it was reached here,
    unless that means this machine."""
    if is_loopback(url):
        return made.agent_address
    host = urlsplit(url).hostname or ""
    _, port = parted(made.agent_address)
    return joined(host, port)


@on_cluster
def invites(cluster: Cluster, as_json: AsJson = False) -> None:
    """List the join tokens, without their secrets."""
    with cluster.client() as client:
        found = client.join_tokens()
    columns = [
        Column("ID"),
        Column("AGENT"),
        Column("GROUP"),
        Column("USES LEFT", right=True),
        Column("EXPIRES"),
        Column("MADE BY", drops=1),
    ]
    show_listing(found, columns, _row, as_json=as_json)


@on_cluster
def uninvite(
    cluster: Cluster,
    ref: Annotated[
        str, Argument(metavar="INVITE", help="Its id, the beginning of it, or the agent's name.")
    ],
    as_json: AsJson = False,
) -> None:
    """Revoke a join token. No agent joins with it any more; those that have stay."""
    with cluster.client() as client:
        token = client.revoke_join_token(ref)
    show_change(token, f"join token {token.id} is revoked", as_json=as_json)


def _row(token: "JoinTokenView") -> list[Text | str]:
    return [
        token.id,
        token.agent or "any",
        token.group or "any",
        "any" if token.uses_left is None else str(token.uses_left),
        moment(token.expires_at) if token.good else "used or expired",
        token.made_by,
    ]
