"""One agent as a process of its own: `python -m muster.app.agent_process`, settings on stdin.

Started by a controller for its own machine, and by `muster agent`, which leaves its own larger
process for this one. Settings come by standard input so that no token shows in a process list.
"""

import asyncio
import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from muster.agent.config import AgentConfig
from muster.agent.daemon import run
from muster.app.process import run_process

_PATHS = ("directory", "certificate_authority")


def dump_config(config: AgentConfig) -> str:
    """The settings as text, for ``load_config``. Only what differs from the defaults."""
    kept: dict[str, Any] = {}
    defaults = AgentConfig(Path(), "", "")
    for name, value in asdict(config).items():
        if value != asdict(defaults)[name]:
            kept[name] = str(value) if name in _PATHS else value
    return json.dumps(kept)


def load_config(text: str) -> AgentConfig:
    kept = json.loads(text)
    for name in _PATHS:
        if kept.get(name) is not None:
            kept[name] = Path(kept[name])
    return AgentConfig(**kept)


async def serve(config: AgentConfig) -> None:
    """Run the agent until SIGTERM or SIGINT; its kernels run on.

    Raises:
        MusterError: it cannot start, or the controller refuses it.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    await run(config, stop)


def main() -> None:
    run_process("muster agent", serve(load_config(sys.stdin.read())))


if __name__ == "__main__":
    main()
