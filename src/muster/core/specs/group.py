"""A scaling group as operators write it: a set of agents under one policy."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from muster.core.errors import Problem
from muster.core.specs.amounts import (
    Duration,
    Flag,
    Name,
    PathText,
    PositiveDuration,
    ShortText,
    Spec,
    Whole,
)
from muster.core.specs.health import HealthSpec
from muster.core.specs.quota import Level
from muster.core.specs.session import SessionType
from muster.core.specs.work import Priority
from muster.core.text import duration

DEFAULT_VALIDATORS = (
    "keypair_resource_limit",
    "group_resource_limit",
    "domain_resource_limit",
    "concurrency",
    "dependencies",
    "start_time",
)


MAX_KERNELS_PER_AGENT = 10_000
DEFAULT_GROUP = "default"
"""The group of work and agents that name none."""


class QueuePolicy(StrEnum):
    """The sessions that may overtake a session which finds no room.

    STRICT: none. BEST_EFFORT: any that fits. BACKFILL: any that fits and does not delay that one.
    """

    STRICT = "strict"
    BEST_EFFORT = "best_effort"
    BACKFILL = "backfill"


class VictimScope(StrEnum):
    """The owners whose work may be displaced, in relation to the displacing session's owner."""

    USER = "user"
    PROJECT = "project"
    DOMAIN = "domain"
    GROUP = "group"


class PreemptionMode(StrEnum):
    """The fate of a victim: it ends, or it goes back to the queue."""

    TERMINATE = "terminate"
    RESCHEDULE = "reschedule"


class PreemptionSpec(Spec):
    """The work that sessions of strictly higher priority may displace.

    Args:
        scope: the owners whose work may be displaced.
        mode: whether displaced work ends or goes back to the queue.
        minimum_lease: time that a session runs before it may be displaced.
        least_difference: by how much the priority must be higher at least.
        before_scaling: whether work is displaced although a slice which is sure to come within the
            usual time of its pool will serve the session.
    """

    scope: VictimScope = VictimScope.GROUP
    mode: PreemptionMode = PreemptionMode.RESCHEDULE
    minimum_lease: Duration = 60.0
    least_difference: Annotated[Whole, Field(ge=1, le=100)] = 1
    before_scaling: Flag = False


