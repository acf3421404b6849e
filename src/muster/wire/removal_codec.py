"""Removals of outputs and scratch directories by agents, and their reasons, in protobuf form and
back."""

from muster.core.ids import KernelId
from muster.core.reasons import Reason, ReasonCode, reason
from muster.wire import agent_pb2 as pb
from muster.wire.messages import FileRemoval, FilesRemoved

_REMOVALS = frozenset(
    {
        ReasonCode.OUTPUT_ABOVE_SHARE,
        ReasonCode.OUTPUT_TOO_OLD,
        ReasonCode.SCRATCH_ABOVE_SHARE,
        ReasonCode.SCRATCH_TOO_OLD,
    }
)


def encode_removed(removed: FilesRemoved) -> pb.FilesRemoved:
    return pb.FilesRemoved(
        removals=[
            pb.FileRemoval(
                kernel=each.kernel, generation=each.generation, why=encode_why_removed(each.why)
            )
            for each in removed.removals
        ]
    )


def decode_removed(removed: pb.FilesRemoved) -> FilesRemoved:
    return FilesRemoved(
        tuple(
            FileRemoval(KernelId(each.kernel), each.generation, decode_why_removed(each.why))
            for each in removed.removals
        )
    )


def encode_why_removed(why: Reason) -> pb.OutputRemoved:
    return pb.OutputRemoved(reason=why.code, numbers=why.to_json())


def decode_why_removed(told: pb.OutputRemoved) -> Reason:
    """The reason that an agent tells; one that this version does not know, or cannot say in words,
    becomes one without numbers."""
    unknown = reason(ReasonCode.OUTPUT_REMOVED)
    try:
        found = Reason.from_json(told.reason, told.numbers)
        found.sentence()
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        return unknown
    return found if found.code in _REMOVALS else unknown
