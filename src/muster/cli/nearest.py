"""Names like the one that was typed, where there is nothing of that name."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from muster.core.errors import InvalidSpec, MusterError, NotFound, Problem

if TYPE_CHECKING:
    from muster.client import Client

LOOKED_AT = 500
"""The newest jobs and sessions whose names are compared."""
OFFERED = 3
ALIKE = 0.75
"""How much of a name must be as it was typed (``difflib``): a slip or two, not another word."""
_TARGET = re.compile(r"after\.\d+\.on")


@contextmanager
def suggesting(client: "Client", ref: str) -> Iterator[None]:
    """Have an error about an unknown REF name the known ones that are like it."""
    try:
        yield
    except NotFound as error:
        names = nearest(client, ref.partition("/")[0])
        if not names:
            raise
        raise NotFound(f"{error}; did you mean {' or '.join(names)}?") from None


@contextmanager
def suggesting_targets(client: "Client") -> Iterator[None]:
    """Have a refusal of work to start after say which known names are like those that are not."""
    try:
        yield
    except InvalidSpec as error:
        raise InvalidSpec([_with_names(client, problem) for problem in error.problems]) from None


def _with_names(client: "Client", problem: Problem) -> Problem:
    wanted = problem.value.strip("'")
    if not _TARGET.fullmatch(problem.field) or not (names := nearest(client, wanted)):
        return problem
    return replace(problem, expected=f"{problem.expected}; did you mean {' or '.join(names)}?")


def nearest(client: "Client", name: str) -> list[str]:
    """Names of jobs and sessions like this one; none if it is known, or nothing can be listed."""
    import difflib

    known: list[str] = []
    with suppress(MusterError):
        known += [job.name for job in client.jobs("all", limit=LOOKED_AT)]
        known += [found.name for found in client.sessions("all", limit=LOOKED_AT) if found.name]
    if name in known:
        return []
    return difflib.get_close_matches(name, dict.fromkeys(known), OFFERED, ALIKE)
