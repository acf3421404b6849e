"""The states of a kernel in a hollow supervisor."""

from enum import StrEnum

from muster.wire.messages import HeldStatus


class Stage(StrEnum):
    """The state of a kernel here."""

    BACKLOG = "BACKLOG"
    BEHIND = "BEHIND"  # it waits until its older generation is gone
    CREATING = "CREATING"
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    ENDED = "ENDED"
    LOST = "LOST"  # with a supervisor that was killed, or with a boot
    CREATE_FAILED = "CREATE_FAILED"


LIVE = {Stage.BACKLOG, Stage.BEHIND, Stage.CREATING, Stage.CREATED, Stage.RUNNING, Stage.STOPPING}
UNBEGUN = {Stage.BACKLOG, Stage.BEHIND, Stage.CREATING}
WITH_PROCESSES = {Stage.RUNNING, Stage.STOPPING}

HELD_AS = {
    Stage.BACKLOG: HeldStatus.QUEUED,
    Stage.BEHIND: HeldStatus.QUEUED,
    Stage.CREATING: HeldStatus.QUEUED,
    Stage.CREATED: HeldStatus.CREATED,
    Stage.RUNNING: HeldStatus.RUNNING,
    Stage.STOPPING: HeldStatus.RUNNING,
    Stage.ENDED: HeldStatus.ENDED,
    Stage.LOST: HeldStatus.LOST,
    Stage.CREATE_FAILED: HeldStatus.CREATE_FAILED,
}
