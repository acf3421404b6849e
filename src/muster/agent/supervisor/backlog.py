"""The backlog: prefilled kernels, which wait for a kernel of their shape to end (design: Prefill).
The next of them is the heir of the ended kernel: it gets the devices and the room of that kernel.
Some prefilled kernels stand by: they were already handed to their user's spawner, and stay in the
backlog until they have room."""

from collections import OrderedDict

from muster.agent.supervisor.kernel import Event, OwnKernel, Status
from muster.agent.supervisor.protocol import Key


class Backlog:
    """First in, first out for each shape."""

    def __init__(self) -> None:
        self._shapes: dict[str, OrderedDict[Key, OwnKernel]] = {}

    def __bool__(self) -> bool:
        return bool(self._shapes)

    def __contains__(self, kernel: OwnKernel) -> bool:
        return kernel.key in self._shapes.get(kernel.shape, ())

    def add(self, kernel: OwnKernel) -> None:
        self._shapes.setdefault(kernel.shape, OrderedDict())[kernel.key] = kernel

    def next_queued(self, shape: str) -> OwnKernel | None:
        """The kernel that has waited longest, without those that stand by with a process of their
        user, if there is any."""
        waiting = self._shapes.get(shape)
        kernels = waiting.values() if waiting else ()
        return next((kernel for kernel in kernels if kernel.status is Status.QUEUED), None)

    def appoint_heir(self, kernel: OwnKernel, event: Event) -> OwnKernel | None:
        """The heir of a kernel that has ended, if there is any: the kernel that was spawned in its
        place, else the kernel that has waited longest, which leaves the backlog. `event` tells the
        end."""
        heir = kernel.heir
        if heir is None and (waiting := self._shapes.get(kernel.shape)):
            heir = next(iter(waiting.values()))
        if heir is None or kernel.prefilled:  # a kernel without room leaves none
            return None
        self.remove(heir)
        kernel.heir, heir.prefilled = None, False
        heir.devices, heir.device_milli = kernel.devices, kernel.device_milli
        heir.predecessor = kernel.key
        event["heir"] = heir.key
        return heir

    def remove(self, kernel: OwnKernel) -> None:
        """Remove a kernel; nothing happens if it is not here."""
        waiting = self._shapes.get(kernel.shape)
        if waiting is not None and waiting.pop(kernel.key, None) is not None and not waiting:
            del self._shapes[kernel.shape]
