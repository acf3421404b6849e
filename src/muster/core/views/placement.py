"""Answers about placement: why work is in its state, and the fate of work if it were handed in."""

from enum import StrEnum

from msgspec import field

from muster.core.views.base import OwnerView, ReasonView, RecordView, View
from muster.core.views.work import ShareView


class HolderView(View):
    """A holder of a resource that work waits for: sessions that the caller may see, by the ``name``
    of their job or their own; or, without a name, all further sessions of the caller together, or
    all sessions of others.

    Args:
        amount: of the resource that they hold, in the unit that a person expects.
        held_amount: the same as a canonical amount: thousandths, bytes, or a count.
        sessions: how many sessions it stands for.
        owner: of the sessions, where they have a name.
        yours: whether the sessions are the caller's.
        since: when the first session was placed or began, in seconds since the epoch.
    """

    sessions: int
    amount: str = ""
    held_amount: int = 0
    name: str | None = None
    owner: OwnerView | None = None
    yours: bool = False
    since: float | None = None


class HoldingView(View):
    """A resource that work waits for, and its holders: the largest first, the rest together.

    Args:
        sentence: these facts in words, as they are when the answer is given.
        resource: its name, such as "gpu".
        held, limit: how much of how much is held, in the unit that a person expects.
        held_amount, limit_amount: the same as canonical amounts: thousandths, bytes, or counts.
        agents: where the resource is room on machines, those nearest to taking the work.
        quota: where the resource is a quota, its name, such as "user default/research/ann".
    """

    sentence: str = ""
    resource: str
    held: str
    limit: str
    held_amount: int = 0
    limit_amount: int = 0
    agents: tuple[str, ...] = ()
    quota: str | None = None
    holders: tuple[HolderView, ...] = ()


class AheadView(HolderView):
    """The session ahead of work in the queue for which room is kept; ``sentence`` tells it in
    words."""

    sentence: str = ""


class PlaceView(View):
    """The place of one kernel: the agent's name, and indexes of its devices."""

    agent: str
    devices: tuple[int, ...] = ()


class ShortfallView(View):
    """Agents with the same kinds of shortfalls.

    Args:
        agents: how many.
        examples: names of some.
        nearest: the name of the agent with the smallest shortfall.
        shortfalls: those of that agent; empty where these agents have room.
    """

    agents: int
    examples: tuple[str, ...]
    nearest: str
    shortfalls: tuple[ReasonView, ...] = ()


class ScoreView(View):
    """An agent with room, and its score; the highest wins."""

    agent: str
    score: float


class RequestView(View):
    """How the agents suit one of the distinct requests of a session's kernels.

    Args:
        sentence: how many agents were looked at, and how many kernels would find room.
        request: the canonical amounts by resource; ``asks`` tells them to a person.
        kernels: how many kernels make the request.
        fit: how many of these find room by themselves; None from an older controller.
        groups: the agents by their shortfalls, the largest group first.
        other_agents: how many agents are in none of the groups.
        scores: the best agents with room, in the order in which placement chooses.
    """

    sentence: str = ""
    request: dict[str, int] = field(default_factory=dict)
    asks: str
    kernels: int
    fit: int | None = None
    groups: tuple[ShortfallView, ...] = ()
    other_agents: int = 0
    scores: tuple[ScoreView, ...] = ()


class KeptView(View):
    """Amounts that are kept free on an agent: canonical ones by resource, and thousandths of
    ``devices`` by their index."""

    agent: str
    resources: dict[str, int] = field(default_factory=dict)
    devices: dict[int, int] = field(default_factory=dict)


class ReservationView(View):
    """Room that is kept for a session.

    Args:
        sentence: when it starts, or where room is kept for it.
        session: its id.
        expected_at: when it starts at the latest if all ends are as known, in seconds since the
            epoch; None where it waits for unknown ends.
        kernels: the places that are kept, by index of the kernel.
        holds: the amounts that must stay free for it from now on.
        waits_for: how many sessions have to end before.
        waits_for_some: names of some of them, those that the caller may see.
    """

    sentence: str = ""
    session: str = ""
    expected_at: float | None = None
    kernels: tuple[PlaceView, ...] = ()
    holds: tuple[KeptView, ...] = ()
    waits_for: int = 0
    waits_for_some: tuple[str, ...] = ()


