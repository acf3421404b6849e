"""The query parameters of listings, and the listings of which the mirror tells that they find
nothing."""

from itertools import islice
from typing import Annotated, Any

from fastapi import Query

from muster.core.errors import InvalidSpec, Problem
from muster.core.states import StateTable
from muster.store.entity import Entity
from muster.store.live import Live
from muster.store.queries.listing import Listing

MAX_PAGE = 1000
MAX_LOOKED_AT = 200
"""Live records among which a listing looks for one that it might find."""

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


def finds_nothing(entity: Entity[Any], live: Live, listing: Listing) -> bool:
    """Whether the mirror alone tells that a listing of these records finds nothing, so that no read
    of SQL is needed. It is asked where it holds few of them, because others wait meanwhile."""
    if listing.with_left and listing.left:
        return False
    if listing.states is None or not entity.states.live.issuperset(listing.states):
        return False
    filters = {"name": listing.name, "user": listing.owner, "group": listing.group}
    if any(value is not None and key not in entity.table.c for key, value in filters.items()):
        return False  # which is refused
    records = [*islice(live.all_of(entity), MAX_LOOKED_AT + 1)]
    return len(records) <= MAX_LOOKED_AT and not any(_has_name(each, listing) for each in records)


def _has_name(record: Any, listing: Listing) -> bool:
    """Whether a live record may be listed, as far as its name goes. A record that stores none
    itself, or has none, is left to SQL."""
    stored = "name" in record.__dataclass_fields__
    name: str | None = record.name if stored else None
    if listing.name is None or name is None:
        return True
    if listing.name.endswith("*"):
        return name.startswith(listing.name.removesuffix("*"))
    return name == listing.name
