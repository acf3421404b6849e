"""Files of kernels that agents have removed, told in the history of their sessions (design:
Shares): a row a kernel for its output, and one for its scratch directory."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from muster.control.engine.work import Work
from muster.core.ids import AgentId, SessionId
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.of_files import Removal
from muster.core.results import SchedulingResult
from muster.store.removals import EndedKernel
from muster.wire.messages import FileRemoval, KernelKey

PHASE = "Retention"

Read = Callable[
    [AgentId, Collection[KernelKey], str],
    tuple[dict[KernelKey, EndedKernel], set[tuple[SessionId, Reason]]],
]

Told = tuple[SessionId, ReasonCode, str]
"""The session, what was removed and why, and of which kernel of a gang."""


@dataclass(slots=True)
class _ToldInWake:
    """The removals that this wake has told, which are not stored yet."""

    rows: set[Told] = field(default_factory=set)


class RemovedFiles:
    """Takes what agents tell of their own kernels; anything else changes nothing, and neither does
    what is told again.

    Args:
        read: reads the kernels that ran on an agent, and what history tells of them already.
    """

    def __init__(self, read: Read) -> None:
        self._read = read

    def hear(self, work: Work, agent: AgentId, removals: Sequence[FileRemoval]) -> None:
        """Tell removals in history."""
        keys = {(each.kernel, each.generation) for each in removals}
        ran, rows = self._read(agent, keys, PHASE)
        told = work.once(_ToldInWake).rows
        told |= {(session, why.code, _of(why)) for session, why in rows}
        for each in removals:
            kernel = ran.get((each.kernel, each.generation))
            if kernel is None:
                continue
            of = f"kernel {kernel.place}" if kernel.kernels > 1 else ""
            row = kernel.session, each.why.code, of
            if row in told:
                continue
            told.add(row)
            why = replace(each.why, of=of)
            success = SchedulingResult.SUCCESS
            work.unit.note_ended(kernel.session, kernel.status, PHASE, success, why)


def _of(why: Reason) -> str:
    return why.of or "" if isinstance(why, Removal) else ""
