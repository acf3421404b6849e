"""Requests to join and requests for logs in their protobuf form, and back."""

from collections.abc import Mapping, Sequence

from muster.core.ids import AgentId, KernelId
from muster.wire import agent_pb2 as pb
from muster.wire.calls import (
    JoinReply,
    JoinRequest,
    LogRequest,
)
from muster.wire.messages import KernelKey, MalformedMessage


def encode_join_request(request: JoinRequest) -> pb.JoinRequest:
    return pb.JoinRequest(
        token=request.token,
        name=request.name,
        group=request.group,
        credential=request.credential,
    )


def decode_join_request(request: pb.JoinRequest) -> JoinRequest:
    return JoinRequest(request.token, request.name, request.group, request.credential)


def encode_join_reply(reply: JoinReply) -> pb.JoinReply:
    return pb.JoinReply(agent=reply.agent)


def decode_join_reply(reply: pb.JoinReply) -> JoinReply:
    return JoinReply(AgentId(reply.agent))


def encode_log_request(number: int, request: LogRequest) -> pb.LogRequest:
    """``number`` tells the requests of one stream apart; the reply carries it."""
    return pb.LogRequest(
        request=number,
        kernel=request.kernel,
        generation=request.generation,
        offset=request.offset,
        limit_bytes=request.limit_bytes,
        follow=request.follow,
        stderr=request.stderr,
    )


def encode_short_request(number: int, names: Sequence[KernelKey]) -> pb.LogRequest:
    """A request for those of these outputs that are short."""
    short = [pb.OutputName(kernel=kernel, generation=at) for kernel, at in names]
    return pb.LogRequest(request=number, short=short)


def decode_short_request(request: pb.LogRequest) -> list[KernelKey]:
    return [(KernelId(name.kernel), name.generation) for name in request.short]


def encode_short_reply(
    number: int, names: Sequence[KernelKey], found: Mapping[KernelKey, bytes]
) -> pb.LogReply:
    short = [
        pb.ShortOutput(place=place, data=found[name])
        for place, name in enumerate(names)
        if name in found
    ]
    return pb.LogReply(request=number, short=short)


def decode_short_reply(reply: pb.LogReply, names: Sequence[KernelKey]) -> dict[KernelKey, bytes]:
    """
    Raises:
        MalformedMessage: an output that was not asked for.
    """
    if not all(0 <= each.place < len(names) for each in reply.short):
        raise MalformedMessage("an output that was not asked for")
    return {names[each.place]: each.data for each in reply.short}


def decode_log_request(request: pb.LogRequest) -> LogRequest:
    return LogRequest(
        KernelId(request.kernel),
        request.generation,
        request.offset,
        request.limit_bytes,
        request.follow,
        request.stderr,
    )
