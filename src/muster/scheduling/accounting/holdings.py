"""The work that owners have handed in and that has not ended, and the specs that are stored of it
and of ended work: sums for the limits on what one owner may put into the database (design:
Shares)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from muster.core.owner import Owner
from muster.scheduling.accounting.usage import Scope, scopes

LARGE_SPEC_BYTES = 16 * 1024
"""Specs of ended work up to this size are always kept whole; larger ones within a share."""


@dataclass(slots=True)
class Held:
    """The open work of an owner at one level: how many jobs, sessions and deployments have not
    ended, and the bytes of their stored specs."""

    work: int = 0
    spec_bytes: int = 0


class EndedSpec(NamedTuple):
    """A large spec of ended work that is stored whole: the table and the id of its row, and its
    size."""

    table: str
    id: str
    spec_bytes: int


_NOTHING = Held()


class Holdings:
    """The holdings of each owner in the database, kept current as work is handed in and ends."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[Owner, int]] = {}  # by the id of the work
        self._held: dict[Scope, Held] = {}
        self._ended: dict[Owner, dict[str, EndedSpec]] = {}  # the oldest first
        self._ended_bytes: dict[Owner, int] = {}

    def of(self, scope: Scope) -> Held:
        """The open work of a scope; must not be changed."""
        return self._held.get(scope, _NOTHING)

    def set_open(self, id_: str, owner: Owner, spec_bytes: int) -> None:
        """Count work that has not ended; work that is counted already has another size now."""
        self._take_out(id_)
        self._open[id_] = owner, spec_bytes
        self._count(owner, 1, spec_bytes)

    def ended(self, table: str, id_: str) -> None:
        """Count the work as ended; its spec is stored whole as yet."""
        owner, spec_bytes = self._open[id_]
        self._take_out(id_)
        self.keep(owner, EndedSpec(table, id_, spec_bytes))

    def keep(self, owner: Owner, spec: EndedSpec) -> None:
        """Count a spec of ended work that is stored whole, if it is large."""
        if spec.spec_bytes > LARGE_SPEC_BYTES:
            self._ended.setdefault(owner, {})[spec.id] = spec
            self._ended_bytes[owner] = self.ended_bytes(owner) + spec.spec_bytes

    def cut(self, owner: Owner, spec: EndedSpec) -> None:
        """Take note that the spec is no longer stored whole."""
        kept = self._ended[owner]
        del kept[spec.id]
        self._ended_bytes[owner] -= spec.spec_bytes
        if not kept:
            del self._ended[owner], self._ended_bytes[owner]

    def owners_of_ended(self) -> list[Owner]:
        """The owners with large specs of ended work."""
        return list(self._ended)

    def ended_bytes(self, owner: Owner) -> int:
        """The bytes of an owner's large specs of ended work."""
        return self._ended_bytes.get(owner, 0)

    def oldest_ended(self, owner: Owner, above_bytes: int) -> Iterator[EndedSpec]:
        """An owner's large specs of ended work, the oldest first, as long as the rest of them
        takes more than ``above_bytes``."""
        left_bytes = self.ended_bytes(owner)
        for spec in self._ended.get(owner, {}).values():
            if left_bytes <= above_bytes:
                return
            yield spec
            left_bytes -= spec.spec_bytes

    def _take_out(self, id_: str) -> None:
        found = self._open.pop(id_, None)
        if found is not None:
            owner, spec_bytes = found
            self._count(owner, -1, -spec_bytes)

    def _count(self, owner: Owner, work: int, spec_bytes: int) -> None:
        for scope in scopes(owner):
            held = self._held.setdefault(scope, Held())
            held.work += work
            held.spec_bytes += spec_bytes
            if not held.work:
                del self._held[scope]
