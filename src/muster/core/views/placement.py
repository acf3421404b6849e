"""Answers about placement: why work is in its state, and the fate of work if it were handed in."""

from enum import StrEnum
from typing import Any

from muster.core.views.base import OwnerView, ReasonView, View
from muster.core.views.work import ShareView


class HolderView(View):
    """A holder of a resource that work waits for: sessions that the caller may see, by the ``name``
    of their job or their own, or all sessions of others together.

    Args:
        amount: of the resource that they hold, in the unit that a person expects.
        sessions: how many sessions it stands for.
        owner: of the sessions, where they have a name.
        yours: whether the sessions are the caller's.
        since: when the first session was placed or began, in seconds since the epoch.
    """

    sessions: int
    amount: str = ""
    name: str | None = None
    owner: OwnerView | None = None
    yours: bool = False
    since: float | None = None


class HoldingView(View):
    """A resource that work waits for, and its holders: the largest first, the rest together.

    Args:
        resource: its name, such as "gpu".
        held, limit: how much of how much is held.
        agents: where the resource is room on machines, those nearest to taking the work.
        quota: where the resource is a quota, its name, such as "user default/research/ann".
    """

    resource: str
    held: str
    limit: str
    agents: tuple[str, ...] = ()
    quota: str | None = None
    holders: tuple[HolderView, ...] = ()


class WhyView(View):
    """Why work is in its state. ``verdict`` is a sentence, ``reasons`` are all reasons that hold.

    ``held`` lists the resources that it waits for and their holders, ``behind`` is the session
    ahead of it in the queue for which room is kept, if the work waits for that reason.

    ``placement`` is what ``scheduling.explain.Explanation`` says of the session that waits, with
    agents by name, and of the work of others counts and priorities only; None where placement is
    not the question.
    """

    subject: str
    status: str
    verdict: str
    reasons: tuple[ReasonView, ...] = ()
    placement: dict[str, Any] | None = None
    held: tuple[HoldingView, ...] = ()
    behind: HolderView | None = None


class PlanOutcome(StrEnum):
    """The fate of work, if it were handed in now."""

    STARTS = "starts"  # now
    DISPLACES = "displaces"  # now, once work of lower priority has made room
    WAITS = "waits"
    CANCELLED = "cancelled"  # accepted, and ended at once: its needs can no longer be met


class PlannedKernelView(View):
    """Where a kernel would go. ``index`` is the task's in a job, the kernel's in a session;
    ``agent`` is the name of the machine."""

    index: int
    agent: str
    devices: tuple[ShareView, ...] = ()


class VictimView(View):
    """Work that would make room: one session of the caller's with its ``name``, or all ``sessions``
    of others that have the same priority."""

    priority: int
    sessions: int
    kernels: int
    name: str | None = None


class PlanView(View):
    """The fate of work, if it were handed in now. ``verdict`` is a sentence.

    Args:
        sessions: how many are tried: one for each task of a job that is not a gang, up to a limit.
        starting: how many of them would start now.
        kernels: where they would go; only the first if they are many.
        reasons: all that hold up the first session that would not start.
        displaces: the work that would make room for it.
        expected_at: when it would start at the latest if all ends are as known, in seconds since
            the epoch; None where that is not known.
        placement: of the first session, as in ``WhyView``.
    """

    outcome: PlanOutcome
    verdict: str
    group: str
    sessions: int
    starting: int
    kernels: tuple[PlannedKernelView, ...] = ()
    reasons: tuple[ReasonView, ...] = ()
    displaces: tuple[VictimView, ...] = ()
    expected_at: float | None = None
    placement: dict[str, Any]
