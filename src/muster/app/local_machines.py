"""The machines of local pools, of which agents that died are started again."""

import asyncio
import logging
from pathlib import Path

from muster.providers.local.processes import revive_machines

log = logging.getLogger(__name__)

LOOK_S = 5.0


async def keep_machines(directory: Path) -> None:
    """Start agents of local machines that ended by themselves again, until cancelled. Their leases
    have no end, so nobody else would notice that they are gone.

    Args:
        directory: has those of the pools.
    """
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            revived = await asyncio.to_thread(revive_machines, directory)
        except OSError as error:
            log.warning("agents of local machines are not started again: %s", error)
            continue
        if revived:
            log.warning("agents %s had ended and are started again", ", ".join(revived[:20]))
