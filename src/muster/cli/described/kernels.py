"""The columns of a kernel: of a session's, or of an attempt of a task."""

from typing import TYPE_CHECKING

from rich.text import Text

from muster.cli.ends import exit_text, ran, shown_state
from muster.cli.screen import Column, status
from muster.cli.words import clock_time, sentence_of
from muster.core.states import KernelStatus

if TYPE_CHECKING:
    from muster.core.views.work import KernelView

COLUMNS = (
    Column("STATE"),
    Column("AGENT", shrinks=8),
    Column("GPUS", drops=2),
    Column("STARTED", drops=3),
    Column("RAN", right=True, drops=1),
    Column("EXIT", right=True),
    Column("REASON", flexible=True, wraps=True),
)


def cells(kernel: "KernelView", now: float) -> list[Text | str]:
    """State, agent, GPUs, start, length, exit code and reason of one kernel."""
    gpus = ",".join(
        f"{share.index}" if share.share >= 1 else f"{share.index}({share.share:g})"
        for share in kernel.devices
    )
    reason = sentence_of(kernel.reason) if kernel.reason else ""
    if not reason and kernel.status is KernelStatus.ERROR:  # what the state means (KERNEL_TABLE)
        reason = f"lost with its agent {kernel.agent or ''}".rstrip()
    return [
        status(shown_state(kernel)),
        kernel.agent or "",
        gpus,
        clock_time(kernel.started_at, now) if kernel.started_at else "",
        ran(kernel.started_at, kernel.ended_at, now),
        exit_text(kernel.exit_code, kernel.signal),
        reason,
    ]
