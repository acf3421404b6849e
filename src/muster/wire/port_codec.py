"""Orders to look at replicas' ports, and what was seen there, in protobuf form and back."""

from muster.core.ids import KernelId
from muster.core.serving.port_holders import PortHolder, PortOrder, PortOrders, PortSeen, PortsSeen
from muster.wire import agent_pb2 as pb
from muster.wire.messages import MalformedMessage

_HOLDERS = {str(each): each for each in PortHolder}


def encode_port_orders(orders: PortOrders) -> pb.PortOrders:
    return pb.PortOrders(
        orders=[
            pb.PortOrder(
                route=each.route,
                kernel=each.kernel,
                generation=each.generation,
                port=each.port or 0,
            )
            for each in orders.orders
        ]
    )


def decode_port_orders(orders: pb.PortOrders) -> PortOrders:
    return PortOrders(
        tuple(
            PortOrder(each.route, KernelId(each.kernel), each.generation, each.port or None)
            for each in orders.orders
        )
    )


def encode_ports(seen: PortsSeen) -> pb.PortsSeen:
    return pb.PortsSeen(
        ports=[
            pb.PortSeen(
                route=each.route,
                kernel=each.kernel,
                generation=each.generation,
                holder=each.holder,
            )
            for each in seen.ports
        ]
    )


def decode_ports(seen: pb.PortsSeen) -> PortsSeen:
    """
    Raises:
        MalformedMessage: a holder of a port that this version does not know.
    """
    return PortsSeen(tuple(_decode_port(each) for each in seen.ports))


def _decode_port(seen: pb.PortSeen) -> PortSeen:
    holder = _HOLDERS.get(seen.holder)
    if holder is None:
        raise MalformedMessage("a holder of a port that this version does not know")
    return PortSeen(seen.route, KernelId(seen.kernel), seen.generation, holder)
