"""The request that an agent gives to the program by which it carries out a service."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from muster.core.health.service import Service
from muster.core.resources import Device

REQUEST = "MUSTER_SERVICE"
"""The variable that holds the request, as JSON."""
RESULT = "MUSTER_RESULT"
"""The variable that holds the path of the file for the result."""
PROGRAM = "muster.agent.health.serve"
"""The module that carries out a service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRequest:
    """A service with the facts that its program needs. All but the service itself comes from the
    agent's own settings.

    Args:
        devices: the GPUs that the agent declared.
        directory: the agent's, on the disk that its work uses.
        controller: "host:port" of the controller.
        is_part: whether the agent has only a part of a machine.
        checks: the operator's checks by name, each as a command line.
        settings: limits of checks by their names.
        reboot: the operator's command that reboots the machine; empty where there is none.
    """

    service: Service
    devices: tuple[Device, ...] = ()
    directory: str = "/"
    controller: str = ""
    is_part: bool = False
    checks: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, float] = field(default_factory=dict)
    reboot: str = ""

    @property
    def asked(self) -> tuple[Device, ...]:
        """The GPUs that the service is about, as far as the agent has them."""
        wanted = self.service.devices
        return tuple(each for each in self.devices if not wanted or each.index in wanted)


def dump_request(request: ServiceRequest) -> str:
    return msgspec.json.encode(request).decode()


def load_request(text: str) -> ServiceRequest:
    """
    Raises:
        ValueError: it is none.
    """
    try:
        return msgspec.json.decode(text.encode(), type=ServiceRequest)
    except msgspec.MsgspecError as error:
        raise ValueError(f"no request of an agent: {error}") from None
