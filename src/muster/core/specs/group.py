"""A scaling group as operators write it: a pool of agents under one policy."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from muster.core.specs.amounts import Duration, Name, PositiveDuration, Spec, Text


class ScalingGroup(Spec):
    """Policy of a pool of agents; every duration is in seconds.

    Args:
        sequencer: orders the queue; the name of a ``muster.sequencers`` plug-in.
        selector: chooses agents; the name of a ``muster.selectors`` plug-in.
        workspaces: directories inside which a spec's ``workdir`` may lie.
        pending_timeout: longest wait of a session for a place; None is for ever.
        starvation_after: past this wait nothing younger overtakes.
        prepare_timeout, create_timeout, terminate_timeout: longest stay in a phase.
        max_tries: tries in one phase before the session is re-scheduled.
        max_reschedules: placements that may fail before the session is given up.
        retry_backoff: wait after a first failed try; doubles with each further one.
        agent_silence: silence after which an agent is UNREACHABLE.
        kernel_lease: silence after which its kernels have stopped and it is LOST.
        backlog_window: work that an agent may hold ahead, by mean duration; 0 holds none.
    """

    kind: Literal["group"] = "group"
    name: Name
    sequencer: Name = "fifo"
    selector: Name = "concentrated"
    workspaces: Annotated[tuple[Text, ...], Field(max_length=100)] = ("/",)
    pending_timeout: PositiveDuration | None = None
    starvation_after: Duration = 300.0
    prepare_timeout: PositiveDuration = 600.0
    create_timeout: PositiveDuration = 120.0
    terminate_timeout: PositiveDuration = 60.0
    max_tries: Annotated[int, Field(ge=1, le=100)] = 3
    max_reschedules: Annotated[int, Field(ge=0, le=1000)] = 10
    retry_backoff: PositiveDuration = 1.0
    agent_silence: PositiveDuration = 15.0
    kernel_lease: PositiveDuration = 300.0
    backlog_window: Annotated[Duration, Field(le=10)] = 0.25

    @field_validator("workspaces")
    @classmethod
    def _absolute(cls, workspaces: tuple[str, ...]) -> tuple[str, ...]:
        for path in workspaces:
            if not path.startswith("/") or ".." in path.split("/"):
                raise ValueError(f"expected absolute paths without '..', not {path!r}")
        return workspaces

    def holds(self, workdir: str) -> bool:
        """Whether ``workdir`` lies inside a workspace."""
        return any(
            workdir == root or workdir.startswith(root.rstrip("/") + "/")
            for root in self.workspaces
        )
