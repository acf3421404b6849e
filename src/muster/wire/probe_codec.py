"""Orders to probe and results of probes in protobuf form and back."""

from muster.core.serving.probes import MAX_DETAIL, ProbeOrder, ProbeResult, ProbeTarget
from muster.core.text import made_text
from muster.wire import agent_pb2 as pb
from muster.wire.messages import ProbeOrders, ProbesSeen


def encode_orders(orders: ProbeOrders) -> pb.ProbeOrders:
    return pb.ProbeOrders(orders=[_encode_order(each) for each in orders.orders])


def _encode_order(order: ProbeOrder) -> pb.ProbeOrder:
    target = order.target
    if target is None:
        return pb.ProbeOrder(route=order.route, generation=order.generation)
    return pb.ProbeOrder(
        route=order.route,
        generation=order.generation,
        target=pb.ProbeTarget(
            port=target.port,
            interval_s=target.interval_s,
            timeout_s=target.timeout_s,
            request=target.request,
            good=[pb.Statuses(first=first, last=last) for first, last in target.good],
            metric_request=target.metric_request,
            metric=target.metric,
            kernel=target.kernel,
            kernel_generation=target.kernel_generation,
        ),
    )


def decode_orders(orders: pb.ProbeOrders) -> ProbeOrders:
    """The orders; their targets have no host."""
    return ProbeOrders(tuple(_decode_order(each) for each in orders.orders))


def _decode_order(order: pb.ProbeOrder) -> ProbeOrder:
    if not order.HasField("target"):
        return ProbeOrder(order.route, order.generation)
    target = order.target
    return ProbeOrder(
        order.route,
        order.generation,
        ProbeTarget(
            "",
            target.port,
            target.interval_s,
            target.timeout_s,
            target.request,
            tuple((each.first, each.last) for each in target.good),
            target.metric_request,
            target.metric,
            target.kernel,
            target.kernel_generation,
        ),
    )


def encode_results(seen: ProbesSeen) -> pb.ProbesSeen:
    return pb.ProbesSeen(
        results=[
            pb.ProbeResult(
                route=each.route,
                generation=each.generation,
                good=each.good,
                streak=each.streak,
                age_s=each.age_s,
                detail=made_text(each.detail, MAX_DETAIL),
                value=each.value,
                reached=each.reached,
            )
            for each in seen.results
        ]
    )


def decode_results(seen: pb.ProbesSeen) -> ProbesSeen:
    return ProbesSeen(
        tuple(
            ProbeResult(
                each.route,
                each.generation,
                each.good,
                each.streak,
                each.age_s,
                each.detail,
                each.value if each.HasField("value") else None,
                each.reached,
            )
            for each in seen.results
        )
    )
