"""Reads from SQL, off the event loop."""

import time
from collections.abc import Callable
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

import anyio
import msgspec
from anyio import to_thread
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from muster.api.allowance import Allowance, ConcurrencyLimit
from muster.api.turns import charge
from muster.control.inbox import NotStored
from muster.core.owner import Owner
from muster.core.views.base import View
from muster.store.database.outage import cause_of

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4
"""Reads at a time; more would only wait for each other and for connections."""
THREADS_OF_ONE = THREADS - 1
"""Threads that one owner's reads take at most, so that some are left to others."""
MAX_READS = 2_000
"""Reads under way or waiting."""
MAX_READS_OF_ONE = 400


class Reader:
    """Runs functions of a read-only connection in a few threads.

    Readers never wait for writes: they see the state of the last commit.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._threads = anyio.CapacityLimiter(THREADS)
        allowance = Allowance("reads", MAX_READS_OF_ONE, MAX_READS)
        self._concurrency = ConcurrencyLimit(allowance, at_once=THREADS_OF_ONE)

    async def read(
        self,
        owner: Owner,
        query: Callable[Concatenate[Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """The result of ``query``, called with a connection and these arguments, for ``owner``.

        Raises:
            Busy: too many reads wait already, or too many of this owner's.
            Unavailable: the database cannot be read.
        """
        with self._concurrency.admitted(owner) as slots:
            async with slots:
                return await to_thread.run_sync(
                    partial(self._read, query, *args, **kwargs), limiter=self._threads
                )

    async def json(
        self,
        owner: Owner,
        query: Callable[Concatenate[Connection, P], View],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> bytes:
        """The result of ``query`` as JSON, written in the thread: to write a page of a thousand
        takes longer than the event loop may be held.

        Raises:
            Busy, Unavailable: see ``read``.
        """

        def written(connection: Connection) -> bytes:
            return msgspec.json.encode(query(connection, *args, **kwargs))

        return await self.read(owner, written)

    def _read(
        self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        began_s = time.thread_time()
        try:
            with self._engine.connect().execution_options(readonly=True) as connection:
                return query(connection, *args, **kwargs)
        except SQLAlchemyError as error:
            raise NotStored(f"the database cannot be read: {cause_of(error)}") from error
        finally:
            charge(time.thread_time() - began_s)
