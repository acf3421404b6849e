"""The outcome of a list of a pool's machines."""

import logging
from dataclasses import dataclass

from muster.control.engine.inputs import Input
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.pool.fleet import Fleet
from muster.control.pool.records import SliceId
from muster.providers.provider import MachineListing

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MachinesListed(Input):
    """The outcome of a ``ListMachines``.

    Args:
        listing: None where the provider did not tell.
        told: why it did not, in its own words.
        ended: slices whose machines are listed, though they are known to have ended.
    """

    pool: str
    generation: int
    listing: MachineListing | None
    told: str = ""
    ended: frozenset[SliceId] = frozenset()

    def take(self, work: Work, parts: Parts) -> None:
        fleet = parts[Fleet]
        fleet.listed(work, self.pool, self.generation, self.listing, self.told, self.ended)

    def refuse(self, error: Exception) -> None:
        log.warning("the machines of pool %s, as listed, are dropped: %s", self.pool, error)
