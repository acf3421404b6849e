"""Checkpoints: SQLite's log is copied into the database beside the wakes, so that no commit has
much to copy."""

import asyncio
import logging
import sqlite3

from sqlalchemy import Engine

from muster.control.plane import ControlPlane
from muster.store.database import checkpoint

log = logging.getLogger(__name__)

PAUSE_S = 1.0


async def keep_checkpointing(plane: ControlPlane, engine: Engine) -> None:
    """Copy committed pages on another thread, after commits.

    SQLite by itself copies the whole log in the commit that makes it too long, which held the event
    loop for 50 ms. Now it finds little left to copy.
    """
    committed = asyncio.Event()
    forget = plane.watch(lambda _: committed.set())
    try:
        while True:
            await committed.wait()
            committed.clear()
            try:
                await asyncio.to_thread(checkpoint, engine)
            except (OSError, sqlite3.Error):  # the disk is full, say: the next commit tells people
                log.exception("what was committed could not be copied from the log")
            await asyncio.sleep(PAUSE_S)
    finally:
        forget()
