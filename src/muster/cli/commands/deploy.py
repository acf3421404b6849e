"""``muster deploy``."""

from typing import Annotated

import click
from rich.text import Text

from muster.cli.arguments import AsJson
from muster.cli.cluster import Cluster, on_cluster
from muster.cli.exits import ExitCode
from muster.cli.follow.deployment import follow, rolled_out, said
from muster.cli.local_workdir import refuse_missing_workdirs
from muster.cli.nearest import suggesting_dependencies
from muster.cli.parameters import Option, annotated
from muster.cli.proxies import known_url
from muster.cli.screen import show_change, stderr
from muster.cli.spec_file import SpecFile, read_spec
from muster.cli.streams import plain, print_json
from muster.cli.words import sentence_of

Detach = Annotated[
    bool, Option("--detach", "-d", help="Do not wait until all replicas are healthy.")
]
Timeout = Annotated[
    float | None,
    Option("--timeout", min=0, help="Wait so many seconds at most; it goes on anyway."),
]


@click.command()
@annotated
@on_cluster
def deploy(
    cluster: Cluster,
    file: Annotated[str, SpecFile],
    detach: Detach = False,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Make a deployment, or change it, and wait until it is healthy.

    The file names it. Exit code 1 if its revision was given up, 2 if it goes on without you."""
    from muster.core.specs import DeploymentSpec

    spec = read_spec(file, DeploymentSpec)
    with cluster.client() as client:
        refuse_missing_workdirs(client, spec)
        with suggesting_dependencies(client):
            accepted = client.deploy(spec)
        for warning in () if as_json else accepted.warnings:
            told = f"warning: {sentence_of(warning)}. {warning.remedy}"
            stderr().print(Text(plain(told)), soft_wrap=True)
        if detach:
            show_change(accepted, said(accepted), as_json=as_json)
            return
        found, code = follow(cluster, accepted, rolled_out, timeout_s=timeout, quiet=as_json)
        url = known_url(client, found.name) if code == ExitCode.OK and not as_json else None
    if as_json:
        print_json(found)
    elif url is not None:
        reached = f"reached at {url}: `muster open {found.name}`"
        stderr().print(Text(plain(reached)), soft_wrap=True)
    raise click.exceptions.Exit(code)
