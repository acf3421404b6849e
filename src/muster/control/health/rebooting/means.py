"""The machines that can be rebooted from outside."""

from muster.control.health.rebooting.settings import HealthSettings
from muster.core.ids import system_boot
from muster.core.specs.pool import SLICE
from muster.store.records import Agent


class HardReboots:
    """The knowledge of hard reboots without asking anybody: a part, for the ladder of healing.

    Args:
        settings: the operator's.
        own_boot: the boot id of the controller's machine; empty where it has none.
    """

    def __init__(self, settings: HealthSettings, own_boot: str = "") -> None:
        self._has_command = bool(settings.reboot_command)
        self._own_boot = own_boot

    def reaches(self, agent: Agent) -> bool:
        """Whether there is somebody who can reboot the agent's machine: the provider of its slice,
        or an operator's command, which is never run for the controller's own machine."""
        if SLICE in agent.fixed:
            return True
        return self._has_command and not self._is_own(agent)

    def _is_own(self, agent: Agent) -> bool:
        here = bool(self._own_boot) and system_boot(agent.boot_id) == self._own_boot
        return here or bool(agent.machine)
