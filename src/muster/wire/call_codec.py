"""Requests to join and requests for logs in their protobuf form, and back."""

from muster.core.ids import AgentId, KernelId
from muster.wire import agent_pb2 as pb
from muster.wire.calls import (
    JoinReply,
    JoinRequest,
    LogRequest,
)


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


def decode_log_request(request: pb.LogRequest) -> LogRequest:
    return LogRequest(
        KernelId(request.kernel),
        request.generation,
        request.offset,
        request.limit_bytes,
        request.follow,
        request.stderr,
    )
