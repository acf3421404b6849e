"""Audits of slices: against their tokens, their pools and their agents."""

import json
from collections.abc import Iterator

from sqlalchemy import and_, exists, or_, select, union_all

from muster.control.pool.records import load_machines, machines_made, pools, slices
from muster.control.pool.specs import load_spec, pool_revisions
from muster.control.pool.states import POOL_TABLE
from muster.core.specs.pool import SLICE
from muster.core.states import AGENT_TABLE
from muster.core.states.slice import SLICE_TABLE, SliceStatus
from muster.store.audit.finding import MAX_SENTENCE, UNREADABLE, Audit, AuditFinding, Stored
from muster.store.schema import agents
from muster.store.sql import one_of

_NOT_JOINING = sorted({*SLICE_TABLE.terminal, SliceStatus.READY})
_WITH_SECRET = select(slices.c.id, slices.c.status).where(
    slices.c.status.in_(_NOT_JOINING), slices.c.secret != ""
)
_LIVE = one_of(slices.c.status, SLICE_TABLE.live)
_WITHOUT_POOL = (
    select(slices.c.id, slices.c.pool)
    .select_from(
        slices.outerjoin(pools, and_(pools.c.name == slices.c.pool, pools.c.finished_at.is_(None)))
    )
    .where(_LIVE, pools.c.id.is_(None))
)
_DOOM = select(slices.c.id).where(
    or_(
        and_(slices.c.doomed.is_(None), slices.c.doomed_at.is_not(None)),
        and_(slices.c.doomed.is_not(None), slices.c.doomed_at.is_(None)),
    )
)


_KEPT = and_(pool_revisions.c.pool == slices.c.pool, pool_revisions.c.revision == slices.c.revision)
_WITHOUT_SPEC = (
    select(slices.c.id, slices.c.pool, slices.c.revision)
    .select_from(
        slices.outerjoin(
            pools,
            and_(
                pools.c.name == slices.c.pool,
                pools.c.revision == slices.c.revision,
                pools.c.finished_at.is_(None),
            ),
        ).outerjoin(pool_revisions, _KEPT)
    )
    .where(_LIVE, pools.c.id.is_(None), pool_revisions.c.pool.is_(None))
)
_WITHOUT_SLICE = select(pool_revisions.c.pool, pool_revisions.c.revision).where(
    ~exists().where(_KEPT, _LIVE)
)
_SPECS = union_all(
    select(pools.c.name, pools.c.revision, pools.c.spec).where(
        one_of(pools.c.status, POOL_TABLE.live)
    ),
    select(pool_revisions.c.pool, pool_revisions.c.revision, pool_revisions.c.spec),
)


def _tokens(stored: Stored) -> Iterator[AuditFinding]:
    for row in stored.connection.execute(_WITH_SECRET):
        yield AuditFinding(row.id, f"is {row.status} and has a join token still")


def _of_pools(stored: Stored) -> Iterator[AuditFinding]:
    for row in stored.connection.execute(_WITHOUT_POOL):
        yield AuditFinding(row.id, f"is a slice of pool {row.pool}, which is not there")
    for row in stored.connection.execute(_DOOM):
        yield AuditFinding(row.id, "is to be deleted without a reason, or without a time")


def _machines(stored: Stored) -> Iterator[AuditFinding]:
    c = slices.c
    for row in stored.connection.execute(select(c.id, c.machines, c.size, c.made)):
        try:
            machines = load_machines(row.machines)
        except UNREADABLE as error:
            yield AuditFinding(row.id, f"cannot be read: {error!r}"[:MAX_SENTENCE])
            continue
        counted = len({each.name for each in machines}), machines_made(machines)
        if counted != (row.size, row.made):
            yield AuditFinding(
                row.id,
                f"has {counted[0]} machines of which {counted[1]} were made, and counts {row.size} "
                f"and {row.made}",
            )


def _specs(stored: Stored) -> Iterator[AuditFinding]:
    for row in stored.connection.execute(_WITHOUT_SPEC):
        yield AuditFinding(
            row.id, f"is of revision {row.revision} of {row.pool}, which has no spec"
        )
    for name, revision in stored.connection.execute(_WITHOUT_SLICE):
        yield AuditFinding(name, f"keeps the spec of revision {revision} for no slice")
    for name, revision, spec in stored.connection.execute(_SPECS):
        try:
            load_spec(spec)
        except UNREADABLE as error:
            told = f"has a spec of revision {revision} that cannot be read: {error!r}"
            yield AuditFinding(name, told[:MAX_SENTENCE])


def _agents(stored: Stored) -> Iterator[AuditFinding]:
    ended = select(slices.c.id).where(one_of(slices.c.status, SLICE_TABLE.terminal))
    gone = {row.id for row in stored.connection.execute(ended)}
    there = select(agents.c.id, agents.c.fixed).where(one_of(agents.c.status, AGENT_TABLE.live))
    for row in stored.connection.execute(there):
        slice_ = json.loads(row.fixed).get(SLICE)
        if slice_ in gone:
            yield AuditFinding(row.id, f"is a machine of slice {slice_}, which is gone")


AUDITS = (
    Audit("only slices whose machines may join have a token", _tokens),
    Audit("each slice has its pool, and goes for a reason", _of_pools),
    Audit("each slice has its machines", _machines),
    Audit("each slice has its spec, and no other is kept", _specs),
    Audit("each agent of a slice goes with it", _agents),
)
