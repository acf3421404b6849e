"""Sentences on what runs on a machine, beside ``core.sentences``."""

from muster.core.resources import format_milli
from muster.core.text import count, duration
from muster.core.views.cluster import HeldKernelView


def held_kernel(kernel: HeldKernelView, now: float) -> str:
    """A kernel with its owner, its part of the machine, and for how long it has had that."""
    if kernel.owner is None:
        who = f"a {kernel.service} of the machine"
    else:
        who = f"{kernel.work} ({kernel.owner.user})"
    holds = kernel.resources.resources().describe()
    devices = ", ".join(str(share.index) for share in kernel.devices)
    on = f" on GPU {devices}" if devices else ""
    return f"{who}: {holds}{on}, for {duration(now - kernel.since)}"


def kernels_of_others(number: int, gpu_milli: int) -> str:
    """Kernels whose work the reader may not see."""
    gpus = f", with {format_milli(gpu_milli)} gpu" if gpu_milli else ""
    return f"{count(number, 'kernel')} of others{gpus}"
