"""Following a deployment until it is as somebody wished it."""

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import click
from rich.text import Text

from muster.cli.cluster import Cluster
from muster.cli.described.deployment import said_replicas, said_rollout
from muster.cli.described.revision import GIVEN_UP
from muster.cli.exits import ExitCode
from muster.cli.follow.feed import LostSight, away_line, back_line
from muster.cli.follow.interrupt import Interrupts
from muster.cli.follow.progress import spinner
from muster.cli.follow.status_line import StatusLine
from muster.cli.screen import stderr
from muster.cli.streams import Line, discard_stderr, discard_stdout, plain
from muster.cli.words import duration, sentence_of, waits, without_durations, without_numbers
from muster.core.errors import MusterError
from muster.core.reasons import ReasonCode
from muster.core.states.deployment import DEPLOYMENT_TABLE, EndpointLifecycle

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.deployments import DeploymentView

LOOK_S = 0.5
ASK_WHY_AFTER_S = 2.0
ASK_WHY_EVERY_S = 5.0
TOLD_WHYS = 8
"""Reasons that are not told again: several hold at a time, and take turns in being the first."""

Over = Callable[["DeploymentView"], int | None]
"""The exit code once a deployment is as it is waited for, or will not be; None until then."""


def rolled_out(found: "DeploymentView") -> int | None:
    """Whether the wished revision serves with all of its replicas."""
    succeeded = found.succeeded
    if succeeded is None:
        return None
    return ExitCode.OK if succeeded else ExitCode.FAILED


def scaled(found: "DeploymentView") -> int | None:
    """Whether there are as many replicas as are wished, whatever became of an update."""
    if found.finished_at is not None:
        return ExitCode.FAILED
    if found.is_complete:
        return ExitCode.OK
    why = found.reason
    stuck = why is not None and why.code == ReasonCode.DEPLOYMENT_NEVER_HEALTHY
    return ExitCode.FAILED if stuck else None


def serves(found: "DeploymentView") -> int | None:
    """Whether any replica gets requests."""
    return ExitCode.OK if found.healthy else rolled_out(found)


def follow(
    cluster: Cluster,
    accepted: "DeploymentView",
    over: Over,
    *,
    timeout_s: float | None = None,
    quiet: bool = False,
) -> "tuple[DeploymentView, int]":
    """The deployment once it is ``over``, or the time is; and the exit code.

    Raises:
        MusterError: it cannot be watched any more.
        click.exceptions.Exit: a signal ended the wait; the deployment goes on.
    """
    return Follower(cluster, accepted, over, quiet=quiet).run(timeout_s)


