"""The tables. Amounts are integers (thousandths, bytes), times seconds since the epoch.

Identifiers are time-ordered text, so tables keyed by them grow at the end. Live rows are found by
partial indexes, so ended work costs no time when a controller starts.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    String,
    Table,
    Text,
)

from muster.core.settings import SETTING_PHASE
from muster.core.states import AGENT_TABLE, JOB_TABLE, JobState
from muster.store.record_table import index, index_by_owner, index_live
from muster.store.record_table import metadata as metadata
from muster.store.records import AGENTS, ALLOCATIONS, JOBS, KERNELS, SESSIONS, TASKS
from muster.store.spec_columns import index_whole_specs

cluster = Table(
    "cluster",
    metadata,
    Column("key", String, primary_key=True),
    Column("value", Text, nullable=False),
)

fence = Table(
    "fence",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # 1: it is the only row
    Column("epoch", BigInteger, nullable=False),
    Column("commits", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),  # who took it last
    Column("since", Float, nullable=False),
    Column("home", Text, nullable=False, server_default=""),
    Column("renews_s", Float, nullable=False, server_default="0"),
    Column("others_until", Float, nullable=False, server_default="0"),  # former holders renew
)

domains = Table(
    "domains",
    metadata,
    Column("name", String, primary_key=True),
    Column("created_at", Float, nullable=False),
)

projects = Table(
    "projects",
    metadata,
    Column("domain", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("created_at", Float, nullable=False),
    Column("hosts", Text, nullable=False, server_default="[]"),  # JSON, a list of names
)

users = Table(
    "users",
    metadata,
    Column("domain", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("projects", Text, nullable=False),  # JSON, a list; the first is the user's default
    Column("created_at", Float, nullable=False),
)

# Rows stay when a user is removed: the uid may own files.
uids = Table(
    "uids",
    metadata,
    Column("uid", BigInteger, primary_key=True, autoincrement=False),
    Column("domain", String, nullable=False),
    Column("user", String, nullable=False),
    Column("given_at", Float, nullable=False),
)
Index("uids_by_user", uids.c.domain, uids.c.user, unique=True)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String, primary_key=True),
    Column("hash", String, nullable=False),
    Column("name", String, nullable=False),
    Column("domain", String, nullable=False),
    Column("user", String, nullable=False),
    Column("project", String, nullable=True),  # null: all of the user's projects
    Column("role", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=True),
    Column("last_used_at", Float, nullable=True),
)

join_tokens = Table(
    "join_tokens",
    metadata,
    Column("id", String, primary_key=True),
    Column("hash", String, nullable=False),
    Column("agent", String, nullable=True),  # the only name that may join
    Column("group", String, nullable=True),  # the only group that may be joined
    Column("uses_left", Integer, nullable=True),  # null: any number
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=True),
    Column("made_by", String, nullable=False),
)

groups = Table(
    "scaling_groups",
    metadata,
    Column("name", String, primary_key=True),
    Column("spec", Text, nullable=False),
)

quotas = Table(
    "quotas",
    metadata,
    Column("level", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("spec", Text, nullable=False),
)

agents = AGENTS.table
_EXISTS = agents.c.status.in_(sorted(AGENT_TABLE.live))  # a removed agent's name is free
index("agents_by_name", agents.c.name, where=_EXISTS, unique=True)

jobs = JOBS.table
index_live(JOBS)
index_whole_specs(JOBS)
index_by_owner(jobs)
Index("jobs_by_name", jobs.c.name, jobs.c.domain, jobs.c.project, jobs.c.user)
Index("jobs_by_group", jobs.c.group, jobs.c.id)
Index("jobs_by_user", jobs.c.user, jobs.c.id)
UNSUCCESSFUL_JOBS = sorted(JOB_TABLE.terminal - {JobState.SUCCEEDED})
index("jobs_unsuccessful", jobs.c.id, where=jobs.c.status.in_(UNSUCCESSFUL_JOBS))
index("jobs_by_retried", jobs.c.retry_of, where=jobs.c.retry_of.is_not(None))

tasks = TASKS.table

sessions = SESSIONS.table
index_live(SESSIONS)
index_whole_specs(SESSIONS)
index("sessions_by_name", sessions.c.name, where=sessions.c.name.is_not(None))
# Sessions without a job: few beside the sessions of jobs.
_IS_ALONE = sessions.c.job_id.is_(None)
_SESSION_OWNER = sessions.c.domain, sessions.c.project, sessions.c.user
index("sessions_alone", *_SESSION_OWNER, sessions.c.id, where=_IS_ALONE)
index("sessions_alone_by_id", sessions.c.id, where=_IS_ALONE)

kernels = KERNELS.table
Index("kernels_by_task", kernels.c.job_id, kernels.c.task_index)

allocations = ALLOCATIONS.table
index(
    "allocations_charged",  # has all columns that a commit checks
    allocations.c.agent_id,
    allocations.c.charged,
    allocations.c.cpu_milli,
    allocations.c.memory_bytes,
    allocations.c.disk_bytes,
    allocations.c.devices,
    allocations.c.extra,
    where=allocations.c.charged.is_(True),
)

history = Table(
    "history",
    metadata,
    Column(
        "entity", String, primary_key=True
    ),  # id of a session, job, agent; job id/task; kind:name of a setting
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("phase", String, nullable=False),  # the handler, or who asked
    Column("from_status", String, nullable=True),
    Column("to_status", String, nullable=False),
    Column("result", String, nullable=False),  # SchedulingResult
    Column("reasons", Text, nullable=True),  # JSON, a list of [code, numbers]: all that held
    Column("times", Integer, nullable=False),
    Column("first_at", Float, nullable=False),
    Column("last_at", Float, nullable=False),
    sqlite_with_rowid=False,
)

index("history_of_settings", history.c.seq, where=history.c.phase == SETTING_PHASE)

outbox = Table(
    "outbox",
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("at", Float, nullable=False),
    Column("events", Text, nullable=False),  # JSON: the changes of one commit
)

submissions = Table(
    "submissions",
    metadata,
    Column("key", String, primary_key=True),
    Column("entity", String, nullable=False),  # the id of the job or session
    Column("at", Float, nullable=False),
    sqlite_with_rowid=False,
)
