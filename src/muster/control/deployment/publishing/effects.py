"""The effect by which balancers outside Muster learn where requests go (design: Effects)."""

from dataclasses import dataclass

from muster.control.engine.effects import ORDERS
from muster.core.serving.traffic import TrafficService


@dataclass(frozen=True, slots=True)
class PublishServices:
    """Have balancers send requests to these services, and to no others. It is the whole set each
    time, so that a lost effect is made up for by the next; performers find out what is different.

    Args:
        version: grows with each change; the newest set wins, in whatever order sets arrive.
    """

    version: int
    services: tuple[TrafficService, ...]


ORDERS.add(PublishServices)
