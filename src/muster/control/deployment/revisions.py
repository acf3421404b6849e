"""Revisions of a deployment: what its replicas are made of, by number."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from muster.core.specs.serving import ProbeSpec

MAX_REVISIONS = 10
"""Revisions of a deployment that are kept, to go back to."""
MAX_REVISIONS_BYTES = 2 * 2**20
"""Of the templates of the revisions that are kept to go back to."""


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
        probe: of its replicas, kept from when another revision was handed in; None while it is the
            latest, whose probe is that of the deployment's spec.
    """

    number: int
    digest: str
    template: Mapping[str, Any]
    created_at: float
    by: str
    of: int | None = None
    probe: ProbeSpec | None = None


def kept(revisions: Sequence[Revision], needed: frozenset[int]) -> tuple[Revision, ...]:
    """The latest revisions, as many as there is room for, and those that are ``needed`` however old
    they are. All of them are written whenever their deployment changes."""
    found: list[Revision] = []
    left_bytes = MAX_REVISIONS_BYTES
    for revision in reversed(revisions):
        left_bytes -= len(json.dumps(revision.template)) if left_bytes > 0 else 0
        is_latest = len(found) < MAX_REVISIONS and left_bytes > 0
        if is_latest or revision.number in needed:
            found.append(revision)
    return tuple(reversed(found))


def with_probe(
    revisions: Sequence[Revision], number: int, probe: ProbeSpec
) -> tuple[Revision, ...]:
    """The revisions, of which the one of this number keeps its probe."""
    return tuple(
        replace(each, probe=probe) if each.number == number else each for each in revisions
    )
