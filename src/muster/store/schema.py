"""The tables. Amounts are integers (thousandths, bytes), times seconds since the epoch.

Identifiers are time-ordered text, so tables keyed by them grow at the end. Live rows are found by
partial indexes, so ended work costs no time when a controller starts.
"""

from collections.abc import Collection

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

from muster.core.states import AGENT_TABLE, JOB_TABLE, SESSION_TABLE, JobState

metadata = MetaData()


def reason_columns() -> tuple[Column[str], Column[str]]:
    """A reason's code and its numbers as JSON; both null where there is none."""
    return Column("reason", String, nullable=True), Column("reason_numbers", Text, nullable=True)


def stored_spec_columns() -> tuple[Column[int], Column[str]]:
    """The size of a large spec that is stored whole, null of a small one; and, where long values
    were removed from the spec of ended work, the numbers of the reason, as JSON."""
    return (
        Column("large_bytes", BigInteger, nullable=True),
        Column("spec_cut", Text, nullable=True),
    )


def index_whole_specs(table: Table, terminal: Collection[str]) -> None:
    """Have the large specs of ended work found that are stored whole."""
    is_one = (table.c.large_bytes.is_not(None)) & table.c.status.in_(sorted(terminal))
    Index(
        f"{table.name}_whole_specs",
        table.c.id,
        table.c.domain,
        table.c.project,
        table.c.user,
        table.c.large_bytes,
        sqlite_where=is_one,
        postgresql_where=is_one,
    )


def owner_columns() -> tuple[Column[str], Column[str], Column[str]]:
    return (
        Column("domain", String, nullable=False),
        Column("project", String, nullable=False),
        Column("user", String, nullable=False),
    )


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

agents = Table(
    "agents",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("group", String, nullable=False),
    Column("status", String, nullable=False),
    Column("status_changed_at", Float, nullable=False),
    Column("credential_hash", String, nullable=False),
    Column("boot_id", String, nullable=False),
    Column("version", String, nullable=False),
    Column("host", String, nullable=False),
    Column("capacity", Text, nullable=False),  # JSON, as Resources
    Column("devices", Text, nullable=False),  # JSON, a list of Device
    Column("attributes", Text, nullable=False),  # JSON
    Column("joined_at", Float, nullable=False),
    Column("seen_at", Float, nullable=False),
    Column("barred", String, nullable=False, server_default=""),  # AgentBar, empty if not barred
    Column("bar_note", Text, nullable=False, server_default=""),
    Column("leave_by", Float, nullable=True),
    Column("instance", String, nullable=False, server_default=""),
    Column("lease_s", Float, nullable=False, server_default="300"),  # infinite: without an end
    Column("silence_s", Float, nullable=False, server_default="300"),
    Column("machine", String, nullable=False, server_default=""),
    Column("supervisor", String, nullable=False, server_default=""),
    Column("booted_at", Float, nullable=False, server_default="0"),  # 0: not known
    Column("fixed", Text, nullable=False, server_default="{}"),  # JSON, attributes
    *reason_columns(),
)

Index(
    "agents_by_name",
    agents.c.name,
    unique=True,  # among agents that exist: a removed agent's name is free
    sqlite_where=agents.c.status.in_(sorted(AGENT_TABLE.live)),
    postgresql_where=agents.c.status.in_(sorted(AGENT_TABLE.live)),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    *owner_columns(),
    Column("group", String, nullable=False),
    Column("spec", Text, nullable=False),  # JSON, as JobSpec
    Column("status", String, nullable=False),
    Column("status_changed_at", Float, nullable=False),
    Column("tasks_total", BigInteger, nullable=False),  # how many tasks are run
    Column("task_count", BigInteger, nullable=False),  # the tasks' indexes are below it
    Column("only", Text, nullable=True),  # which tasks are run, as TaskRanges; null is all
    Column("next_task", BigInteger, nullable=False),  # how many tasks have rows
    Column("stopped", Text, nullable=True),  # tasks that people stopped, as TaskRanges
    Column("retry_of", String, nullable=True),  # the job whose tasks it runs again
    Column("counts", Text, nullable=False),  # JSON: rows of tasks by state
    Column("submitted_at", Float, nullable=False),
    Column("started_at", Float, nullable=True),
    Column("finished_at", Float, nullable=True),
    *reason_columns(),
    *stored_spec_columns(),
    sqlite_with_rowid=False,
)
index_whole_specs(jobs, JOB_TABLE.terminal)
Index(
    "jobs_live",
    jobs.c.id,
    sqlite_where=jobs.c.status.in_(sorted(JOB_TABLE.live)),
    postgresql_where=jobs.c.status.in_(sorted(JOB_TABLE.live)),
)
Index("jobs_by_name", jobs.c.name, jobs.c.domain, jobs.c.project, jobs.c.user)
Index("jobs_by_group", jobs.c.group, jobs.c.id)
Index("jobs_by_user", jobs.c.user, jobs.c.id)
UNSUCCESSFUL_JOBS = sorted(JOB_TABLE.terminal - {JobState.SUCCEEDED})
Index(
    "jobs_unsuccessful",
    jobs.c.id,
    sqlite_where=jobs.c.status.in_(UNSUCCESSFUL_JOBS),
    postgresql_where=jobs.c.status.in_(UNSUCCESSFUL_JOBS),
)
Index(
    "jobs_by_retried",
    jobs.c.retry_of,
    sqlite_where=jobs.c.retry_of.is_not(None),
    postgresql_where=jobs.c.retry_of.is_not(None),
)
Index("jobs_by_owner", jobs.c.domain, jobs.c.project, jobs.c.user, jobs.c.id)

