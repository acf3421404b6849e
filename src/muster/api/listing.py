"""The query parameters of listings."""

from typing import Annotated, Any

from fastapi import Query

from muster.core.errors import InvalidSpec, Problem
from muster.core.states import StateTable

MAX_PAGE = 1000

CURRENT = "current"
"""The live records, and those that have ended of which processes are left."""
State = Annotated[
    str,
    Query(
        description="live, ended, all, one state, or current: live, or of which processes are left",
        max_length=40,
    ),
]
Name = Annotated[
    str | None, Query(description="exactly so, or what it begins with: train*", max_length=64)
]
OwnerOf = Annotated[str | None, Query(description="a user, or domain/project/user", max_length=200)]
Group = Annotated[str | None, Query(description="of this scaling group", max_length=64)]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Cursor = Annotated[
    str | None, Query(description="`next` of the page before this one", max_length=40)
]


def states_of(table: StateTable[Any], asked: str) -> frozenset[str] | None:
    """The states that ``asked`` names; None stands for all.

    Raises:
        InvalidSpec: it names no state.
    """
    match asked.lower():
        case "all":
            return None
        case "live" | "current":
            return frozenset(table.live)
        case "ended":
            return frozenset(table.terminal)
    state = asked.upper()
    known = sorted(table.live | table.terminal)
    if state not in known:
        expected = f"expected live, current, ended, all, or one of {', '.join(known)}"
        raise InvalidSpec([Problem("state", repr(asked), expected)])
    return frozenset({state})
