"""Kernels that hold room of an agent, as a controller tells them."""

from collections.abc import Sequence
from typing import Any

from tests.cli.fake_cluster import ANN, NOW

from muster.core.states import KernelStatus
from muster.core.views.base import ResourcesView
from muster.core.views.cluster import HeldKernelView
from muster.core.views.work import ShareView


def held(work: str, gpus: Sequence[int] = (), **fields: Any) -> HeldKernelView:
    """A kernel of Ann's that holds these whole GPUs of an agent for a minute."""
    return HeldKernelView(
        **{
            "id": f"krn-{work}",
            "session_id": f"ses-{work}",
            "work": work,
            "owner": ANN,
            "status": KernelStatus.RUNNING,
            "devices": tuple(ShareView(index=index, share=1.0) for index in gpus),
            "resources": ResourcesView(cpu_milli=2000, gpu_milli=1000 * len(gpus)),
            "since": NOW - 60,
            **fields,
        }
    )
