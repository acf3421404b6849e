"""Handing work in, and waiting for it as long as the person asked for."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from muster.cli import kinds
from muster.cli.cluster import Cluster
from muster.cli.exits import ExitCode
from muster.cli.local_workdir import refuse_missing_workdirs
from muster.cli.nearest import suggesting_dependencies
from muster.cli.streams import plain, print_json, say
from muster.cli.words import sentence_of
from muster.core.errors import Conflict

if TYPE_CHECKING:
    from muster.cli.kinds.kind import WorkKind
    from muster.client import Client
    from muster.core.specs import JobSpec
    from muster.core.specs.amounts import Spec
    from muster.core.views.base import ReasonView, RecordView

T = TypeVar("T")

PLACED_WITHIN_S = 1.0
"""Seconds that --no-wait gives the work to be placed before it says that the work waits."""
LOOK_S = 0.05
LONGEST_NAME = 63
"""Characters of a name (``core.specs.amounts.Name``, which is long to import)."""
MAX_TRIES = 100
"""Numbers that are tried for a name that live work has."""


class Display(NamedTuple):
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
    cluster: Cluster,
    spec: "Spec | Mapping[str, Any]",
    display: Display,
    *,
    numbers_name: bool = False,
) -> int:
    """Submit work; the answer is the exit code.

    Args:
        numbers_name: whether a name that work of the caller's still has gets a number, as train-2,
            and is not refused.

    Raises:
        MusterError: it was refused; nothing was started.
    """

    def submit(client: "Client") -> "RecordView":
        refuse_missing_workdirs(client, spec)
        with suggesting_dependencies(client):
            # Only here are specs imported, with pydantic: `muster run` has the keys of one.
            if numbers_name and not isinstance(spec, Mapping):
                from muster.core.specs import JobSpec

                if isinstance(spec, JobSpec):
                    return under_a_free_name(client, spec, client.submit)
            return client.submit(spec)

    return handed_in(cluster, submit, display)


def under_a_free_name(client: "Client", spec: "JobSpec", hand_in: "Callable[[JobSpec], T]") -> T:
    """Hand a job in under its name, or if that is taken under it with a number that is free: the
    one after those of the latest jobs that have one."""
    number = 1
    for tries_left in reversed(range(MAX_TRIES)):
        numbered = spec
        if spec.name is not None and number > 1:
            numbered = spec.model_copy(update={"name": _numbered(spec.name, number)})
        try:
            return hand_in(numbered)
        except Conflict:
            is_taken = spec.name is not None and client.jobs("live", name=numbered.name, limit=1)
            if not tries_left or not is_taken:
                raise
            number = max(number, _highest_number(client, str(spec.name))) + 1
    raise AssertionError("unreachable")


def _highest_number(client: "Client", name: str) -> int:
    """The highest number that the latest live jobs of a name have."""
    numbers = [0]
    for job in client.jobs("live", name=f"{name}-*"):
        number = job.name.removeprefix(f"{name}-")
        if number.isascii() and number.isdecimal():
            numbers.append(int(number[:9]))
    return max(numbers)


def _numbered(name: str, number: int) -> str:
    """A name with a number, no longer than names may be."""
    end = f"-{number}"
    return f"{name[: LONGEST_NAME - len(end)].rstrip('._-')}{end}"


def handed_in(cluster: Cluster, hand_in: "Callable[[Client], RecordView]", display: Display) -> int:
    """Have ``hand_in`` hand work in, and follow it as ``display`` says; the answer is the exit
    code.

    Raises:
        MusterError: it was refused; nothing was started.
    """
    with cluster.client() as client:
        accepted = hand_in(client)
        kind = kinds.of_work(accepted)
        if display.as_json and (display.detach or display.no_wait):
            print_json(accepted)
        elif not display.as_json and (display.detach or display.no_wait or not display.output):
            name = None if display.quiet else kind.name_of(accepted)
            click.echo(f"{name} ({accepted.id})" if name is not None else accepted.id)
        if not (display.quiet or display.as_json):
            _warn(kind.warnings(accepted), waited_for=not display.detach)
        if display.no_wait:
            return _placed_or_why(client, kind, accepted.id)
    if display.detach:
        return ExitCode.OK
    ended, code = kind.wait(cluster, accepted, display)
    if display.as_json:
        import msgspec

        print_json(msgspec.to_builtins(ended) | {"exit_code": code})
    return code


def _warn(reasons: "Sequence[ReasonView]", *, waited_for: bool) -> None:
    """Tell what is hardly meant, and, unless the work is ``waited_for`` and so told why it does not
    start, the reasons for which no agent could hold it."""
    if not reasons:
        return
    from muster.core.reasons import OF_SPECS

    for reason in reasons:
        said = f"{sentence_of(reason)}. {reason.remedy}"
        if reason.code not in OF_SPECS:
            if waited_for:
                continue
            said = f"no agent could hold it now: {said}"
        say(f"warning: {plain(said)}")


def _placed_or_why(client: "Client", kind: "WorkKind[Any, Any]", id_: str) -> int:
    """Tell whether the work found a place soon, or why it did not; the answer is the exit code."""
    deadline_s = time.monotonic() + PLACED_WITHIN_S
    while time.monotonic() < deadline_s:
        if client.show(id_).status != kind.states.initial:
            return ExitCode.OK
        time.sleep(LOOK_S)
    for reason in client.why(id_).reasons:
        say(plain(f"not placed yet: {sentence_of(reason)}. {reason.remedy}".strip()))
    return ExitCode.NOT_PLACED
