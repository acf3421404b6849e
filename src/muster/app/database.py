"""The database of a controller: opening it, and being the only one that works on it."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from muster.agent.supervisor import lock_file
from muster.app.home import Home
from muster.control.plane import ControlPlane
from muster.core.errors import Conflict, MusterError
from muster.store.database import (
    DatabaseUnreachable,
    open_engine,
    sqlite_url,
)
from muster.store.database.postgresql import held_alone
from muster.store.fence import Holder, read_holder
from muster.store.store import Store

log = logging.getLogger(__name__)

FENCE_LOOK_S = 2.0
"""How often an idle controller looks at whether it still is the one that writes: much less than the
margin of a lease, so that it renews none that its successor takes to have ended."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0


def url_of(named: str | None, home: Home) -> str:
    return sqlite_url(home.database) if named is None else named


def holder(home: Home) -> Holder:
    """This process, as others are told about it."""
    name = f"process {os.getpid()} on {socket.gethostname()}, data directory {home.path}"
    return Holder(name, time.time())


async def opened(url: str, stop: asyncio.Event, *, waits: bool) -> Engine:
    """The engine of the database, migrated; a server that is away is waited for with ``waits``.

    Raises:
        DatabaseUnusable: it cannot be used.
    """
    if url.startswith("sqlite:"):
        # SQLite gives its other files the permissions of this one, and tells errors itself.
        with suppress(OSError):
            Path(url.removeprefix("sqlite:///")).touch(mode=0o600)
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return await asyncio.to_thread(open_engine, url)
        except DatabaseUnreachable as error:
            if not waits or stop.is_set():
                raise
            log.warning("%s; trying again in %.1f s", error, pause_s)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


@contextmanager
def held_file(file: Path, home: Home | None = None) -> Iterator[None]:
    """Hold the file of a database against controllers and `muster db`: a file that is a home's own
    by that home's lock, any other by a lock beside it. ``home`` is held already.

    Raises:
        Conflict: somebody else holds it.
        MusterError: its directory cannot be written.
    """
    its_home = Home(file.parent)
    if its_home.database == file:
        with its_home.locked() if home is None or home.path != its_home.path else nullcontext():
            yield
        return
    beside = file.with_name(f"{file.name}.lock")
    try:
        lock = lock_file.take(beside)
    except lock_file.Taken as taken:
        who = f" (process {taken.holder})" if taken.holder is not None else ""
        raise Conflict(
            f"a controller, or another command, works on the database {file}{who}: stop it first, "
            f"for example with `muster down`"
        ) from None
    except OSError as error:
        raise MusterError(f"cannot write {beside}: {error.strerror}") from None
    try:
        yield
    finally:
        os.close(lock)


@contextmanager
def only_controller(engine: Engine, home: Home | None = None) -> Iterator[None]:
    """Be the only controller on the database. ``home`` is held already.

    Raises:
        Conflict: another one runs on it, or a command of `muster db`.
    """
    if engine.dialect.name != "postgresql":
        with held_file(Path(engine.url.database or ""), home):
            yield
        return
    with held_alone(engine) as is_held:
        if not is_held:
            with engine.connect().execution_options(readonly=True) as connection:
                other = read_holder(connection)
            shown = engine.url.set(drivername="postgresql", query={}).render_as_string()
            raise Conflict(
                f"another controller works on the database {shown} ({other}): stop that one first, "
                f"or name another database"
            )
        yield


async def watch_fence(plane: ControlPlane, store: Store, hint: Callable[[], None]) -> None:
    """Have the plane look at its database when another controller has taken it over; ``hint`` wakes
    the plane, which ends by itself."""
    while True:
        await asyncio.sleep(FENCE_LOOK_S)
        with suppress(SQLAlchemyError):  # the plane itself tells that the database is away
            if await asyncio.to_thread(store.is_fenced):
                plane.read_again()
                hint()
