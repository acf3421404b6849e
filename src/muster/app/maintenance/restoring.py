"""`muster db restore`: the state of a backup takes the place of the present one."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sqlalchemy import Connection, select, text

from muster.app.home import Home
from muster.app.maintenance.given_uids import given_uids, keep_given
from muster.app.maintenance.making import Made, make
from muster.app.maintenance.place import held
from muster.app.maintenance.revoking import Revoked, revoke, revoke_tokens
from muster.app.revocations import NOTHING_REVOKED, Revocations
from muster.control.modules import cluster_entities
from muster.core.errors import Conflict, MusterError
from muster.core.states import JOB_TABLE, SESSION_TABLE
from muster.store import schema
from muster.store.database import HEAD, DatabaseUnusable, known_version, sqlite_url
from muster.store.database.reading import reading
from muster.store.history import History
from muster.store.sql import one_of
from muster.store.transfer.dump import DumpSource
from muster.store.transfer.source import DatabaseSource, Origin, Source
from muster.version import __version__

_SQLITE = b"SQLite format 3\0"
_MOST_NAMED = 3
_UNKNOWN_REVOCATIONS = (
    "it is not known here which tokens were revoked after the backup was made: the file `revoked` "
    "of this data directory does not reach back to it. Say --revoke-tokens, and everybody needs a "
    "new token (`muster tokens create`), or --keep-tokens, and all tokens of the backup are good "
    "again, those that were revoked since included"
)


class TokenChoice(StrEnum):
    """The fate of tokens in a backup that were revoked after it was made."""

    LISTED = "listed"
    """They stay revoked, by the home's list; without a list that reaches back to the backup the
    restore is refused."""
    KEPT = "kept"
    """Tokens that the list names stay revoked; any others are good again."""
    NONE = "none"
    """All tokens are revoked, and what the list names besides."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A backup that was put back; ``made_at`` is when it was made, in seconds since the epoch."""

    file: Path
    made_at: float
    made: Made
    revoked: Revoked


def restore(
    url: str,
    file: Path,
    *,
    discard_later: bool = False,
    choice: TokenChoice = TokenChoice.KEPT,
    revocations: Revocations = NOTHING_REVOKED,
    home: Home | None = None,
) -> Restored:
    """Put the state of a backup in the place of the present one, which is kept aside. Users keep
    uids that they were given since.

    Args:
        discard_later: whether live work that the backup does not know may be forgotten, and be
            stopped where it runs.
        revocations: what is known to be revoked.
        home: a data directory that is held already.

    Raises:
        Conflict: a controller runs on the database; or there is such work, and it may not; or it is
            not known which tokens were revoked since, and nobody has chosen.
        MusterError: the file is no backup, not whole, or of a newer version; or the database cannot
            be written. Nothing is changed then.
    """
    with held(url, home), _opened(file) as source:
        if not known_version(source.origin.migration):
            raise MusterError(
                f"{file} was made by a newer version of Muster (migration "
                f"{source.origin.migration}, this one knows {HEAD}): install that one to restore it"
            )
        later, cluster = _unknown_to(source, _live_work(url))
        if later and not discard_later:
            raise Conflict(_refusal(later))
        made_at = source.origin.made_at
        if choice is TokenChoice.LISTED and not revocations.are_known(cluster, made_at):
            raise Conflict(_UNKNOWN_REVOCATIONS)
        given_by, given = given_uids(url)
        now = time.time()
        history = History(cluster_entities(), now, seq=int(now * 1e6))
        revoked = Revoked()

        def apply(connection: Connection) -> None:
            nonlocal revoked
            revoked = revoke(connection, history, revocations.names)
            if choice is TokenChoice.NONE:
                revoked = revoked.plus(revoke_tokens(connection, history))
            history.write(connection)
            keep_given(connection, given_by, given)

        made = make(url, source, replace=True, change=apply)
    return Restored(file, made_at, made, revoked)


@contextmanager
def _opened(file: Path) -> Iterator[Source]:
    """
    Raises:
        MusterError: it cannot be read, or is no backup.
    """
    try:
        with file.open("rb") as opened:
            is_database = opened.read(len(_SQLITE)) == _SQLITE
    except OSError as error:
        raise MusterError(f"cannot read {file}: {error.strerror}") from None
    if not is_database:
        yield DumpSource(file)
        return
    with reading(sqlite_url(file)) as (connection, migration):
        (fault,) = connection.execute(text("PRAGMA integrity_check(1)")).one()
        if fault != "ok":
            raise MusterError(f"{file} is damaged: {fault}")
        yield DatabaseSource(connection, Origin(migration, __version__, file.stat().st_mtime))


def _live_work(url: str) -> dict[str, str]:
    """The names of the jobs, and of the sessions without a job, that have not ended, by id; none of
    a state of an older version, or that cannot be read, which is why it is about to be replaced."""
    jobs, sessions = schema.jobs.c, schema.sessions.c
    try:
        with reading(url) as (connection, migration):
            if migration != HEAD:
                return {}
            live = select(jobs.id, jobs.name).where(one_of(jobs.status, JOB_TABLE.live))
            alone = select(sessions.id, sessions.name).where(
                one_of(sessions.status, SESSION_TABLE.live), sessions.job_id.is_(None)
            )
            rows = [*connection.execute(live), *connection.execute(alone)]
    except DatabaseUnusable:
        return {}
    return {id_: name or id_ for id_, name in rows}


def _unknown_to(source: Source, work: dict[str, str]) -> tuple[Sequence[str], str]:
    """The names of the work that is not among the rows, and the id of their cluster. All rows are
    read, so that it is known whether they are whole.

    Raises:
        BadDump: they are not.
    """
    cluster = ""
    for rows in source.tables():
        has_work = rows.table in ("jobs", "sessions") and "id" in rows.columns
        at = rows.columns.index("id") if has_work else None
        for line in rows.lines:
            if at is not None:
                work.pop(json.loads(line)[at], None)
            elif rows.table == "cluster":
                row = dict(zip(rows.columns, json.loads(line), strict=True))
                cluster = row["value"] if row["key"] == "id" else cluster
    return [*work.values()], cluster


def _refusal(later: Sequence[str]) -> str:
    named = ", ".join(later[:_MOST_NAMED]) + (", …" if len(later) > _MOST_NAMED else "")
    return (
        f"the backup does not know {len(later)} of the jobs and sessions that wait or run now "
        f"({named}): they would be forgotten, and stopped where they run; say --discard-later if "
        f"they may be"
    )
