"""The words between control and agents about the ports of replicas (design: Deployments and
routes).

A port is no proof of who answers on it: any process of the machine may listen on a port that was
reserved for another. So an agent tells whose process listens on a replica's port.
"""

from dataclasses import dataclass
from enum import StrEnum

from muster.core.ids import KernelId

PORTS = "ports"
"""The attribute of an agent that says by what reserved ports are kept for their owners there."""
BY_NFTABLES, BY_NOTHING = "nftables", "none"


class PortHolder(StrEnum):
    """The listener on a replica's port. Of several listeners, at different addresses, the worst
    counts."""

    NOBODY = "nobody"
    REPLICA = "replica"  # its kernel; or a program of its account, or of root, in no other kernel
    OTHER_KERNEL = "other kernel"  # one that runs as the same account
    OTHER_ACCOUNT = "other account"

    @property
    def is_thief(self) -> bool:
        """Whether requests to the port would reach somebody else."""
        return self in (PortHolder.OTHER_KERNEL, PortHolder.OTHER_ACCOUNT)


@dataclass(frozen=True, slots=True)
class PortOrder:
    """Have the listeners on a replica's port be looked at until another order of the route.

    Args:
        route: the id of the route.
        kernel, generation: the replica's.
        port: None has it be looked at no more.
    """

    route: str
    kernel: KernelId
    generation: int
    port: int | None = None


@dataclass(frozen=True, slots=True)
class PortOrders:
    """Orders to an agent, for as long as its stream lasts."""

    orders: tuple[PortOrder, ...]


@dataclass(frozen=True, slots=True)
class PortSeen:
    """The listener on a replica's port now. It is told when it was ordered, and at each change.

    Args:
        route, kernel, generation: those of the order.
    """

    route: str
    kernel: KernelId
    generation: int
    holder: PortHolder


@dataclass(frozen=True, slots=True)
class PortsSeen:
    """The listeners that an agent tells of."""

    ports: tuple[PortSeen, ...]
