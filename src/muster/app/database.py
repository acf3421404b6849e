"""The database of a controller: opening it, and being the only one that works on it."""

import asyncio
import logging
import math
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from muster.agent.boot import boot_id
from muster.agent.supervisor import lock_file
from muster.agent.trouble import Trouble
from muster.app.home import Home
from muster.control.agent.leases import IN_CHARGE_S, LeaseBook
from muster.control.plane import ControlPlane
from muster.core.clock import Clock
from muster.core.errors import Conflict, MusterError
from muster.files import NotOwn, check_way
from muster.store.database import (
    DatabaseUnreachable,
    DatabaseUnusable,
    bring_up_to_date,
    reach,
    shown_url,
    sqlite_url,
)
from muster.store.database.postgresql import held_alone
from muster.store.database.reading import unusable
from muster.store.fence import Holder, read_holder
from muster.store.store import Store

log = logging.getLogger(__name__)

FENCE_LOOK_S = 2.0
"""How often an idle controller looks at whether it still is the one that writes: much less than
``IN_CHARGE_S``, so that it goes on renewing leases."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0

T = TypeVar("T")


def url_of(named: str | None, home: Home) -> str:
    return sqlite_url(home.database) if named is None else named


def holder(home: Home, engine: Engine) -> Holder:
    """This process, which holds the home, as others are told about it."""
    name = f"process {os.getpid()} on {socket.gethostname()}, data directory {home.path}"
    limit_s = in_charge_s(engine)
    return Holder(
        name,
        time.time(),
        home=f"{boot_id()}:{home.lock_id()}",
        renews_s=limit_s if math.isfinite(limit_s) else 0.0,
    )


@dataclass(frozen=True, slots=True)
class DatabasePatience:
    """The wait for a database whose trouble time may cure: its server is away or has no room, its
    disk is full, somebody else holds a lock, or all of it as `muster db restore` does. There is no
    limit: state is lost by no wait, and ``trouble`` shows an operator the reason of it.

    Args:
        waits: whether there is a wait at all; a first start fails at once, before a person.
        stop: ends the wait.
    """

    url: str
    waits: bool
    stop: asyncio.Event
    trouble: Trouble

    async def done(self, step: Callable[[], T]) -> T:
        """The answer of a step, which is tried on a thread until the database lets it be done.

        Raises:
            DatabaseUnusable: time does not cure the trouble; or it may, and nobody is to wait.
            Conflict: another process works on the database, and nobody is to wait for its end.
        """
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                answer = await asyncio.to_thread(self._tried, step)
            except (DatabaseUnreachable, Conflict) as error:
                if not self.waits or self.stop.is_set():
                    raise
                self.trouble.tell(f"waits for its database: {error}")
                log.warning("%s; trying again in %.1f s", error, pause_s)
            else:
                self.trouble.clear()
                return answer
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _tried(self, step: Callable[[], T]) -> T:
        try:
            return step()
        except SQLAlchemyError as error:
            raise unusable(self.url, error) from error


@asynccontextmanager
async def home_held(
    home: Home, url: str, stop: asyncio.Event, *, waits: bool
) -> AsyncIterator[None]:
    """Hold the home for this process until the end of the block.

    Args:
        waits: whether the end of another process that holds it is waited for.

    Raises:
        Conflict: another process holds it, and nobody is to wait for its end.
        UnusableHome: it cannot be written.
    """
    patience = DatabasePatience(url, waits, stop, Trouble(home.path))
    with ExitStack() as holding:
        await patience.done(lambda: holding.enter_context(home.locked()))
        yield


@dataclass(frozen=True, slots=True)
class Opened:
    """A database on which this process alone works. ``hold_on`` goes on to hold it, where the
    connection that does so broke; it may be called on any thread, and wait for the server.
    ``patience`` is for what is read and written before the controller is ready."""

    engine: Engine
    hold_on: Callable[[], object]
    patience: DatabasePatience


@asynccontextmanager
async def opened(
    url: str, home: Home, stop: asyncio.Event, *, waits: bool
) -> AsyncIterator[Opened]:
    """The database, migrated, of which this process is the only controller until the end of the
    block. It is held before it is migrated: the tables of a controller that runs stay as they are.

    Args:
        home: it is held already.
        waits: whether trouble that time may cure is waited out.

    Raises:
        Conflict: another controller runs on it, or a command of `muster db`, and it is not waited
            for its end.
        DatabaseUnusable: it cannot be used.
    """
    is_file = url.startswith("sqlite:")
    if is_file:
        # SQLite gives its other files the permissions of this one, and tells errors itself.
        with suppress(OSError):
            Path(url.removeprefix("sqlite:///")).touch(mode=0o600, exist_ok=False)
    patience = DatabasePatience(url, waits, stop, Trouble(home.path))
    engine = await patience.done(partial(reach, url))
    try:
        with ExitStack() as holding:
            alone = partial(only_controller, engine, home)
            hold_on = await patience.done(lambda: holding.enter_context(alone()))
            if is_file:  # whoever held it may have put another one in its place
                engine.dispose()
            await patience.done(partial(bring_up_to_date, engine))
            yield Opened(engine, hold_on, patience)
    except SQLAlchemyError as error:
        raise unusable(url, error) from error
    finally:
        engine.dispose()


@contextmanager
def held_file(file: Path, home: Home | None = None) -> Iterator[None]:
    """Hold the file of a database, whatever it is called, against controllers and `muster db`: a
    file that is a home's own by that home's lock, any other by a lock beside it. ``home`` is held
    already.

    Raises:
        Conflict: somebody else holds it.
        MusterError: its directory cannot be written, or somebody else may have prepared it: SQLite
            writes other files there, and follows links.
    """
    for directory in (file.parent, file.resolve().parent):  # the file may be a link itself
        try:
            check_way(directory)
        except NotOwn as error:
            raise MusterError(f"cannot use {directory} for a database: {error}") from None
        except OSError as error:
            raise MusterError(f"cannot use {directory}: {error.strerror}") from None
    file = file.resolve()
    its_home = Home(file.parent)
    if its_home.database == file:
        is_held = home is not None and home.path.resolve() == its_home.path
        with nullcontext() if is_held else its_home.locked():
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
def only_controller(engine: Engine, home: Home | None = None) -> Iterator[Callable[[], object]]:
    """Be the only controller on the database; see ``Opened`` for the answer. ``home`` is held
    already.

    Raises:
        Conflict: another one runs on it, or a command of `muster db`.
    """
    if engine.dialect.name != "postgresql":
        with held_file(Path(engine.url.database or ""), home):
            yield lambda: None
        return
    with held_alone(engine) as hold:
        if hold is None:
            raise Conflict(
                f"another controller, or a command of `muster db`, works on the database "
                f"{shown_url(engine.url)}{_last_holder(engine)}: stop that one first, or name "
                f"another database"
            )
        yield hold.take


def _last_holder(engine: Engine) -> str:
    """The one who took the fence last, in brackets; empty in a database without it."""
    with suppress(SQLAlchemyError), engine.connect() as connection:
        return f" ({read_holder(connection)})"
    return ""


async def watch_fence(
    plane: ControlPlane,
    store: Store,
    leases: LeaseBook,
    clock: Clock,
    hint: Callable[[], None],
    hold_on: Callable[[], object],
) -> None:
    """Tell the book of leases as long as the controller is in charge, and have the plane look at
    its database when another one has taken it over; ``hint`` wakes the plane, which ends by itself.
    The hold is taken again after an outage meanwhile, so that whoever wants the database next is
    refused."""
    while True:
        await asyncio.sleep(FENCE_LOOK_S)
        asked_at_s = clock.boot_s()
        with suppress(SQLAlchemyError, DatabaseUnusable):  # the plane itself tells of these
            if await asyncio.to_thread(store.is_fenced):
                plane.read_again()
                hint()
            else:
                leases.confirm_charge(asked_at_s)
                await asyncio.to_thread(hold_on)


def in_charge_s(engine: Engine) -> float:
    """How long this process may take itself for the only controller without asking the database.
    The lock on a file is its own until it ends; a server may give the lock to another process
    meanwhile."""
    return IN_CHARGE_S if engine.dialect.name == "postgresql" else math.inf
