"""Explanations for missing output: no process ran that could have written any, or none wrote."""

from typing import TYPE_CHECKING, Any

from muster.cli import kinds
from muster.cli.words import sentence_of

if TYPE_CHECKING:
    from muster.cli.kinds.outputs import Outputs
    from muster.client import Client
    from muster.core.views.base import ReasonView, RecordView


def why_no_output(
    client: "Client", outputs: "Outputs[Any]", found: "RecordView", index: int
) -> str | None:
    """A sentence that says that a task or kernel never started, and why; None if it started.

    Raises:
        MusterError: the work cannot be read any more.
    """
    runs = outputs.runs(client, found, index)
    if any(kernel.started_at is not None for kernel in runs.kernels):
        return None
    return _never(f"{outputs.part} {index}", runs.reason)


def never_started(outputs: "Outputs[Any]", found: "RecordView") -> str:
    """The sentence for all parts of work; where it still waits it names the command that tells
    why."""
    kind = kinds.of_record(found)
    if not _ended(found):
        ref = kind.name_of(found) or found.id
        return f"no {outputs.part} has started yet: `muster why {ref}` says why"
    return _never(f"the {kind.name}", found.reason)


def nothing_written(found: "RecordView") -> str:
    """The sentence for parts that have started, all of whose output is empty."""
    return "nothing was written" if _ended(found) else "nothing has been written yet"


def _ended(found: "RecordView") -> bool:
    from muster.cli.kinds.kind import WorkKind

    kind = kinds.of_record(found)
    return isinstance(kind, WorkKind) and kind.ended(found)


def _never(name: str, reason: "ReasonView | None") -> str:
    return f"{name} never started" + (f": {sentence_of(reason)}" if reason else "")
