"""Suggestions of names that are similar to a typed name which does not exist."""

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from muster.cli import kinds
from muster.cli.words import one
from muster.core.errors import InvalidSpec, MusterError, NotFound, Problem

if TYPE_CHECKING:
    from muster.cli.kinds.kind import Kind
    from muster.client import Client
    from muster.core.views.cluster import GroupView

LOOKED_AT = 500
"""The newest records of each kind whose names are compared."""
OFFERED = 3
ALIKE = 0.75
"""The similarity (``difflib``) that a name must have to the typed one: it allows one or two slips,
and no other word."""
_DEPENDENCY = r"after\.\d+\.on|uses"


@contextmanager
def suggesting(
    client: "Client",
    ref: str,
    among: "Iterable[Kind[Any, Any]] | None" = None,
    *,
    state: str = "all",
) -> Iterator[None]:
    """Add similar known names to an error about an unknown REF: those of work, or those ``among``
    records of these kinds, in a ``state``; or the kind of the record that it names instead."""
    try:
        yield
    except NotFound as error:
        compared = None if among is None else [*among]  # only now: to make one imports its module
        names = nearest(client, ref.partition("/")[0], compared, state)
        if not names:
            is_one_of_others = compared and len(compared) < len(kinds.KINDS)
            if compared and is_one_of_others and (other := _kind_named(client, ref, compared)):
                raise NotFound(f"{error}: {ref} is {one(other)}") from None
            raise
        raise NotFound(f"{error}; did you mean {' or '.join(names)}?") from None


def _kind_named(client: "Client", ref: str, among: "Collection[Kind[Any, Any]]") -> str | None:
    """The kind of the record that a REF names, if it is none of these."""
    with suppress(MusterError):
        kind = kinds.of_record(client.show(ref))
        return None if kind in among else kind.name
    return None


@contextmanager
def suggesting_dependencies(client: "Client") -> Iterator[None]:
    """Add similar known names to a refusal for unknown dependencies."""
    try:
        yield
    except InvalidSpec as error:
        raise InvalidSpec([_with_names(client, problem) for problem in error.problems]) from None


def _with_names(client: "Client", problem: Problem) -> Problem:
    wanted = problem.value.strip("'")
    if not re.fullmatch(_DEPENDENCY, problem.field):
        return problem
    if "deployment" not in problem.expected:
        names = nearest(client, wanted)
    elif "no such deployment" in problem.expected:
        from muster.cli.kinds import deployment

        names = nearest(client, wanted, [deployment.KIND], "live")
    else:
        return problem
    if not names:
        return problem
    return replace(problem, expected=f"{problem.expected}; did you mean {' or '.join(names)}?")


def named_group(client: "Client", name: str) -> "GroupView":
    """
    Raises:
        NotFound: there is no such group; with those that there are.
    """
    known = {group.name: group for group in client.groups()}
    if name not in known:
        raise NotFound(f"there is no group {name!r}; groups are: {', '.join(known)}")
    return known[name]


def check_filters(client: "Client", *, group: str | None = None, pool: str | None = None) -> None:
    """Refuse the filters of a listing that showed nothing, if they name nothing that exists.

    Raises:
        NotFound: with the groups that there are, or with similar names.
    """
    if group is not None:
        named_group(client, group)
    if pool is not None:
        from muster.cli.kinds import pool as pool_kind

        with suggesting(client, pool, [pool_kind.KIND]):
            client.pools.show(pool)


def nearest(
    client: "Client",
    name: str,
    among: "Iterable[Kind[Any, Any]] | None" = None,
    state: str = "all",
) -> list[str]:
    """Names similar to this one, of work or ``among`` records of these kinds in a ``state``; none
    if the name is known, or nothing can be listed."""
    import difflib

    known: list[str] = []
    with suppress(MusterError):
        for kind in kinds.work() if among is None else among:
            names = map(kind.name_of, kind.newest(client, state, limit=LOOKED_AT))
            known += filter(None, names)
    if name in known:
        return []
    return difflib.get_close_matches(name, dict.fromkeys(known), OFFERED, ALIKE)
