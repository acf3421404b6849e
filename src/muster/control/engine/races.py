"""The handling of a wake that lost a race: another process wrote to the database, and the commit
found rows that differ from the mirror. (A handler that raises is in ``defects``.)

Nothing of the wake was written. The mirror is read again, and the same inputs are taken once more.
For a while, handlers leave the record alone that lost the race, with LOST_RACE in its history.
Otherwise they might repeat the decision that lost, and each race costs another reading of the whole
state.
"""

from collections.abc import Collection

SIT_OUT_S = 10.0
"""How long a record that lost a race sits out."""
MAX_IN_A_ROW = 5
"""How many wakes in a row may lose a race and be taken again."""


class Races:
    """Records that lost a race of late, by the names that history gives them. It outlives the
    mirror."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._until: dict[str, float] = {}

    def lost(self, names: Collection[str], now: float) -> bool:
        """Take note that these records lost a race; whether the wake is to be taken again."""
        if self._in_a_row >= MAX_IN_A_ROW:
            return False
        self._in_a_row += 1
        still = {name: until for name, until in self._until.items() if until > now}
        self._until = still | dict.fromkeys(names, now + SIT_OUT_S)
        return True

    def committed(self) -> None:
        self._in_a_row = 0

    def any(self, now: float) -> bool:
        """Whether some record sits out."""
        return any(until > now for until in self._until.values())

    def to_tell(self) -> Collection[str]:
        """The records whose history is to tell of a race, if the last wake lost one."""
        return self._until if self._in_a_row else ()

    def until(self, name: str, now: float, *, is_new: bool) -> float | None:
        """The moment until which a record sits out; None if it does not.

        Args:
            is_new: the record was made in this very wake. New records get new ids when a wake is
                repeated, and cannot be recognised. After two races in a row every new record
                therefore waits.
        """
        if is_new and self._in_a_row > 1:
            return now + SIT_OUT_S
        until = self._until.get(name, now)
        return until if until > now else None
