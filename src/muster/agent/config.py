"""What an agent is told when it starts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from muster.wire.transport import KeepAlive

GIB = 2**30
DAY_S = 86400.0


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The settings of one agent; ``None`` and empty mean "find out".

    Args:
        directory: everything the agent keeps: identity, journal, scratch directories, logs.
        controller: "host:port" of the controller's agent gateway.
        name: what people call the agent.
        group: the scaling group it joins.
        token: join token; needed at first contact, and when the controller forgot the agent.
        certificate_authority: PEM file that the controller's certificate descends from.
        host: where kernels of other agents reach this machine.
        gpus: devices declared for a machine without NVML, such as "4xH100" or "2xA100,1xT4".
        cpu_milli, memory_bytes, disk_bytes: declared capacity, in place of what is found.
        extra: named extra resources, in thousandths.
        attributes: added to what is found of the machine, for constraints.
        ports: where ports for kernels are reserved.
        log_max_bytes: a kernel's log is rotated at this size; the last two files of it are kept.
        logs_max_age_s, logs_max_bytes: older logs of ended kernels are removed, and the oldest
            when all of them together take more.
        keepalive: how soon a frozen or unreachable controller is noticed.
    """

    directory: Path
    controller: str
    name: str
    group: str = "default"
    token: str | None = None
    certificate_authority: Path | None = None
    host: str | None = None
    gpus: str | None = None
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    extra: Mapping[str, int] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)
    ports: range = range(20_000, 30_000)
    log_max_bytes: int = GIB // 16
    logs_max_age_s: float = 7 * DAY_S
    logs_max_bytes: int = 10 * GIB
    keepalive: KeepAlive = field(default_factory=KeepAlive)
