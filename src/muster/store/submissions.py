"""Submissions that were accepted lately, so that a repeated one is not accepted twice.

A caller names its submission by a key of its own choice. The key is written in the transaction
that accepts the work, so there is no moment at which one exists without the other.
"""

import hashlib

from sqlalchemy import Connection, delete, select

from muster.core.owner import Owner
from muster.store.batch import Batch, Row, inserting
from muster.store.lookup import Lookup, given
from muster.store.schema import submissions

_REMEMBER = inserting(submissions, ("key", "entity", "at"))
_FORGET = Batch(
    lambda at: delete(submissions).where(submissions.c.at < at("moment")),
    {"moment": submissions.c.at.type},
)
_ALL = Lookup(
    select(submissions.c.key, submissions.c.entity, submissions.c.at).order_by(submissions.c.at)
)
_BY_KEY = Lookup(
    select(submissions.c.entity, submissions.c.at).where(submissions.c.key == given("key"))
)


def submission_key(owner: Owner, chosen: str) -> str:
    """The stored form of a caller's key: short, and different from any other owner's."""
    return hashlib.sha256(f"{owner}\0{chosen}".encode()).hexdigest()[:32]


def read_submissions(connection: Connection) -> dict[str, tuple[str, float]]:
    """All remembered submissions: (entity, when) by key, oldest first."""
    return {key: (entity, at) for key, entity, at in _ALL.rows(connection)}


def read_submission(connection: Connection, key: str) -> tuple[str, float] | None:
    """(entity, when) of one remembered submission."""
    found = _BY_KEY.first(connection, {"key": key})
    return None if found is None else (found[0], found[1])


def remember(key: str, entity: str, at: float) -> tuple[Batch, Row]:
    """The statement that stores the key together with the work; for ``Unit.also_rows``."""
    return _REMEMBER, (key, entity, at)


def forget_before(moment: float) -> tuple[Batch, Row]:
    """The statement that forgets submissions which nobody repeats any more; for
    ``Unit.also_rows``."""
    return _FORGET, (moment,)
