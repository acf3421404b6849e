"""Submissions that were accepted lately, so that a repeated one is not accepted twice.

A caller names its submission by a key of its own choice. The key is written in the transaction
that accepts the work, so there is no moment at which one exists without the other.
"""

import hashlib

from sqlalchemy import Connection, Delete, bindparam, delete, select

from muster.core.owner import Owner
from muster.store.batch import Batch, Row, inserting
from muster.store.schema import submissions

_REMEMBER = inserting(submissions, ("key", "entity", "at"))
_ALL = select(submissions).order_by(submissions.c.at)
_BY_KEY = select(submissions).where(submissions.c.key == bindparam("key"))


def submission_key(owner: Owner, chosen: str) -> str:
    """The stored form of a caller's key: short, and different from any other owner's."""
    return hashlib.sha256(f"{owner}\0{chosen}".encode()).hexdigest()[:32]


def read_submissions(connection: Connection) -> dict[str, tuple[str, float]]:
    """All remembered submissions: (entity, when) by key, oldest first."""
    return {row.key: (row.entity, row.at) for row in connection.execute(_ALL)}


def read_submission(connection: Connection, key: str) -> tuple[str, float] | None:
    """(entity, when) of one remembered submission."""
    row = connection.execute(_BY_KEY, {"key": key}).first()
    return None if row is None else (row.entity, row.at)


def remember(key: str, entity: str, at: float) -> tuple[Batch, Row]:
    """The statement that stores the key together with the work; for ``Unit.also_rows``."""
    return _REMEMBER, (key, entity, at)


def forget_before(moment: float) -> Delete:
    """The statement that forgets submissions which nobody repeats any more; for ``Unit.also``."""
    return delete(submissions).where(submissions.c.at < moment)
