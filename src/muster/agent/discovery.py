"""The machine's capacity and attributes: discovered, or declared by the person who starts the
agent."""

import asyncio
import os
import platform
import pwd
import re
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace

import psutil

from muster.agent import cgroup_limits
from muster.agent.config import AgentConfig
from muster.agent.gpus import Gpus, find_gpus
from muster.core.errors import InvalidSpec, Problem
from muster.core.host_port import parted
from muster.core.owner import AS_OWNER, RUNS_AS
from muster.core.resources import (
    EXTRA_NAME,
    GPU_WHOLE,
    MAX_DEVICES,
    Device,
    Resources,
    is_partition,
)
from muster.core.serving.port_holders import PORTS

FOUND_ATTRIBUTES = (
    "hostname",
    "os",
    "kernel",
    "arch",
    "gpu_model",
    "gpu_driver",
    "gpu_mig",
    RUNS_AS,
    "limits",
    PORTS,
)
"""The attributes that agents discover; ``limits`` comes from their supervisor, ``ports`` from the
rules for ports."""

_GPUS = re.compile(r"(?P<count>\d{1,4})(?:\s*[xX*]\s*(?P<model>[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}))?")


@dataclass(frozen=True, slots=True)
class DiscoveredMachine:
    """The capacity that an agent offers, and the attributes by which it can be chosen."""

    capacity: Resources
    devices: tuple[Device, ...]
    attributes: Mapping[str, str]


def discover(config: AgentConfig) -> DiscoveredMachine:
    """The machine as ``config`` declares it, and as it is where nothing is declared.

    Raises:
        InvalidSpec: a declaration that cannot be understood.
        OSError: the agent's directory does not exist.
    """
    for name in config.extra:
        if not EXTRA_NAME.fullmatch(name):
            expected = "expected a name of lower-case letters, digits, _ . - /"
            raise InvalidSpec([Problem("extra", name, expected)])
    gpus = find_gpus() if config.gpus is None else _declared(config.gpus, config.gpu_memory_bytes)
    return DiscoveredMachine(
        Resources.with_extra(
            _cpu_milli() if config.cpu_milli is None else config.cpu_milli,
            _memory_bytes() if config.memory_bytes is None else config.memory_bytes,
            _disk_bytes(config) if config.disk_bytes is None else config.disk_bytes,
            GPU_WHOLE * len(gpus.devices),
            config.extra,
        ),
        gpus.devices,
        {**_attributes(gpus), **config.attributes},
    )


def _declared(text: str, memory_bytes: int) -> Gpus:
    return Gpus(tuple(replace(each, memory_bytes=memory_bytes) for each in parse_gpus(text)))


def parse_gpus(text: str) -> tuple[Device, ...]:
    """Devices as people declare them: "4xH100", "2xA100,1xT4", "4" (of no model), "0" or "none".

    Raises:
        InvalidSpec: anything else.
    """
    expected = "expected devices such as 4, 4xH100 or 2xA100,1xT4, or none"
    if text.strip().lower() in ("", "none"):
        return ()
    devices: list[Device] = []
    for part in text.split(","):
        match = _GPUS.fullmatch(part.strip())
        if match is None:
            raise InvalidSpec([Problem("gpus", repr(text), expected)])
        count, model = int(match["count"]), (match["model"] or "gpu").strip()
        if len(devices) + count > MAX_DEVICES:
            limit = f"expected at most {MAX_DEVICES} devices on one machine"
            raise InvalidSpec([Problem("gpus", repr(text), limit)])
        devices += [Device(len(devices) + ordinal, model) for ordinal in range(count)]
    return tuple(devices)


def _cpu_milli() -> int:
    """The processors that this process may use, by its affinity and the quotas of its cgroups."""
    usable_milli = 1000 * len(os.sched_getaffinity(0))
    return min([usable_milli, *cgroup_limits.cpu_milli()])


def _memory_bytes() -> int:
    return min([psutil.virtual_memory().total, *cgroup_limits.memory_bytes()])


def _disk_bytes(config: AgentConfig) -> int:
    return shutil.disk_usage(config.directory).total


def scratch_max_bytes(config: AgentConfig) -> int:
    """The limit of the scratch directory of a kernel that asked for no disk."""
    if config.scratch_max_bytes is not None:
        return config.scratch_max_bytes
    return shutil.disk_usage(config.directory).total // 2


def kept_scratch_max_bytes(config: AgentConfig) -> int:
    """The room for the scratch directories of ended kernels."""
    if config.kept_scratch_max_bytes is not None:
        return config.kept_scratch_max_bytes
    return shutil.disk_usage(config.directory).total // 2


def _attributes(gpus: Gpus) -> dict[str, str]:
    system = os.uname()
    found = {
        "hostname": system.nodename,
        "os": _os_name(),
        "kernel": system.release,
        "arch": system.machine,
        "gpu_model": ",".join(dict.fromkeys(device.model for device in gpus.devices)),
        "gpu_driver": gpus.driver,
        "gpu_mig": ",".join(dict.fromkeys(filter(None, map(_partition, gpus.devices)))),
        RUNS_AS: AS_OWNER if os.geteuid() == 0 else _own_account(),
    }
    return {name: value for name, value in found.items() if value}


def _partition(device: Device) -> str:
    """The kind of partition that a device is, such as 1g.5gb; empty for a whole GPU."""
    return device.model.rpartition(" MIG ")[2] if is_partition(device.model) else ""


def _own_account() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["ID"]
    except OSError:
        return "linux"


async def address_towards(controller: str) -> str:
    """The address of this machine that the controller sees, which other agents should see too."""
    host, port = parted(controller)
    try:
        addresses = await asyncio.get_running_loop().getaddrinfo(
            host, int(port), type=socket.SOCK_DGRAM
        )
        family, kind, _, _, target = addresses[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)  # sends nothing, and only chooses a route
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return socket.gethostname()
