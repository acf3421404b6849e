"""The next step of a recovery: pure functions of its open round, its limits and the time (source:
ECS GPU Recovery)."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypedDict

from muster.control.recovery.rounds import FAULTS, AgentResult, Round, RoundAgent
from muster.core.reasons import Reason
from muster.core.reasons.of_recovery import (
    RecoveryFaulty,
    RecoveryHealed,
    RecoveryHealthy,
    RecoveryMachineGone,
    RecoveryMachineLost,
    RecoveryNoFault,
    RecoveryNotReturned,
    RecoveryNotStarted,
    RecoveryReplaced,
    RecoveryRunsAgain,
    RecoveryUnchecked,
    RecoveryUsedUp,
)
from muster.core.specs import RecoverySpec


class Turn(Enum):
    """The consequence for the recovery."""

    HEAL = "heal"  # it waits for machines at fault
    JUDGE = "judge"  # no machine was at fault: the retries of the tasks decide
    RESTART = "restart"  # its tasks begin again
    RUN = "run"  # they have begun
    GIVE_UP = "give up"  # its tasks have failed for good


@dataclass(frozen=True, slots=True)
class Decision:
    """A turn, and the reason for it."""

    turn: Turn
    why: Reason


def after_check(
    round_: Round, waited_s: float, how: str, spec: RecoverySpec, *, is_last: bool
) -> Decision | None:
    """The decision on a failed attempt; None while checks are awaited that may find a fault.

    The first fault decides: what the other machines are found to be does not change that the job
    waits for a machine.

    Args:
        waited_s: how long the checks have been awaited.
        how: how the first task that is charged ended.
        is_last: whether a task has no retry left, and the job ends for it.
    """
    faulty = [agent for agent in round_.agents if agent.result in FAULTS]
    if faulty:
        return Decision(Turn.HEAL, RecoveryFaulty(**_named(faulty)))
    awaited = [agent for agent in round_.agents if agent.result is AgentResult.AWAITED]
    if awaited and waited_s < spec.check_timeout:
        return None
    lost = [agent for agent in round_.agents if agent.result is AgentResult.LOST]
    if lost and round_.charged:
        gone = RecoveryMachineGone(**_named(lost), index=first_index(round_), how=how)
        return Decision(Turn.JUDGE, gone)
    unchecked = [agent for agent in round_.agents if agent.result in _UNKNOWN]
    pending = len(awaited) + len(unchecked)
    agents, index = len(round_.agents), first_index(round_)
    why: Reason
    if is_last:
        why = RecoveryNoFault(index=index, how=how, agents=agents, pending=pending)
    elif pending:
        why = RecoveryUnchecked(
            pending=pending,
            agents=agents,
            timeout_s=spec.check_timeout if awaited else 0,
            index=index,
        )
    else:
        why = RecoveryHealthy(agents=agents, index=index)
    return Decision(Turn.JUDGE, why)


def lost_machine(round_: Round, how: str) -> Decision:
    """The decision on a failed attempt whose verdict charges no task a failure: its end is settled,
    whatever checks find.

    Args:
        how: how a task lost its machine, if one did.
    """
    why = RecoveryMachineLost(index=first_index(round_), how=how)
    return Decision(Turn.JUDGE, why)


def on_part(
    part: Round, waited_s: float, restarts: int, how: str, spec: RecoverySpec, *, is_last: bool
) -> Decision | None:
    """The decision on the tasks of one machine, whatever becomes of the round's other machines;
    None while they wait for their own.

    For a machine at fault it waits without a limit of its own: the round has one.

    Args:
        waited_s: how long the check has been awaited.
        restarts: see ``after_heal``.
        how: see ``after_check``, as ``is_last``.
    """
    found = after_check(part, waited_s, how, spec, is_last=is_last)
    if found is None or found.turn is not Turn.HEAL:
        return found
    return after_heal(part, 0.0, restarts, spec)


def after_heal(
    round_: Round, waited_s: float, restarts: int, spec: RecoverySpec
) -> Decision | None:
    """The decision on a job that waits for machines at fault; None while it waits on.

    Args:
        waited_s: how long it has waited for them.
        restarts: how often it was restarted already because a fault had failed a task.
    """
    faults = [agent for agent in round_.agents if agent.result in FAULTS]
    if restarts >= spec.max_restarts and not round_.is_leave and not round_.is_counted:
        return Decision(Turn.GIVE_UP, RecoveryUsedUp(**_named(faults), restarts=restarts))
    out = waited_for(round_)
    if not out and faults:
        return Decision(Turn.RESTART, RecoveryHealed(**_named(faults)))
    if not out:  # nothing can be found out about one that counted as faulty: it takes work as it is
        why = RecoveryReplaced(**_named(round_.agents), after_s=waited_s)
        return Decision(Turn.RESTART, why)
    over = waited_s >= spec.return_timeout
    if spec.replace:
        if over or not any(agent.result in _RETURNING for agent in out):
            why = RecoveryReplaced(**_named(out), after_s=waited_s)
            return Decision(Turn.RESTART, why)
        return None
    gone = [agent for agent in out if agent.result is AgentResult.GONE]
    if gone or over:
        timeout_s = spec.return_timeout
        end = RecoveryNotReturned(**_named(gone or out), gone=bool(gone), timeout_s=timeout_s)
        return Decision(Turn.GIVE_UP, end)
    return None


def after_restart(
    round_: Round,
    waited_s: float,
    now: float,
    spec: RecoverySpec,
    *,
    runs: bool,
    queues: bool,
    how: str,
) -> Decision | None:
    """The decision on a job whose tasks begin again; None while they have not.

    Args:
        waited_s: how long the restart has taken.
        runs: whether all of its tasks have begun.
        queues: whether they wait for nothing but work ahead of them in the queue.
        how: why they do not start, where that is known.
    """
    if runs:
        return Decision(Turn.RUN, RecoveryRunsAgain(after_s=now - round_.began_at))
    if waited_s < spec.restart_timeout or queues:
        return None
    why = RecoveryNotStarted(timeout_s=spec.restart_timeout, how=how)
    return Decision(Turn.GIVE_UP, why)


_RETURNING = frozenset({AgentResult.AWAITED, AgentResult.FAULTY})
_UNKNOWN = frozenset({AgentResult.UNCHECKED, AgentResult.LOST})
_NOT_AWAITED = frozenset({AgentResult.HEALTHY, AgentResult.HEALED, *_UNKNOWN})


def waited_for(round_: Round) -> Sequence[RoundAgent]:
    """The machines that are not, or not known to be, healthy again. Those that nobody checks, or
    that were lost, are not waited for: nothing was found on them."""
    return [agent for agent in round_.agents if agent.result not in _NOT_AWAITED]


def first_index(round_: Round) -> int:
    """The index of the task that the round is told about."""
    charged = sorted(round_.charged)
    return charged[0] if charged else round_.tasks[0].index


class _Named(TypedDict):
    """The numbers of a reason that names the first of some machines, and counts the others."""

    agent: str
    others: int
    found: str | None


def _named(agents: Sequence[RoundAgent]) -> _Named:
    first = agents[0]
    return _Named(agent=first.name, others=len(agents) - 1, found=first.said or None)
