"""The machines that work waits for though it does not use them: their slices are not deleted."""

from typing import NamedTuple

from muster.core.ids import AgentId, JobId


class MachineHold(NamedTuple):
    """A job waits for a machine, until a moment at the latest (seconds since the epoch)."""

    job: JobId
    until: float


class MachineHolds:
    """Nobody waits for machines. Recoveries have holds of their own."""

    def on(self, agent: AgentId, now: float) -> MachineHold | None:
        """The hold of whoever waits longest for a machine; None if nobody does."""
        return None
