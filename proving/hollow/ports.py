"""The ports of a hollow agent's kernels, from Prepare until the kernel has ended."""

import itertools

from muster.wire.messages import KernelKey, Prepare

FIRST_PORT = 20_000


class HollowPorts:
    """Kernels that were prepared and have not ended, with their ports; kept in the agent's
    directory.

    Attributes:
        reserved: the ports of each kernel.
        taken: the fixed ports that are in use on the machine, with the kernels that have them; None
            for another program. The agents of one machine share it.
    """

    def __init__(self) -> None:
        self.reserved: dict[KernelKey, tuple[int, ...]] = {}
        self.taken: dict[int, KernelKey | None] = {}
        self._next = itertools.count(FIRST_PORT)

    def reserve(self, command: Prepare) -> bool:
        """Reserve ports for a kernel; false if another one has its fixed port."""
        key = (command.kernel, command.generation)
        if key not in self.reserved:
            if command.port is not None:
                if command.port in self.taken:
                    return False
                self.taken[command.port] = key
            self.reserved[key] = tuple(next(self._next) for _ in range(command.ports))
        return True

    def release_fixed(self, key: KernelKey) -> None:
        """Give back a kernel's fixed port: its processes are gone."""
        for port in [port for port, its in self.taken.items() if its == key]:
            del self.taken[port]

    def release(self, key: KernelKey) -> None:
        """Give back a kernel's ports, if it has any."""
        self.reserved.pop(key, None)
        self.release_fixed(key)

    def clear(self) -> None:
        """Give back all ports."""
        self.reserved.clear()
        self.taken.clear()
