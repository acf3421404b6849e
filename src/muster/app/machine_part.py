"""The part of a machine that an agent has, where several agents share the machine."""

from dataclasses import dataclass, replace
from pathlib import Path

from muster.agent.config import AgentConfig
from muster.app.local_agent_settings import amount
from muster.app.own_accounts import with_accounts_of
from muster.core.errors import MusterError
from muster.core.resources import parse_bytes
from muster.core.text import MAX_NAME

_FIRST_PORT, _LAST_PORT = 1024, 65_535


@dataclass(frozen=True, slots=True)
class MachinePart:
    """The part as people write it; None is what an agent has that is alone on its machine.

    Args:
        disk: bytes for scratch directories, as far as placement counts them.
        gpu_memory: bytes of each of the declared devices.
        ports: the first and the last of those for kernels, as "20100-20199".
        boot_id: the name of the present boot of this part.
        cluster: its users have the same accounts with all its agents on the machine.
        accounts_file: has the accounts of the home's own agents (see ``own_accounts``).
    """

    disk: str | None = None
    gpu_memory: str | None = None
    ports: str | None = None
    boot_id: str | None = None
    cluster: str | None = None
    accounts_file: Path | None = None


def with_part(config: AgentConfig, part: MachinePart) -> AgentConfig:
    """The agent's settings with this part.

    Raises:
        MusterError: an option is wrong.
    """
    disk_bytes = amount("--disk", part.disk, parse_bytes)
    if disk_bytes is not None:
        config = replace(config, disk_bytes=disk_bytes)
    gpu_memory_bytes = amount("--gpu-memory", part.gpu_memory, parse_bytes)
    if gpu_memory_bytes is not None:
        if config.gpus is None:
            raise MusterError("--gpu-memory is of the devices that --gpus declares: give both")
        config = replace(config, gpu_memory_bytes=gpu_memory_bytes)
    if part.ports is not None:
        config = replace(config, ports=_ports(part.ports))
    if part.boot_id is not None:
        config = replace(config, boot_id=_name("--boot-id", part.boot_id))
    if part.cluster is not None:
        config = replace(config, cluster=_name("--cluster", part.cluster))
    if part.accounts_file is not None:
        config = with_accounts_of(config, part.accounts_file)
    return config


def _ports(text: str) -> range:
    first, dash, last = text.partition("-")
    if dash and all(each.isascii() and each.isdecimal() for each in (first, last)):
        ports = range(int(first), int(last) + 1)
        if _FIRST_PORT <= ports.start < ports.stop <= _LAST_PORT + 1:
            return ports
    raise MusterError(
        f"--ports is {text[:80]!r}: expected FIRST-LAST from {_FIRST_PORT} on, such as 20100-20199"
    )


def _name(option: str, text: str) -> str:
    if not 0 < len(text) <= MAX_NAME or not text.isprintable():
        raise MusterError(f"{option} is {text[:80]!r}: expected up to {MAX_NAME} characters")
    return text
