"""The record of a replay, from which a report is made."""

from dataclasses import dataclass, field

from muster.core.reasons import Reason
from muster.core.specs.pool import PoolSpec
from muster.simulate.measures import Sample
from muster.simulate.policy_file import NamedPolicy


@dataclass(slots=True)
class SessionFate:
    """The fate of one session of the trace; times are virtual.

    Args:
        started_at: of its first start.
        ended_at: of its end, if it ran to its end.
        reasons: why it never started, or why it was ended.
        backfilled: it started while one that came earlier lacked room.
    """

    name: str
    submitted_at: float
    started_at: float | None = None
    ended_at: float | None = None
    reasons: tuple[Reason, ...] = ()
    preempted: int = 0
    backfilled: bool = False


@dataclass(frozen=True, slots=True)
class RecordedState:
    """The state from ``at`` on: thousandths of GPUs and processors in use, sessions that wait.

    Args:
        gpu_capacity, cpu_capacity: thousandths of those that are there.
        slices: of each pool of the policy, those that boot included.
    """

    at: float
    gpu_milli: int
    cpu_milli: int
    waiting: int
    gpu_capacity: int
    cpu_capacity: int
    slices: tuple[int, ...] = ()


@dataclass(slots=True)
class PoolUse:
    """The use that a replay made of a pool.

    Args:
        machine_s: of all of its machines, from the wish for them until they were deleted.
    """

    pool: PoolSpec
    made: int = 0
    deleted: int = 0
    machine_s: float = 0.0


@dataclass(slots=True)
class Recording:
    """Everything that a replay saw.

    Args:
        window: the time in which sessions came, without the first and the last percent of them; the
            whole time if all came at once.
        lost_gpu_milli_s: GPU time of runs that preemption cut short.
        placements: starts of sessions, including those after a displacement.
        decisions: placements, and classes of equal sessions refused, in all passes.
        pools: of the policy, and what became of them.
        pass_s: wall time in passes; the only thing that differs from run to run.
    """

    policy: NamedPolicy
    fates: list[SessionFate] = field(default_factory=list)
    moments: list[RecordedState] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    window: tuple[float, float] = (0.0, 0.0)
    lost_gpu_milli_s: float = 0.0
    preemptions: int = 0
    placements: int = 0
    passes: int = 0
    decisions: int = 0
    pools: list[PoolUse] = field(default_factory=list)
    pass_s: float = 0.0
