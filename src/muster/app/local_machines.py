"""The machines of local pools, of which agents that died are started again."""

import asyncio
import logging
import time
from pathlib import Path

from muster.providers.local.processes import revive_machines
from muster.providers.local.restarts import Restarts

log = logging.getLogger(__name__)

LOOK_S = 5.0


async def keep_machines(directory: Path) -> None:
    """Start agents of local machines that ended by themselves again, until cancelled. Their leases
    have no end, so nobody else would notice that they are gone.

    Args:
        directory: has those of the pools.
    """
    restarts = Restarts()
    while True:
        try:
            await asyncio.to_thread(revive_machines, directory, restarts, time.monotonic())
        except OSError as error:
            log.warning("agents of local machines are not started again: %s", error)
        await asyncio.sleep(LOOK_S)
