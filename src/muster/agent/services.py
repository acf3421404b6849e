"""The services of this agent: kernels that it carries out as itself, on its own machine.

A controller names the service. The program, its environment and the account are the agent's own:
nothing else of the order is looked at.
"""

import os
import sys
from dataclasses import replace

from muster.agent.config import AgentConfig
from muster.agent.health.request import PROGRAM, REQUEST, ServiceRequest, dump_request
from muster.core.health.service import Service, ServiceName
from muster.core.resources import Device
from muster.wire.messages import Start

RESETS = "@reset"
"""The shape of a service that resets GPUs, by which a restarted agent knows it among the kernels of
its supervisor. It waits for no kernel of its shape, so that the controller's would mean nothing."""
_INHERITED = ("LD_LIBRARY_PATH", "PYTHONPATH")
"""Variables of the agent that the program gets besides those of every kernel: with them it finds
the modules and the driver's libraries that the agent found."""


class OwnServices:
    """Makes orders of services into kernels.

    Args:
        devices: the GPUs that the agent declares.
    """

    def __init__(self, config: AgentConfig, devices: tuple[Device, ...]) -> None:
        self._config = config
        self._devices = devices

    def order(self, start: Start, service: Service) -> Start:
        """The order of the kernel by which this agent carries out the service."""
        environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        environment[REQUEST] = dump_request(self._request(service))
        template = replace(
            start.template,
            command=(sys.executable, "-P", "-m", PROGRAM),
            env=environment,
            workdir=None,
            files={},
            cpu_milli=0,
            memory_bytes=0,
            disk_bytes=0,
            shape=RESETS if service.name is ServiceName.RESET else start.template.shape,
        )
        return replace(start, template=template, env={}, queued=False, hold=False)

    def _request(self, service: Service) -> ServiceRequest:
        config = self._config
        return ServiceRequest(
            service=service,
            devices=self._devices,
            directory=str(config.directory),
            controller=config.controller,
            is_part=config.boot_id is not None,
            checks=config.checks,
            settings=config.check_limits,
            reboot=config.reboot_command,
        )
