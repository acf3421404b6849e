"""Rounds: what a recovery does about one failed attempt of its job, as values."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from muster.core.health.verdict import bounded
from muster.core.ids import AgentId
from muster.core.reasons import Reason
from muster.core.reasons.stored import StoredReason

MAX_TASKS = 64
"""Tasks of one round: where more of them fail at the same time, their program rather than so many
machines is to blame, and the others are judged as without recovery."""
MAX_SAID = 300
"""Characters of what a check said of a machine."""


class AgentResult(StrEnum):
    """The state of a machine of a failed attempt."""

    AWAITED = "awaited"  # it is, or will be, checked
    HEALTHY = "healthy"
    FAULTY = "faulty"  # it is being healed
    WAITING = "waiting"  # it is faulty, and its turn to be healed has not come
    HEALED = "healed"  # it was faulty, and is healthy again
    ISOLATED = "isolated"  # it waits for an operator
    GONE = "gone"  # it was found faulty, and removed
    LOST = "lost"  # it was removed, or is silent for too long, before anything was found
    UNCHECKED = "unchecked"  # nobody checks it, or nothing can be found out about it


FAULTS = frozenset(
    {
        AgentResult.FAULTY,
        AgentResult.WAITING,
        AgentResult.HEALED,
        AgentResult.ISOLATED,
        AgentResult.GONE,
    }
)
"""Results of machines that were at fault."""
_WELL = frozenset({AgentResult.HEALTHY, AgentResult.HEALED})


@dataclass(frozen=True, slots=True)
class RoundAgent:
    """A machine of the attempt.

    Args:
        devices: the indexes of the GPUs that the attempt had there.
        incident: the id of its incident; empty if there is none.
        heals: how often it was reset or rebooted in that incident.
        said: what the check found, as one bounded line; empty if nothing is known.
    """

    id: AgentId
    name: str
    devices: tuple[int, ...] = ()
    incident: str = ""
    result: AgentResult = AgentResult.AWAITED
    heals: int = 0
    said: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "said", bounded(self.said, MAX_SAID))

    @property
    def is_fault(self) -> bool:
        """Whether the machine was at fault."""
        return self.result in FAULTS


@dataclass(frozen=True, slots=True)
class RoundTask:
    """A task whose attempt ended.

    Args:
        charged: whether it is charged with that if no machine was at fault.
        had_to_leave: whether it did not fail, but its machine is to be checked or healed.
        agent: the machine on which it ran, where the task waits for that one alone; None where it
            waits for all machines of the round.
    """

    index: int
    attempt: int
    charged: bool = False
    had_to_leave: bool = False
    agent: AgentId | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One failed attempt, and what became of it. Times are seconds since the epoch.

    Args:
        number: from 1.
        why: the trigger.
        tasks: whose attempt ended; of a gang those that ended first.
        gpu_milli: thousandths of GPUs that the attempt held.
        began_at: when the trigger was seen.
        checked_at: when it was known whether a machine is at fault; None before.
        healed_at: when the restart began; None if it did not.
        ended_at: when the round was over; None while it is open.
        outcome: how it ended, None while it is open.
        leaves_before: earlier rounds of the recovery in which no task failed (``is_leave``).
        is_counted: whether a restart of a part of it was counted already.
    """

    number: int
    why: StoredReason
    tasks: tuple[RoundTask, ...]
    agents: tuple[RoundAgent, ...]
    gpu_milli: int
    began_at: float
    checked_at: float | None = None
    healed_at: float | None = None
    ended_at: float | None = None
    outcome: StoredReason | None = None
    leaves_before: int = 0
    is_counted: bool = False

    @property
    def is_leave(self) -> bool:
        """Whether no task failed: work only had to leave machines for the sake of their health."""
        return all(task.had_to_leave for task in self.tasks)

    @property
    def leaves(self) -> int:
        """The rounds of the recovery until this one in which no task failed."""
        return self.leaves_before + self.is_leave

    @property
    def charged(self) -> frozenset[int]:
        """The indexes of the tasks that are charged."""
        return frozenset(task.index for task in self.tasks if task.charged)

    @property
    def returned_to(self) -> tuple[str, ...]:
        """The names of the machines that a restart prefers: a check found each of them healthy,
        after it was healed if it was faulty."""
        return tuple(agent.name for agent in self.agents if agent.result in _WELL)

    def has(self, index: int, attempt: int) -> bool:
        """Whether the attempt of a task is one of the round's."""
        return any(task.index == index and task.attempt == attempt for task in self.tasks)

    def had_to_leave(self, attempts: Collection[tuple[int, int]]) -> bool:
        """Whether one of these attempts, as (index, attempt), had to leave its machine."""
        return any(
            task.had_to_leave and (task.index, task.attempt) in attempts for task in self.tasks
        )

    def gpu_hours(self, now: float) -> float:
        """GPU-hours for which the attempt's GPUs did not work on the job, from its end until it ran
        again, or until now."""
        lasted_s = (now if self.ended_at is None else self.ended_at) - self.began_at
        return self.gpu_milli / 1000 * max(lasted_s, 0.0) / 3600

    def at(self, *, checked_at: float | None = None, healed_at: float | None = None) -> "Round":
        """The round with one more of its moments."""
        return replace(
            self,
            checked_at=self.checked_at if checked_at is None else checked_at,
            healed_at=self.healed_at if healed_at is None else healed_at,
        )

    def closed(self, now: float, outcome: Reason | None) -> "Round":
        """The round once it is over."""
        told = None if outcome is None else StoredReason.of(outcome)
        return replace(self, ended_at=now, outcome=told)

    def joined(self, other: "Round") -> "Round":
        """The round with the tasks and machines of another, as one; of a machine of both the later
        suspicion counts."""
        agents = {agent.id: agent for agent in (*self.agents, *other.agents)}
        return replace(
            self,
            tasks=(*self.tasks, *other.tasks),
            agents=tuple(agents.values()),
            gpu_milli=self.gpu_milli + other.gpu_milli,
        )

    def without(self, attempts: Collection[tuple[int, int]]) -> "Round":
        """The round without some of its attempts, as (index, attempt)."""
        tasks = (each for each in self.tasks if (each.index, each.attempt) not in attempts)
        return replace(self, tasks=tuple(tasks))

    def parts(self) -> Sequence["Round"]:
        """The round in parts of one machine each, where its tasks wait for theirs alone; else the
        round itself."""
        machines = list(dict.fromkeys(each.agent for each in self.tasks))
        if None in machines or len(machines) < 2:
            return [self]
        return [self._on([machine]) for machine in machines]

    def split(self, part: "Round", number: int) -> tuple["Round", "Round"]:
        """One of its parts as a round of its own, with this number, and the others."""
        others = [each.agent for each in self.tasks if each not in part.tasks]
        rest = replace(self._on(others), leaves_before=part.leaves)
        return replace(part, number=number), rest

    def _on(self, machines: Collection[AgentId | None]) -> "Round":
        """The part of the round on some of its machines."""
        tasks = tuple(each for each in self.tasks if each.agent in machines)
        return replace(
            self,
            tasks=tasks,
            agents=tuple(each for each in self.agents if each.id in machines),
            gpu_milli=self.gpu_milli * len(tasks) // len(self.tasks),
        )

    def charging(self, attempts: Sequence[tuple[int, int]], charged: frozenset[int]) -> "Round":
        """The round once the verdict on some of its attempts, as (index, attempt), is known."""
        ended = dict(attempts)
        others = tuple(task for task in self.tasks if ended.get(task.index) != task.attempt)
        known = {each.index: each for each in self.tasks if each not in others}
        tasks = (
            replace(
                known.get(index, RoundTask(index, ended[index])), charged=True, had_to_leave=False
            )
            for index in sorted(charged)
        )
        uncharged = (
            task
            for task in self.tasks
            if ended.get(task.index) == task.attempt and task.index not in charged
        )
        return replace(self, tasks=(*others, *tasks, *uncharged))
