"""One agent as a process of its own: `python -m muster.app.agent_process`, settings on stdin.

It is started by a controller for its own machine, and by `muster agent`, which replaces its larger
process by this one. Settings come by standard input so that no token shows in a process list.
"""

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from muster.agent.config import AgentConfig
from muster.agent.daemon import run
from muster.agent.supervisor.process_priority import raise_priority
from muster.app.background_parts import BackgroundParts
from muster.app.process import run_process, stay_above_kernels
from muster.wire.transport import KeepAlive

# The written form of values that JSON does not know, and the way back.
_WRITE: dict[str, Callable[[Any], Any]] = {
    "directory": str,
    "certificate_authority": str,
    "ports": lambda ports: [ports.start, ports.stop],
    "keepalive": lambda keepalive: [keepalive.interval_s, keepalive.timeout_s],
    "extra": dict,
    "attributes": dict,
    "accounts": dict,
    "uids": lambda uids: [uids.start, uids.stop],
    "cluster_uids": lambda uids: [uids.start, uids.stop],
    "users_directory": str,
    "checks": dict,
    "check_limits": dict,
}
_READ: dict[str, Callable[[Any], Any]] = {
    "directory": Path,
    "certificate_authority": Path,
    "ports": lambda ends: range(*ends),
    "keepalive": lambda seconds: KeepAlive(*seconds),
    "uids": lambda ends: range(*ends),
    "cluster_uids": lambda ends: range(*ends),
    "users_directory": Path,
}


def dump_config(config: AgentConfig) -> str:
    """The settings as text, for ``load_config``; defaults are left out."""
    default = AgentConfig(config.directory, config.controller, config.name)
    needed = ("directory", "controller", "name")
    return json.dumps(
        {
            field.name: _WRITE.get(field.name, lambda value: value)(value)
            for field in fields(config)
            if (value := getattr(config, field.name)) != getattr(default, field.name)
            or field.name in needed
        }
    )


def load_config(text: str) -> AgentConfig:
    kept = json.loads(text)
    return AgentConfig(
        **{name: _READ.get(name, lambda value: value)(value) for name, value in kept.items()}
    )


async def serve(config: AgentConfig) -> None:
    """Run the agent until SIGTERM or SIGINT; its kernels run on.

    Raises:
        MusterError: it cannot start, or the controller refuses it.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    async with BackgroundParts().running("priority", stay_above_kernels):
        await run(config, stop)


def main() -> None:
    raise_priority()
    run_process("muster agent", serve(load_config(sys.stdin.read())))


if __name__ == "__main__":
    main()
