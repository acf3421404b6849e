"""The places of an agent's devices: at which address of PCI each is."""

from collections.abc import Mapping, Sequence

from muster.agent.health.memory import WatchMemory
from muster.core.health.kernel_log import pci_address
from muster.core.resources import Device


class DevicePlaces:
    """The addresses of devices by which the kernel's log names their GPUs.

    Args:
        devices: those that the agent has; merely declared ones, without a UUID, have no place.
        memory: has the addresses of all GPUs that were ever there.
    """

    def __init__(self, devices: Sequence[Device], memory: WatchMemory) -> None:
        self._index_of = {each.uuid: each.index for each in devices if each.uuid}
        self._memory = memory
        self.partitions: Mapping[str, str] = {}
        """The addresses of the GPUs of partitions, by the UUIDs of these."""

    def __contains__(self, uuid: str) -> bool:
        return uuid in self._index_of

    def at(self, address: str) -> tuple[int, ...]:
        """The indexes of the devices at an address: one GPU, or its partitions."""
        return tuple(
            index for uuid, index in self._index_of.items() if self._address(uuid) == address
        )

    def of(self, device: int) -> str | None:
        """The address of a device; None if it is not known."""
        uuid = next((uuid for uuid, index in self._index_of.items() if index == device), "")
        return self._address(uuid)

    def is_ours(self, address: str) -> bool:
        """Whether a GPU is one of this machine's: in a container the kernel's log tells of others
        too."""
        known = {pci_address(at) for at in self._memory.gpus.values()}
        return not known or address in known

    def _address(self, uuid: str) -> str | None:
        return pci_address(self.partitions.get(uuid) or self._memory.gpus.get(uuid, ""))
