"""The fence: only one store at a time can write, even if several processes take themselves for the
controller.

A store takes the fence when it begins: it raises the epoch in the fence's row, and leaves its name
there. Each commit raises the count of commits in the row if the epoch is still the store's own;
otherwise another store has taken the fence since, and nothing of the commit is written. A commit
changes this row first, so that the lock on the row lets one commit follow the other. After a commit
without an answer, the count tells whether it was written.

A row with an older epoch, or with another count than the store's, is that of an older state: a
server that lagged behind has taken the place of another, say. Nothing is written to it, for this
process and its agents are ahead of it.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, extract, func, select, update

from muster.core.errors import MustEnd, Superseded
from muster.store import schema
from muster.store.batch import updating

_ROW = select(schema.fence)
_COUNT = updating(schema.fence, ["commits"], ["epoch", "commits"])


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that writes.

    Args:
        name: for a person.
        since: in seconds since 1970.
        home: the lock that it holds; one process at a time can have it. Empty where it holds none.
        renews_s: how long it may renew leases of agents after it last knew that it holds the fence.
    """

    name: str
    since: float
    home: str = ""
    renews_s: float = 0.0

    def __str__(self) -> str:
        moment = datetime.fromtimestamp(self.since).astimezone()
        return f"{self.name}, since {moment:%Y-%m-%d %H:%M:%S %Z}"

    @classmethod
    def of(cls, row: Row[Any]) -> "Holder":
        """The holder that took the fence last, by the fence's row."""
        return cls(row.holder or NOBODY.name, row.since, row.home, row.renews_s)


NOBODY = Holder("nobody in particular", 0.0)


def read_holder(connection: Connection) -> Holder:
    """The holder that took the fence last."""
    return Holder.of(connection.execute(_ROW).one())


class Fenced(Superseded):
    """Another store has taken the fence: this one can never write again."""

    def __init__(self, other: Holder) -> None:
        super().__init__(
            f"another controller writes to the database now ({other}): this one has stopped, and "
            f"wrote nothing since; keep one of them"
        )
        self.other = other


class WentBack(MustEnd):
    """The database has an older state than the one which this store made of it."""

    def __init__(self) -> None:
        super().__init__(
            "the database has gone back to an older state, as where a standby that lagged behind "
            "took the place of its server: this controller has stopped, and goes on from that "
            "state when it is started again"
        )


class Fence:
    """A store's hold of the fence.

    ``former_renews_s`` is how long, from when the fence was taken, former holders may go on
    renewing leases. One does not where it is proven gone, because it ended in order or had the home
    of which this process has the lock now.
    """

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self.former_renews_s = 0.0
        self._epoch = 0
        self._commits = 0
        """The number of commits in all epochs, as far as this store knows."""

    def take(self, connection: Connection) -> None:
        """Become the store that writes; the next commit of the former one fails. The new epoch is
        at least the time in milliseconds, so that it is new even after an older state was
        restored."""
        row = connection.execute(_ROW.with_for_update()).one()
        former, ours, now = Holder.of(row), self._holder, self._now(connection)
        others_until = row.others_until
        if not ours.home or ours.home != former.home:
            others_until = max(others_until, now + former.renews_s)
        self.former_renews_s = max(0.0, others_until - now)
        self._epoch = max(row.epoch + 1, int(ours.since * 1000))
        self._commits = row.commits
        connection.execute(
            update(schema.fence).values(
                epoch=self._epoch,
                holder=ours.name,
                since=ours.since,
                home=ours.home,
                renews_s=ours.renews_s,
                others_until=others_until,
            )
        )

    def _now(self, connection: Connection) -> float:
        """Seconds since 1970 by the server's clock, which is the same for all holders. On a file
        nobody waits for former holders."""
        if connection.dialect.name != "postgresql":
            return self._holder.since
        return float(connection.scalars(select(extract("epoch", func.clock_timestamp()))).one())

    def leave(self, connection: Connection) -> None:
        """Say that this holder ends and renews no lease any more."""
        ours = schema.fence.c.epoch == self._epoch
        connection.execute(update(schema.fence).where(ours).values(renews_s=0.0))

    def count(self, connection: Connection) -> None:
        """Count a commit: the first change of its transaction.

        Raises:
            Fenced: somebody else has taken the fence.
            WentBack: the state is an older one.
        """
        if _COUNT.execute(connection, [(self._commits + 1, self._epoch, self._commits)]) != 1:
            self.require(connection)

    def committed(self) -> None:
        """Take note that the transaction of the last ``count`` was committed."""
        self._commits += 1

    def is_held(self, connection: Connection) -> bool:
        """Whether nobody else has taken the fence, and no commit is missing; the store may commit
        meanwhile."""
        known = self._commits
        row = connection.execute(_ROW).one()
        return bool(row.epoch == self._epoch and row.commits >= known)

    def require(self, connection: Connection) -> None:
        """
        Raises:
            Fenced: somebody else has taken the fence.
            WentBack: the state is an older one.
        """
        row = connection.execute(_ROW).one()
        if (row.epoch, row.commits) != (self._epoch, self._commits):
            raise Fenced(Holder.of(row)) if row.epoch > self._epoch else WentBack()

    def was_counted(self, connection: Connection) -> bool:
        """Whether the transaction of the last ``count`` was committed, after its answer was lost.
        If the server still works on it, the call waits for its lock on the row.

        Raises:
            Fenced: somebody else has taken the fence.
            WentBack: the state is an older one.
        """
        row = connection.execute(_ROW.with_for_update()).one()
        if (row.epoch, row.commits) == (self._epoch, self._commits + 1):
            return True
        self.require(connection)
        return False
