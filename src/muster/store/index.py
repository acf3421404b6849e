"""Indexes of the mirror: the records that have not ended, by a key."""

from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Generic

from muster.store.entity import Entity, R


class Index(Generic[R]):
    """The records of an entity that have not ended, by a key. ``Live.index`` declares one, and the
    mirror and the unit of work keep it: it follows each change of a record's status at once, other
    changes when the unit is told of them (``touch``, ``rewrite``).

    Args:
        entity: of the records.
        key: of a record; a record whose key is None is left out.
    """

    def __init__(self, entity: Entity[R], key: Callable[[R], Hashable | None]) -> None:
        self._statuses = entity.states.live
        self._key = key
        self._keys: dict[R, Hashable] = {}
        self._records: dict[Hashable, dict[R, None]] = {}

    def of(self, key: Hashable) -> Collection[R]:
        """The records with this key, in the order in which they got it. The collection changes with
        the records."""
        return self._records.get(key, {}).keys()

    def newest(self, key: Hashable) -> R | None:
        """The record that got this key last; None if no record has it."""
        return next(reversed(self._records.get(key, {})), None)

    def __contains__(self, key: Hashable) -> bool:
        """Whether a record has this key."""
        return key in self._records

    def __iter__(self) -> Iterator[R]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def note(self, record: R) -> None:
        """Note that a record is new, has changed or has ended."""
        key = self._key(record) if record.status in self._statuses else None
        before = self._keys.get(record)
        if key == before:
            return
        if before is not None:
            self._remove(record, before)
        if key is not None:
            self._keys[record] = key
            self._records.setdefault(key, {})[record] = None

    def _remove(self, record: R, key: Hashable) -> None:
        del self._keys[record]
        records = self._records[key]
        del records[record]
        if not records:
            del self._records[key]
