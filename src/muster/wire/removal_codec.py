"""Removals of outputs and scratch directories by agents, and their reasons, in protobuf form and
back."""

import json

from muster.core.ids import KernelId
from muster.core.reasons import Reason
from muster.core.reasons.of_files import (
    REMOVALS,
    OutputWasRemoved,
    Removal,
)
from muster.core.reasons.reason import with_numbers
from muster.wire import agent_pb2 as pb
from muster.wire.messages import FileRemoval, FilesRemoved


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


def decode_why_removed(told: pb.OutputRemoved) -> Removal:
    """The reason that an agent tells; one that this version does not know, or cannot say in words,
    becomes one without numbers."""
    kind = REMOVALS.get(told.reason)
    if kind is None:
        return OutputWasRemoved()
    try:
        found = with_numbers(kind, json.loads(told.numbers))
        found.sentence()
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
        return OutputWasRemoved()
    return found
