"""``muster submit``, and what it shares with ``muster run``: handing work in."""

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
from rich.text import Text

from muster.cli.exits import SIGNAL_BASE, ExitCode
from muster.cli.follow.feed import LostSight, away_line, back_line
from muster.cli.follow.follow import Follower
from muster.cli.nearest import suggesting_targets
from muster.cli.parameters import Option
from muster.cli.placement_options import (
    After,
    Agents,
    Constraints,
    NotBefore,
    SingleNode,
    placement_keys,
    with_keys,
)
from muster.cli.screen import plain, stderr
from muster.cli.spec_file import SpecFile, directory_of, read_spec
from muster.cli.target import Target, on_cluster
from muster.client.workdir import current_directory
from muster.core.reasons import ReasonCode
from muster.core.states import JobState, SessionStatus

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.specs import JobSpec, SessionSpec
    from muster.core.views import JobView, SessionView

PLACED_WITHIN_S = 1.0
"""How long --no-wait gives the work to be placed before it says that it waits."""
LOOK_S = 0.05
SESSION_LOOK_S = 0.5


@on_cluster
def submit(
    target: Target,
    file: Annotated[str, SpecFile],
    name: Annotated[str | None, Option("--name", help="In place of the file's.")] = None,
    constraint: Constraints = None,
    agent: Agents = None,
    single_node: SingleNode = False,
    after: After = None,
    not_before: NotBefore = None,
    wait: Annotated[
        bool, Option("--wait", help="Wait until it has ended; end with its exit code.")
    ] = False,
    no_wait: Annotated[
        bool, Option("--no-wait", help="Exit code 2 if it does not start at once.")
    ] = False,
    quiet: Annotated[
        bool, Option("--quiet", "-q", help="Print the id alone; no progress with --wait.")
    ] = False,
) -> None:
    """Hand in a job or a session from a file; prints its name and id."""
    from muster.core.specs import JobSpec, ScalingGroup, SessionSpec

    if wait and no_wait:
        raise click.BadParameter("give one of --wait and --no-wait")
    spec = read_spec(file)
    if isinstance(spec, ScalingGroup):
        raise click.BadParameter(f"{file} is a group: use `muster groups apply {file}`")
    if not isinstance(spec, JobSpec | SessionSpec):
        raise click.BadParameter(f"{file} is a {spec.kind}, which is not work to hand in")
    if keys := placement_keys(constraint, agent, single_node, after, not_before):
        spec = with_keys(spec, keys)
    if name is not None:
        spec = spec.model_copy(update={"name": name})
    if isinstance(spec, JobSpec) and not quiet and (left := left_behind(spec)):
        here = "." if directory_of(file) == current_directory() else current_directory()
        stderr().print(
            Text(
                f"note: it runs in an empty directory of its own, without {plain(left)}; "
                f"`workdir: {here}` in {plain(file)} makes it run here"
            ),
            soft_wrap=True,
        )
    code = hand_in(target, spec, detach=not wait, no_wait=no_wait, output=False, quiet=quiet)
    raise click.exceptions.Exit(code)


def hand_in(
    target: Target,
    spec: "JobSpec | SessionSpec | Mapping[str, Any]",
    *,
    detach: bool,
    no_wait: bool,
    output: bool,
    quiet: bool,
) -> int:
    """Submit, and stay with it as long as was asked for; the answer is the exit code.

    Name and id are printed on stdout unless that is for the output; the id alone when ``quiet``.

    Raises:
        MusterError: it was refused; nothing was started.
    """
    with target.client() as client:
        with suggesting_targets(client):
            accepted = client.submit(spec)
        if detach or no_wait or not output:
            named = accepted.name is not None and not quiet
            click.echo(f"{accepted.name} ({accepted.id})" if named else accepted.id)
        if no_wait:
            return _placed_or_why(client, accepted)
    if detach:
        return ExitCode.OK
    from muster.core.views import JobView

    if isinstance(accepted, JobView):
        return Follower(target, accepted, output=output, quiet=quiet).run().exit_code
    return _wait_for_session(target, accepted.id)


def left_behind(spec: "JobSpec") -> str | None:
    """The file of the current directory that the job's command names, and that it will not find in
    its scratch directory; None if there is none."""
    import shlex

    if spec.workdir is not None:
        return None
    words = spec.command
    if len(words) == 3 and words[:2] == ["/bin/sh", "-c"]:
        with suppress(ValueError):  # quotes that only the shell can make sense of
            words = shlex.split(words[2])
    for word in words:
        with suppress(OSError, ValueError):  # too long for a path, or no path at all
            if not word.startswith("/") and word not in spec.files and Path(word).is_file():
                return word
    return None


def _wait_for_session(target: Target, id_: str) -> int:
    """Until it has ended; the first kernel's code that is not 0, as a shell would have it."""
    from muster.client import Unreachable

    def heard(answers: bool) -> None:
        line = back_line(client.url) if answers else away_line(client.url)
        stderr().print(Text(line), soft_wrap=True)

    with target.client(on_contact=heard) as client:
        try:
            while not (session := client.session(id_)).ended:
                time.sleep(SESSION_LOOK_S)
        except Unreachable as error:
            raise LostSight(error) from None
    if session.reason is not None and session.reason.code == ReasonCode.CANCELLED:
        return ExitCode.INTERRUPTED
    for kernel in session.kernels:
        if kernel.signal:
            return SIGNAL_BASE + kernel.signal
        if kernel.exit_code != 0:
            return kernel.exit_code or ExitCode.FAILED
    return ExitCode.OK


def _placed_or_why(client: "Client", accepted: "JobView | SessionView") -> int:
    """Whether it found a place in a moment; if not, why."""
    deadline_s = time.monotonic() + PLACED_WITHIN_S
    while time.monotonic() < deadline_s:
        if _placed(client, accepted.id):
            return ExitCode.OK
        time.sleep(LOOK_S)
    for reason in client.why(accepted.id).reasons:
        stderr().print(Text(plain(f"not placed yet: {reason.sentence}. {reason.remedy}".strip())))
    return ExitCode.NOT_PLACED


def _placed(client: "Client", id_: str) -> bool:
    if id_.startswith("ses-"):
        return client.session(id_).status is not SessionStatus.PENDING
    return client.job(id_).state is not JobState.PENDING
