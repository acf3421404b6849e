"""``muster sbatch``."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from muster.cli.cluster import Cluster
from muster.cli.parameters import Argument, annotated
from muster.cli.streams import plain, say

if TYPE_CHECKING:
    from muster.cli.sbatch.translation import BatchScript, Setting
    from muster.client import Client

MOST_NAMESAKES = 10_000
"""Live jobs of a name for which `singleton` waits, at most."""
WRONG = 255
"""The exit code of sbatch where the command line or the script is wrong."""


# The options are sbatch's own, and are read by its rules.
@click.command(
    context_settings={
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
        "help_option_names": ["--help"],  # the h of -phigh would be taken for -h
    }
)
@annotated
def sbatch(
    ctx: click.Context,
    words: Annotated[
        list[str] | None,
        Argument(
            metavar="[SBATCH OPTIONS] [SCRIPT [ARGS]...]",
            help="As for Slurm's sbatch; without a script it is read from standard input.",
        ),
    ] = None,
) -> None:
    """Hand in a batch script of Slurm as a job; prints its id.

    What becomes of each option is told in docs/from-slurm.md. The options that name a cluster stand
    before the command: muster --url URL sbatch SCRIPT."""
    from muster.cli.sbatch.header import SbatchError

    try:
        code = _handed_in(ctx.obj, words or [])
    except SbatchError as error:
        say(plain(f"sbatch: error: {error}"))
        code = WRONG
    raise click.exceptions.Exit(code)


def _handed_in(cluster: Cluster, words: list[str]) -> int:
    """Translate the script, hand it in, and wait if that is asked for; the answer is the exit code.

    Raises:
        SbatchError: the command line or the script is wrong.
        MusterError: the controller refused the job, or does not answer.
    """
    from muster.cli import kinds
    from muster.cli.hand_in import Display, under_a_free_name
    from muster.cli.sbatch.translation import translated
    from muster.core.specs import JobSpec
    from muster.core.specs.load import parse_spec

    batch = _batch(words)
    with cluster.client() as client:
        job = translated(batch, _setting(client))
        spec = parse_spec(JobSpec, job.keys)
        for sentence in job.told:
            say(plain(f"sbatch: note: {sentence}"))
        accepted = under_a_free_name(client, spec, client.submit)
    if "parsable" in job.values:
        click.echo(accepted.id)
    elif "quiet" not in job.values:
        click.echo(f"Submitted batch job {accepted.id}")
    if "wait" not in job.values:
        return 0
    _, code = kinds.of_work(accepted).wait(cluster, accepted, Display(quiet=True))
    return code


def _batch(words: list[str]) -> "BatchScript":
    """
    Raises:
        SbatchError: an option is wrong, or the script cannot be read.
    """
    from muster.cli.sbatch.header import SbatchError
    from muster.cli.sbatch.options import parsed, refuse_impossible
    from muster.cli.sbatch.translation import BatchScript

    typed, rest = parsed(words)
    refuse_impossible(typed)
    if "wrap" in typed:
        if rest:
            raise SbatchError("script arguments are not permitted with --wrap")
        text = f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{typed['wrap']}\n"
        return BatchScript("wrap", text, (), typed)
    name = Path(rest[0]).name if rest else "sbatch"
    try:
        text = (Path(rest[0]).read_bytes() if rest else sys.stdin.buffer.read()).decode()
    except OSError as error:
        raise SbatchError(f"unable to open file {rest[0]}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SbatchError(f"{name} is no text in UTF-8") from None
    return BatchScript(name, text, rest[1:], typed)


def _setting(client: "Client") -> "Setting":
    """The caller's machine and person, and the cluster's groups and projects."""
    from datetime import datetime

    from muster.cli.sbatch.translation import Setting
    from muster.client.workdir import current_directory

    me = client.whoami()

    def namesakes(name: str) -> list[str]:
        jobs = client.jobs("live", name=f"{name}*", limit=MOST_NAMESAKES)
        is_mine = [
            job for job in jobs if (job.owner.domain, job.owner.user) == (me.domain, me.user)
        ]
        numbered = name + "-"
        return [
            job.id
            for job in is_mine
            if job.name == name
            or (job.name.startswith(numbered) and job.name.removeprefix(numbered).isdecimal())
        ]

    umask = os.umask(0o077)
    os.umask(umask)
    return Setting(
        directory=current_directory(),
        host=os.uname().nodename,
        environment=os.environ,
        umask=umask,
        now=datetime.now().astimezone(),
        groups=[group.name for group in client.groups()],
        projects=me.projects,
        namesakes=namesakes,
    )
