"""The fence: one store at a time may write, however many believe that they may.

A store takes the fence when it begins: it raises the epoch in the fence's row, and leaves its name
there. Each commit raises the row's count of commits, where the epoch is still the store's own; if
it is not, somebody else has taken the fence since, and nothing of the commit is written. A commit
changes this row first, so the row's lock lets one commit after the other. After a commit whose
answer was lost the count tells whether it was written.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select, update

from muster.core.errors import Superseded
from muster.store import schema
from muster.store.batch import updating

_COUNT = updating(schema.fence, ["commits"], ["epoch"])


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that writes: its ``name`` for a person, and ``since`` when, in seconds since
    1970."""

    name: str
    since: float

    def __str__(self) -> str:
        moment = datetime.fromtimestamp(self.since).astimezone()
        return f"{self.name}, since {moment:%Y-%m-%d %H:%M:%S %Z}"


NOBODY = Holder("nobody in particular", 0.0)


def read_holder(connection: Connection) -> Holder:
    """The holder that took the fence last."""
    row = connection.execute(select(schema.fence.c.holder, schema.fence.c.since)).one()
    return Holder(row.holder or NOBODY.name, row.since)


class Fenced(Superseded):
    """Another store has taken the fence: this one can never write again."""

    def __init__(self, other: Holder) -> None:
        super().__init__(
            f"another controller writes to the database now ({other}): this one has stopped, and "
            f"wrote nothing since; keep one of them"
        )
        self.other = other


class Fence:
    """A store's hold of the fence."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder
        self._epoch = 0
        self._commits = 0
        """How many commits there were, all epochs together, as far as this store knows."""

    def take(self, connection: Connection) -> None:
        """Become the one that writes; the next commit of whoever wrote so far fails. The epoch is
        no less than the time in milliseconds: it is new even where an older state was put back."""
        columns = schema.fence.c
        row = connection.execute(select(columns.epoch, columns.commits).with_for_update()).one()
        self._epoch = max(row.epoch + 1, int(self._holder.since * 1000))
        self._commits = row.commits
        ours = {"holder": self._holder.name, "since": self._holder.since}
        connection.execute(update(schema.fence).values(epoch=self._epoch, **ours))

    def count(self, connection: Connection) -> None:
        """Count a commit: the first change of its transaction.

        Raises:
            Fenced: somebody else has taken the fence.
        """
        if _COUNT.execute(connection, [(self._commits + 1, self._epoch)]) != 1:
            self.require(connection)

    def committed(self) -> None:
        """Take note that the transaction of the last ``count`` was committed."""
        self._commits += 1

    def is_held(self, connection: Connection) -> bool:
        """Whether nobody else has taken the fence."""
        return bool(connection.scalar(select(schema.fence.c.epoch)) == self._epoch)

    def require(self, connection: Connection) -> None:
        """
        Raises:
            Fenced: somebody else has taken the fence.
        """
        if not self.is_held(connection):
            raise Fenced(read_holder(connection))

    def was_counted(self, connection: Connection) -> bool:
        """Whether the transaction of the last ``count`` was committed, though nobody said so. While
        the server still works on it, its lock on the row is waited for.

        Raises:
            Fenced: somebody else has taken the fence.
        """
        commits = connection.execute(select(schema.fence.c.commits).with_for_update()).scalar_one()
        self.require(connection)
        return bool(commits == self._commits + 1)
