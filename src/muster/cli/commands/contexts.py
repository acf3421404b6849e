"""``muster login``, ``context`` and ``logout``."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import click

from muster.cli.arguments import AsJson
from muster.cli.cluster import Ca, Cluster
from muster.cli.parameters import Argument, Option

MAX_TOKEN_BYTES = 1024


def login(
    ctx: click.Context,
    url: Annotated[
        str,
        Argument(metavar="URL", help="URL of the controller, as https://controller.example:7600."),
    ],
    token_file: Annotated[
        str | None,
        Option("--token-file", metavar="FILE", help="File of your token; - reads it from stdin."),
    ] = None,
    name: Annotated[
        str | None,
        Option("--name", metavar="CONTEXT", help="Name of the context. [default: the URL's host]"),
    ] = None,
    ca: Ca = None,
) -> None:
    """Keep a cluster's URL and your token for later commands.

    Asks for the token, unless it is in --token-file or MUSTER_TOKEN; the controller is asked
    whether it accepts it before anything is kept.
    """
    from urllib.parse import urlsplit

    from muster.client import Client
    from muster.client.contexts import (
        NamedCluster,
        check_name,
        keep_authority,
        read_contexts,
        write_contexts,
    )

    cluster: Cluster = ctx.obj
    authority = ca or cluster.ca or os.environ.get("MUSTER_CA")
    token = cluster.token or _token(token_file, url)
    name = check_name(name or urlsplit(url).hostname or url)
    with Client(url, token, ca=authority) as client:
        who = client.whoami()
        url = client.url
        authority = client.ca
    kept = str(keep_authority(name, authority)) if authority else None
    write_contexts(read_contexts().added(name, NamedCluster(url, token, kept)))
    click.echo(f"logged in to {url} as {who.user}; commands go there from now on (context {name})")


def context(
    name: Annotated[str | None, Argument(metavar="[NAME]", help="Switch to this one.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the clusters that you are logged in to, or switch to one.

    `local` is the cluster of this machine.
    """
    from muster.client.contexts import LOCAL, read_contexts, write_contexts

    contexts = read_contexts()
    if name is not None:
        contexts = contexts.switched(name)
        write_contexts(contexts)
    current = contexts.current or LOCAL
    listed = {LOCAL: ""} | {each: found.url for each, found in sorted(contexts.contexts.items())}
    if as_json:
        rows = [{"name": n, "url": url, "current": n == current} for n, url in listed.items()]
        click.echo(json.dumps(rows, indent=2))
        return
    width = max(map(len, listed))
    for each, url in listed.items():
        mark = "*" if each == current else " "
        click.echo(f"{mark} {each:{width}}  {url or 'the cluster of this machine'}")


def logout(
    name: Annotated[
        str | None,
        Argument(metavar="[CONTEXT]", help="Name of the context. [default: the current one]"),
    ] = None,
) -> None:
    """Forget a cluster, and the token there: it stays valid."""
    from muster.client.contexts import forget_authority, read_contexts, write_contexts

    contexts = read_contexts()
    name = name or contexts.current
    if name is None:
        raise click.UsageError("you are not logged in anywhere but on this machine")
    contexts.switched(name)  # raises if there is no such context
    write_contexts(contexts.removed(name))
    forget_authority(name)
    click.echo(f"logged out of {name}")


def _token(file: str | None, url: str) -> str:
    """The token, from the option or the environment, or else from the person, who is asked.

    Raises:
        click.BadParameter: there is no token.
    """
    if file == "-":
        token = sys.stdin.read(MAX_TOKEN_BYTES)
    elif file is not None:
        with Path(file).expanduser().open() as opened:
            token = opened.read(MAX_TOKEN_BYTES)
    elif kept := os.environ.get("MUSTER_TOKEN"):
        token = kept
    elif sys.stdin.isatty():
        token = click.prompt(f"Token for {url}", hide_input=True, err=True)
    else:
        raise click.BadParameter("give the token with --token-file FILE, or - for stdin")
    if not (token := token.strip()):
        raise click.BadParameter("it is empty", param_hint="--token-file")
    return token
