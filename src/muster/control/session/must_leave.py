"""Machines that work has to leave: noted by whoever wants a machine empty, for those that inform
the owners of the work."""

from dataclasses import dataclass

from muster.control.engine.work import Work
from muster.core.ids import AgentId
from muster.core.reasons import Reason
from muster.store.records import Agent


@dataclass(frozen=True, slots=True)
class Departure:
    """A decision about the work on a machine.

    Args:
        leave_by: when what still runs there is stopped; None if it need not leave any more.
        why: the reason for which it has to leave.
    """

    leave_by: float | None
    why: Reason | None = None


def departures() -> dict[AgentId, Departure]:
    """The departures of one wake, for ``Work.once``: whoever informs of one takes it away."""
    return {}


def note_departure(work: Work, agent: Agent, departure: Departure) -> None:
    """Have the owners of the work on a machine be informed, where the work asks for notices."""
    work.once(departures)[agent.id] = departure
    work.mark(agent)