tasks = Table(
    "tasks",
    metadata,
    Column("job_id", String, primary_key=True),
    Column("idx", BigInteger, primary_key=True, autoincrement=False),
    Column("status", String, nullable=False),
    Column("status_changed_at", Float, nullable=False),
    Column("attempt", Integer, nullable=False),  # 0 before the first
    Column("failure_count", Integer, nullable=False),
    Column("preemption_count", Integer, nullable=False),
    Column("session_id", String, nullable=True),
    Column("kernel_id", String, nullable=True),
    Column("started_at", Float, nullable=True),
    Column("finished_at", Float, nullable=True),
    Column("exit_code", Integer, nullable=True),
    *reason_columns(),
    sqlite_with_rowid=False,
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", String, primary_key=True),
    Column("job_id", String, nullable=True),
    Column("name", String, nullable=True),
    Column("type", String, nullable=False),
    *owner_columns(),
    Column("group", String, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("spec", Text, nullable=True),  # JSON, as SessionSpec; null when it is a job's
    Column("status", String, nullable=False),
    Column("status_changed_at", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("queued_at", Float, nullable=False),
    Column("tries", Integer, nullable=False),
    Column("retry_at", Float, nullable=False),
    Column("reschedules", Integer, nullable=False),
    Column("failed_agents", Text, nullable=False),  # JSON, a list of agent ids
    Column("started_at", Float, nullable=True),
    Column("finished_at", Float, nullable=True),
    *reason_columns(),
    Column("barrier_opened_at", Float, nullable=True),
    *stored_spec_columns(),
    sqlite_with_rowid=False,
)
index_whole_specs(sessions, SESSION_TABLE.terminal)
Index(
    "sessions_live",
    sessions.c.id,
    sqlite_where=sessions.c.status.in_(sorted(SESSION_TABLE.live)),
    postgresql_where=sessions.c.status.in_(sorted(SESSION_TABLE.live)),
)

# Sessions without a job: few beside the sessions of jobs.
Index(
    "sessions_alone",
    sessions.c.domain,
    sessions.c.project,
    sessions.c.user,
    sessions.c.id,
    sqlite_where=sessions.c.job_id.is_(None),
    postgresql_where=sessions.c.job_id.is_(None),
)
Index(
    "sessions_alone_by_id",
    sessions.c.id,
    sqlite_where=sessions.c.job_id.is_(None),
    postgresql_where=sessions.c.job_id.is_(None),
)
Index(
    "sessions_by_name",
    sessions.c.name,
    sqlite_where=sessions.c.name.is_not(None),
    postgresql_where=sessions.c.name.is_not(None),
)

kernels = Table(
    "kernels",
    metadata,
    Column("session_id", String, primary_key=True),
    Column("idx", Integer, primary_key=True, autoincrement=False),
    Column("id", String, nullable=False),
    Column("job_id", String, nullable=True),
    Column("task_index", BigInteger, nullable=True),
    Column("attempt", Integer, nullable=False),
    Column("status", String, nullable=False),
    Column("status_changed_at", Float, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("agent_id", String, nullable=True),
    Column("devices", Text, nullable=True),  # JSON, a list of [index, milli]
    Column("ports", Text, nullable=True),  # JSON, a list
    Column("started_at", Float, nullable=True),
    Column("ended_at", Float, nullable=True),
    Column("exit_code", Integer, nullable=True),
    Column("signal", Integer, nullable=True),
    *reason_columns(),
    Column("failed_at", Float, nullable=True),
    Column("result", Text, nullable=True),  # as a service left it
    sqlite_with_rowid=False,
)
Index("kernels_by_task", kernels.c.job_id, kernels.c.task_index)

allocations = Table(
    "allocations",
    metadata,
    Column("kernel_id", String, primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("agent_id", String, nullable=False),
    Column("charged", Boolean, nullable=False),  # false: in the agent's backlog
    Column("cpu_milli", BigInteger, nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("disk_bytes", BigInteger, nullable=False),
    Column("gpu_milli", BigInteger, nullable=False),
    Column("extra", Text, nullable=False),  # JSON
    Column("devices", Text, nullable=False),  # JSON, a list of [index, milli]
    Column("boot_id", String, nullable=False),
    Column("since", Float, nullable=False),
    sqlite_with_rowid=False,
)
Index(
    "allocations_charged",  # has all columns that a commit checks
    allocations.c.agent_id,
    allocations.c.charged,
    allocations.c.cpu_milli,
    allocations.c.memory_bytes,
    allocations.c.disk_bytes,
    allocations.c.devices,
    allocations.c.extra,
    sqlite_where=allocations.c.charged.is_(True),
    postgresql_where=allocations.c.charged.is_(True),
)

history = Table(
    "history",
    metadata,
    Column("entity", String, primary_key=True),  # id of a session, job, agent; job id/task
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