class VictimView(View):
    """Work that would make room: one session of the caller's with its ``name``, or all ``sessions``
    of others that have the same priority."""

    priority: int
    sessions: int
    kernels: int
    name: str | None = None


class DisplacementView(View):
    """The sessions that would make room for another, and its places then, by index of the
    kernel."""

    victims: tuple[VictimView, ...]
    kernels: tuple[PlaceView, ...] = ()


class PlacementView(View):
    """A placement pass's decision about a session at this moment: its place in the order, its room,
    and the shortfalls of the agents. Of the work of others it tells counts and priorities only.

    Args:
        sentence: its place in the order, and how many of its kernels would find room.
        session: its id.
        starts: whether it would start; ``placement`` says where.
        reasons: all that keep it from starting.
        position: its place in the order of the group's queue, from 1.
        queue: how many sessions wait.
        agents: how many agents the group has.
        kernels: how many kernels it has.
        kernels_fit: how many of them would find room together, once the sessions ahead have
            started.
        requests: its distinct requests, the most demanding first; ``other_requests`` counts those
            that are left out.
        reservation: the room kept for it, if any is.
        displaces: the sessions that it would displace, if its group allows that.
    """

    sentence: str = ""
    session: str = ""
    group: str
    starts: bool = False
    reasons: tuple[ReasonView, ...] = ()
    position: int
    queue: int
    agents: int
    kernels: int
    kernels_fit: int
    requests: tuple[RequestView, ...] = ()
    other_requests: int = 0
    placement: tuple[PlaceView, ...] = ()
    reservation: ReservationView | None = None
    displaces: DisplacementView | None = None


class WhyView(View):
    """Why a record is in its state. ``verdict`` is a sentence, ``details`` are more of them: where
    work runs, or how its first task failed. ``reasons`` are all reasons that hold; of a record that
    has ``ended``, the reason of its end.

    ``standing`` is how the record stands, as lists of such records tell it; empty where that is its
    status.

    ``name`` is by which commands know work; ``output`` is the REF whose output tells more, None if
    there is none.

    ``held`` lists the resources that work waits for and their holders, ``behind`` is the session
    ahead of it in the queue for which room is kept, if the work waits for that reason.

    ``placement`` is about the session that waits; None where placement is not the question.
    """

    subject: str
    status: str
    verdict: str
    details: tuple[str, ...] = ()
    reasons: tuple[ReasonView, ...] = ()
    name: str = ""
    output: str | None = None
    placement: PlacementView | None = None
    held: tuple[HoldingView, ...] = ()
    behind: AheadView | None = None
    ended: bool = False
    standing: str = ""

    @staticmethod
    def of_ended(
        found: RecordView,
        verdict: str,
        *,
        details: tuple[str, ...] = (),
        name: str = "",
        output: str | None = None,
    ) -> "WhyView":
        """The answer about a record that has ended."""
        return WhyView(
            subject=found.id,
            status=found.status,
            verdict=verdict,
            details=details,
            reasons=() if found.reason is None else (found.reason,),
            name=name,
            output=output,
            ended=True,
            standing=found.standing,
        )


class PlanOutcome(StrEnum):
    """The fate of work, if it were handed in now."""

    STARTS = "starts"  # now
    DISPLACES = "displaces"  # now, once work of lower priority has made room
    WAITS = "waits"
    CANCELLED = "cancelled"  # accepted, and ended at once: its needs can no longer be met


class PlannedKernelView(View):
    """The place to which a kernel would go. ``index`` is the task's in a job, the kernel's in a
    session; ``agent`` is the name of the machine."""

    index: int
    agent: str
    devices: tuple[ShareView, ...] = ()


class AdditionView(View):
    """Slices that a pool would make: how many, with how many machines, and what they cost an hour,
    in the currency of the pool's price; ``sentence`` tells it in words."""

    sentence: str = ""
    pool: str
    slices: int
    machines: int
    price: float = 0.0


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
        adds: the slices that pools would make for sessions that would not start.
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
    adds: tuple[AdditionView, ...] = ()
    placement: PlacementView
