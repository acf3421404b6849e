"""Handing work in, and staying with it as long as the person asked for."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from muster.cli.exits import ExitCode
from muster.cli.follow.feed import LostSight, away_line, back_line
from muster.cli.follow.follow import Follower
from muster.cli.follow.interrupt import Interrupts, told_to_end
from muster.cli.local_workdir import refuse_missing_workdirs
from muster.cli.nearest import suggesting_dependencies
from muster.cli.screen import plain, print_json, stderr
from muster.cli.target import Target
from muster.core.ids import IdKind
from muster.core.states import JobState, SessionStatus

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.specs import JobSpec, SessionSpec
    from muster.core.views.work import JobView, SessionDetail, SessionView

PLACED_WITHIN_S = 1.0
"""How long --no-wait gives the work to be placed before it says that it waits."""
LOOK_S = 0.05
SESSION_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Display:
    """The output that a person wants of the work that they hand in.

    Args:
        detach: the work's name and id, and nothing more.
        no_wait: name, id, and whether the work starts at once.
        output: the work's own output, on stdout.
        quiet: no progress, and ids without names.
        as_json: the job or session as JSON on stdout and nothing else: as it was accepted, or with
            the ``exit_code`` as it ended, if its end is waited for.
    """

    detach: bool = False
    no_wait: bool = False
    output: bool = False
    quiet: bool = False
    as_json: bool = False


def submitted(
    target: Target, spec: "JobSpec | SessionSpec | Mapping[str, Any]", display: Display
) -> int:
    """Submit work; the answer is the exit code.

    Raises:
        MusterError: it was refused; nothing was started.
    """

    def submit(client: "Client") -> "JobView | SessionView":
        refuse_missing_workdirs(client, spec)
        with suggesting_dependencies(client):
            return client.submit(spec)

    return handed_in(target, submit, display)


def handed_in(
    target: Target, hand_in: "Callable[[Client], JobView | SessionView]", display: Display
) -> int:
    """Have ``hand_in`` hand work in, and stay with it; the answer is the exit code.

    Raises:
        MusterError: it was refused; nothing was started.
    """
    with target.client() as client:
        accepted = hand_in(client)
        if display.as_json and (display.detach or display.no_wait):
            print_json(accepted)
        elif not display.as_json and (display.detach or display.no_wait or not display.output):
            named = accepted.name is not None and not display.quiet
            click.echo(f"{accepted.name} ({accepted.id})" if named else accepted.id)
        if display.no_wait:
            return _placed_or_why(client, accepted)
        if display.detach and not (display.quiet or display.as_json):
            for reason in accepted.warnings:
                said = f"no agent could hold it now: {reason.sentence}. {reason.remedy}"
                stderr().print(Text(f"warning: {plain(said)}"), soft_wrap=True)
    if display.detach:
        return ExitCode.OK
    from muster.core.views.work import JobView

    ended: JobView | SessionView
    if isinstance(accepted, JobView):
        output, quiet = display.output and not display.as_json, display.quiet or display.as_json
        ending = Follower(target, accepted, output=output, quiet=quiet).run()
        ended, code = ending.job, ending.exit_code
    else:
        ended, code = _wait_for_session(target, accepted)
        if ended.ended and not (display.quiet or display.as_json):
            why = f": {ended.reason.sentence}" if ended.reason else ""
            line = f"{ended.name or ended.id} {ended.status.lower()}{why}"
            stderr().print(Text(plain(line)), soft_wrap=True)
    if display.as_json:
        import msgspec

        print_json(msgspec.to_builtins(ended) | {"exit_code": code})
    return code


def _wait_for_session(target: Target, accepted: "SessionView") -> "tuple[SessionView, int]":
    """The session once it has ended, and its exit code; or the session as it was accepted, once
    this process was told to end."""

    def say(line: Text) -> None:
        stderr().print(line, soft_wrap=True)

    with Interrupts() as interrupts:
        try:
            with interrupts.raised():
                ended = _ended_session(target, accepted.id, say)
        except KeyboardInterrupt:
            if interrupts.told_to_end is None:
                raise
            return accepted, told_to_end(interrupts.told_to_end, target, accepted, say)
    code = ended.exit_code
    return ended, ExitCode.FAILED if code is None else code


def _ended_session(target: Target, id_: str, say: Callable[[Text], None]) -> "SessionDetail":
    """The session once it has ended.

    Raises:
        LostSight: nobody answers any more.
    """
    from muster.client import Unreachable

    def heard(answers: bool) -> None:
        say(Text(back_line(client.url) if answers else away_line(client.url)))

    with target.client(on_contact=heard) as client:
        try:
            while not (session := client.session(id_)).ended:
                time.sleep(SESSION_LOOK_S)
        except Unreachable as error:
            raise LostSight(error) from None
    return session


def _placed_or_why(client: "Client", accepted: "JobView | SessionView") -> int:
    """Tell whether the work found a place within a moment, or else why not; the answer is the exit
    code."""
    deadline_s = time.monotonic() + PLACED_WITHIN_S
    while time.monotonic() < deadline_s:
        if _placed(client, accepted.id):
            return ExitCode.OK
        time.sleep(LOOK_S)
    for reason in client.why(accepted.id).reasons:
        stderr().print(Text(plain(f"not placed yet: {reason.sentence}. {reason.remedy}".strip())))
    return ExitCode.NOT_PLACED


def _placed(client: "Client", id_: str) -> bool:
    if IdKind.SESSION.begins(id_):
        return client.session(id_).status is not SessionStatus.PENDING
    return client.job(id_).state is not JobState.PENDING
