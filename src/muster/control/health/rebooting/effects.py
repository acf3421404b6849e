"""The effect that has a machine rebooted from outside, and its outcome (design: Effects).

The wish is stored as its incident. That a machine has booted anew is known by the boot id with
which its agent returns, never by an outcome: that tells only why it is of no use to wait.
"""

import logging
from dataclasses import dataclass

from muster.control.engine.effects import ORDERS
from muster.control.engine.inputs import Input
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.health.entity import IncidentId
from muster.control.health.incidents import Incidents
from muster.core.ids import AgentId
from muster.core.states.health import HealthStatus

log = logging.getLogger(__name__)

ANSWER_S = 180.0
"""How long the outcome of an effect is waited for, including its time in the performer's queue;
without one the effect may be emitted again, with the next generation."""


@dataclass(frozen=True, slots=True)
class RebootMachine:
    """Have the machine of an agent rebooted without asking its operating system. The key is
    (incident, generation). The performer reads everything else by the ids, so that no secret is in
    an effect.

    Args:
        why: a sentence for the operator's command, which names no job.
    """

    incident: IncidentId
    generation: int
    agent: AgentId
    why: str


ORDERS.add(RebootMachine)


@dataclass(frozen=True, slots=True)
class MachineRebooted(Input):
    """The outcome of a ``RebootMachine``.

    Args:
        done: whether the provider, or the command, says that it has the machine reboot; None where
            nobody knows, because no answer came: it may boot all the same.
        error: why it does not, or why that is not known; one bounded line without secrets, empty
            where ``done`` is true.
    """

    incident: IncidentId
    generation: int
    done: bool | None
    error: str = ""

    def take(self, work: Work, parts: Parts) -> None:
        live = parts[Incidents]
        incident = next((each for each in live if each.id == self.incident), None)
        if (
            incident is None
            or incident.status is not HealthStatus.REBOOTING
            or incident.generation != self.generation
        ):
            return  # another effect was emitted since, or none is needed any more
        incident.rebooted = self
        work.mark(incident)

    def refuse(self, error: Exception) -> None:
        log.warning("the outcome of rebooting for incident %s is dropped: %s", self.incident, error)
