"""Revisions of a deployment: what its replicas are made of, by number."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

MAX_REVISIONS = 10
"""Revisions of a deployment that are kept, to go back to."""


@dataclass(frozen=True, slots=True)
class Revision:
    """The keys of a spec of which another value replaces replicas.

    Args:
        number: counts from 1; going back to a revision makes a new number.
        digest: of the template; revisions that are alike have the same.
        template: the keys as they are stored.
        created_at: when it was handed in.
        by: the user who did so.
        of: the revision to which it goes back; None for one that is new.
    """

    number: int
    digest: str
    template: Mapping[str, Any]
    created_at: float
    by: str
    of: int | None = None


def dump_revisions(revisions: Sequence[Revision]) -> str:
    """The revisions as they are stored."""
    return json.dumps([asdict(each) for each in revisions])


def load_revisions(text: str) -> tuple[Revision, ...]:
    """The revisions that were stored."""
    return tuple(Revision(**each) for each in json.loads(text))


def kept(revisions: Sequence[Revision], needed: frozenset[int]) -> tuple[Revision, ...]:
    """The latest revisions, and those that are ``needed`` however old they are."""
    oldest = revisions[-MAX_REVISIONS:][0].number if revisions else 0
    return tuple(each for each in revisions if each.number >= oldest or each.number in needed)