class Follower:
    """Shows on stderr how a deployment comes to be as it is wished: one line that changes on a
    terminal, else a line for each change.

    Args:
        over: tells when there is nothing more to wait for.
        quiet: whether nothing is shown but trouble.
    """

    def __init__(
        self, cluster: Cluster, accepted: "DeploymentView", over: Over, *, quiet: bool = False
    ) -> None:
        self._cluster = cluster
        self._found = accepted
        self._over = over
        self._quiet = quiet
        self._screen = StatusLine(stderr())
        self._told = "", ""  # how it stood, and why, in the last line; without durations
        self._why = ""
        self._told_whys: deque[str] = deque(maxlen=TOLD_WHYS)
        self._began_s = time.monotonic()
        self._ask_why_s = self._began_s + ASK_WHY_AFTER_S
        self._tick = 0

    def run(self, timeout_s: float | None) -> "tuple[DeploymentView, int]":
        """See ``follow``."""
        until_s = None if timeout_s is None else self._began_s + timeout_s
        with Interrupts() as interrupts:
            try:
                with interrupts.raised():
                    over = self._watched(until_s)
            except (KeyboardInterrupt, OSError) as error:
                by = interrupts.told_to_end
                if by is None and isinstance(error, OSError):
                    raise
                self._left()
                code = ExitCode.NOT_ENDED if by is None else 128 + by
                raise click.exceptions.Exit(code) from None
        self._screen.clear()
        if over is None:
            self._left()
            return self._found, ExitCode.NOT_ENDED
        self._concluded(over)
        return self._found, over

    def _watched(self, until_s: float | None) -> int | None:
        """The exit code; None once the time is over.

        Raises:
            LostSight: nobody answers any more.
            MusterError: it cannot be asked for.
        """
        from muster.client import Unreachable

        def heard(answers: bool) -> None:
            url = client.url
            line = back_line(url) if answers else away_line(url, "the deployment")
            if answers or not self._screen.show(Line(line)):
                self._screen.say(Line(line))

        with self._cluster.client(on_contact=heard) as client:
            try:
                while (code := self._over(self._found)) is None:
                    now_s = time.monotonic()
                    if until_s is not None and now_s >= until_s:
                        return None
                    if now_s >= self._ask_why_s:
                        self._ask_why_s = now_s + ASK_WHY_EVERY_S
                        self._learn_why(client)
                    self._show(now_s)
                    time.sleep(LOOK_S if until_s is None else min(LOOK_S, until_s - now_s))
                    self._found = client.deployments.show(self._found.id)
            except Unreachable as error:
                self._screen.clear()
                raise LostSight(error) from None
        return code

    def _learn_why(self, client: "Client") -> None:
        """Ask why replicas are missing; without a terminal it is told where it is none of the last
        reasons."""
        with suppress(MusterError):  # the deployment may be gone
            of_routes = [
                sentence_of(each)
                for each in client.why(self._found.id).reasons
                if each != self._found.reason and each.code != ReasonCode.ROLLOUT_UNDER_WAY
            ]
            self._why = of_routes[0] if of_routes else ""
            gist = without_numbers(self._why)
            if self._quiet or self._screen.enabled or not gist or gist in self._told_whys:
                return
            self._told_whys.append(gist)
            self._screen.say(Line(plain(waits(self._found.name, self._why))))

    def _show(self, now_s: float) -> None:
        if self._quiet:
            return
        if not self._screen.enabled:
            self._tell()
            return
        parts = [said(self._found)]
        if now_s - self._began_s >= 1:
            parts.append(duration(int(now_s - self._began_s)))
        if self._why:
            parts.append(self._why)
        self._tick += 1
        self._screen.show(Text.assemble(spinner(self._tick), " ", plain(" · ".join(parts))))

    def _tell(self) -> None:
        """Print a line that stays on how it stands, unless it is the last one but for durations;
        with the reason, unless the last one told that."""
        why = "" if self._found.reason is None else sentence_of(self._found.reason)
        gist = without_durations(stands(self._found)), without_durations(why)
        if gist != self._told:
            is_known = gist[1] == self._told[1]
            self._told = gist
            line = stands(self._found) if is_known else said(self._found)
            self._screen.say(Line(plain(line)))

    # -- ends ------------------------------------------------------------------------------------

    def _concluded(self, code: int) -> None:
        if self._quiet:
            return
        self._tell()
        reason = self._found.reason
        if code != ExitCode.OK and reason is not None and reason.remedy:
            self._screen.say(Line(plain(reason.remedy)))

    def _left(self) -> None:
        """Say how it stands, that it goes on, and how it is watched, undone and taken down."""
        name = self._found.name
        line = f"{name} goes on: `muster rollout status --wait {name}` watches it, "
        if self._found.rollout is not None:
            line += f"`muster rollout undo {name}` goes back, "
        try:
            self._tell()
            self._screen.say(Line(plain(f"{line}`muster cancel {name}` takes it down")))
        except OSError:  # the terminal is gone
            discard_stdout()
            discard_stderr()


def said(found: "DeploymentView") -> str:
    """How a deployment stands, and why, in one line."""
    why = found.reason
    if why is None:
        return stands(found)
    if why.code in GIVEN_UP and found.is_given_up:  # the reason says what serves
        return f"{_replicas(found)}; {sentence_of(why)}"
    return f"{stands(found)}; {sentence_of(why)}"


def stands(found: "DeploymentView") -> str:
    """How a deployment stands, in one line."""
    if found.status in (EndpointLifecycle.DESTROYING, EndpointLifecycle.DESTROYED):
        return f"deployment {found.name} {DEPLOYMENT_TABLE.words[found.status]}"
    update = said_rollout(found, time.time())
    return f"{_replicas(found)}; {update}" if update else _replicas(found)


def _replicas(found: "DeploymentView") -> str:
    return f"deployment {found.name}: {said_replicas(found)}"
