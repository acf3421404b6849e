"""A connection to a PostgreSQL server that does not wait for an answer for ever: the driver would,
and with it the event loop."""

import time
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

from muster.store.database import patience

RV = TypeVar("RV")


class ServerConnection(psycopg.Connection[Any]):
    """A connection that is broken off where the server does not answer in time, which its user sees
    as an error. One that is not ``is_limited`` waits for each answer as long as it takes; all
    answers have to be there ``until`` this moment of the monotonic clock, if there is one."""

    is_limited = True
    until: float | None = None

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        limit_s = self._limit_s()
        if limit_s is None or (timeout is not None and timeout < limit_s):
            return super().wait(gen, interval, timeout)
        deadline_s = time.monotonic() + limit_s
        try:
            return super().wait(gen, interval, limit_s)
        except psycopg.OperationalError:
            if time.monotonic() < deadline_s:
                raise
            self.pgconn.finish()  # a later question would get the answer to this one
            raise psycopg.OperationalError("the server does not answer") from None

    def _limit_s(self) -> float | None:
        """How long the next answer may take."""
        if self.until is not None:
            return max(0.0, self.until - time.monotonic())
        if not self.is_limited:
            return None
        return patience.QUESTION_S if self.autocommit else patience.LONGEST_ANSWER_S