class ScalingGroup(Spec):
    """Policy of some agents; every duration is in seconds.

    Args:
        name: the group's name.
        validators: checks that may forbid a session to start, wherever there is room; names of
            ``muster.validators`` plug-ins.
        sequencer: orders the queue; the name of a ``muster.sequencers`` plug-in.
        selector: chooses agents; the name of a ``muster.selectors`` plug-in.
        allocator: allocates what the selector chose, or refuses; the name of a
            ``muster.allocators`` plug-in.
        hooks: treatment of sessions by their type; names of ``muster.hooks`` plug-ins.
        options: settings of plug-ins, by the plug-in's name.
        queue: which sessions may overtake one that finds no room.
        preemption: the work that work of higher priority may displace; None is no work.
        projects: projects whose work the group takes, as domain/project; empty takes everybody's.
        fixed: no further agents will join: work that its present agents could never hold is
            refused.
        workspaces: directories inside which a spec's ``workdir`` may lie.
        max_priority: the highest priority of the group's work; None is that of its owners' quotas.
        max_timeout: the longest ``timeout`` that jobs and sessions may ask for; those that ask for
            none get ``default_timeout``, or this one without it. None is no limit. Deployments have
            none.
        default_timeout: the ``timeout`` of jobs and sessions that ask for none.
        pending_timeout: longest wait of a session for a place, but for a deployment's; None is for
            ever.
        starvation_after: past this wait no younger session overtakes.
        prepare_timeout, create_timeout, terminate_timeout: longest stay in that phase.
        max_tries: tries in one phase before the session is re-scheduled.
        max_reschedules: placements that may fail before the session is given up.
        retry_backoff: wait after a first failed try; doubles with each further one.
        kernels_per_agent: kernels that one agent may hold, however little they ask for.
        agent_silence: silence after which an agent is UNREACHABLE.
        kernel_lease: silence after which its kernels have stopped and it is LOST. None is as long
            as its supervisor lives for an agent on the controller's own machine, which can be
            without a controller but not cut off from one, and five minutes for any other.
        max_machines, max_gpus: as many its pools make at most, all together; None is no limit.
        max_price: the most that machines of its pools may cost an hour, in the currency of their
            prices; None is no limit.
        consolidate_after: the age from which on a slice may be emptied though work runs on it,
            because that work has room elsewhere; None is never.
        consolidate_saving: the least part of what a slice and the machines that take its work
            cost together that must be saved by emptying it.
        consolidate_loss: a session that has run for longer is not moved: it would begin anew.
        backlog_window: seconds of work with which the backlog of an agent is prefilled; 0 prefills
            none.
        health: how machines under suspicion are checked and healed; with null none is, unless an
            operator asks for it.
    """

    kind: Literal["group"] = "group"
    name: Name
    validators: Annotated[tuple[Name, ...], Field(max_length=32)] = DEFAULT_VALIDATORS
    sequencer: Name = "fifo"
    selector: Name = "concentrated"
    allocator: Name = "repository"
    hooks: dict[SessionType, Name] = Field(default_factory=dict)
    options: Annotated[dict[Name, dict[str, Any]], Field(max_length=32)] = Field(
        default_factory=dict
    )
    queue: QueuePolicy = QueuePolicy.BACKFILL
    preemption: PreemptionSpec | None = None
    projects: Annotated[tuple[ShortText, ...], Field(max_length=1000)] = ()
    fixed: Flag = False
    workspaces: Annotated[tuple[PathText, ...], Field(max_length=100)] = ("/",)
    max_priority: Priority | None = None
    max_timeout: PositiveDuration | None = None
    default_timeout: PositiveDuration | None = None
    pending_timeout: PositiveDuration | None = None
    starvation_after: Duration = 300.0
    prepare_timeout: PositiveDuration = 600.0
    create_timeout: PositiveDuration = 120.0
    terminate_timeout: PositiveDuration = 60.0
    max_tries: Annotated[Whole, Field(ge=1, le=100)] = 3
    max_reschedules: Annotated[Whole, Field(ge=0, le=1000)] = 10
    retry_backoff: PositiveDuration = 1.0
    kernels_per_agent: Annotated[Whole, Field(ge=1, le=MAX_KERNELS_PER_AGENT)] = 1000
    agent_silence: PositiveDuration = 15.0
    kernel_lease: PositiveDuration | None = None
    max_machines: Annotated[Whole, Field(ge=0)] | None = None
    max_gpus: Annotated[Whole, Field(ge=0)] | None = None
    max_price: Annotated[float, Field(ge=0)] | None = None
    consolidate_after: PositiveDuration | None = None
    consolidate_saving: Annotated[float, Field(gt=0, le=1)] = 0.25
    consolidate_loss: Duration = 600.0
    backlog_window: Annotated[Duration, Field(le=10)] = 0.25
    health: HealthSpec | None = HealthSpec()

    @field_validator("workspaces")
    @classmethod
    def _absolute(cls, workspaces: tuple[str, ...]) -> tuple[str, ...]:
        for path in workspaces:
            if not path.startswith("/") or ".." in path.split("/"):
                raise ValueError(f"expected absolute paths without '..', not {path!r}")
        return workspaces

    def contradictions(self) -> Iterator[Problem]:
        if self.max_timeout is not None and (self.default_timeout or 0) > self.max_timeout:
            expected = f"expected at most max_timeout, {duration(self.max_timeout)}"
            yield Problem("default_timeout", duration(self.default_timeout or 0), expected)
        for index, project in enumerate(self.projects):
            if not Level.PROJECT.is_name(project):
                expected = "expected domain/project, such as default/research"
                yield Problem(f"projects.{index}", repr(project), expected)

    def has_workspace_of(self, workdir: str) -> bool:
        """Whether ``workdir`` lies inside a workspace."""
        return any(
            workdir == root or workdir.startswith(root.rstrip("/") + "/")
            for root in self.workspaces
        )


KIND = ScalingGroup
