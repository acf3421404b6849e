"""Prefilled kernels, which wait for a kernel of their shape to end (design: Prefill). The next of
them is the heir of that kernel: it gets its devices and its room."""

from collections import OrderedDict

from muster.agent.supervisor.kernel import Kernel
from muster.agent.supervisor.protocol import Key


class Backlog:
    """First in, first out for each shape."""

    def __init__(self) -> None:
        self._shapes: dict[str, OrderedDict[Key, Kernel]] = {}

    def __bool__(self) -> bool:
        return bool(self._shapes)

    def add(self, kernel: Kernel) -> None:
        self._shapes.setdefault(kernel.shape, OrderedDict())[kernel.key] = kernel

    def take(self, shape: str) -> Kernel | None:
        """Remove and return the kernel that has waited longest, if there is any."""
        waiting = self._shapes.get(shape)
        if waiting is None:
            return None
        _, kernel = waiting.popitem(last=False)
        if not waiting:
            del self._shapes[shape]
        return kernel

    def remove(self, kernel: Kernel) -> None:
        """Remove a kernel; nothing happens if it is not here."""
        waiting = self._shapes.get(kernel.shape)
        if waiting is not None and waiting.pop(kernel.key, None) is not None and not waiting:
            del self._shapes[kernel.shape]
