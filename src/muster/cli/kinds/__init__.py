"""The kinds of records on the command line: a module for each kind of ids to which people refer,
of the same name. To add one, write its module, and name it in ``WORK`` if people hand it in and
wait for it."""

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from muster.core.ids import IdKind

if TYPE_CHECKING:
    from muster.cli.kinds.kind import Kind, WorkKind
    from muster.core.views.base import RecordView

_NOT_REFERRED_TO = (IdKind.KERNEL, IdKind.TOKEN)

KINDS: dict[str, str] = {
    kind: f"{__name__}.{kind.name.lower()}" for kind in IdKind if kind not in _NOT_REFERRED_TO
}
"""The modules of the kinds by the prefix of their ids, in the order of offers and listings. The
``KIND`` of a module is its declaration; the module is imported when that is asked for."""

WORK: list[str] = [
    IdKind.JOB,
    IdKind.SESSION,
]
"""The kinds of work, which are among ``KINDS``: lists of work import no others."""


def of_ref(ref: str) -> "Kind[Any, Any] | None":
    """The kind whose ids begin as a reference does, which may be a name all the same; None where
    none does."""
    prefix, dash, _ = ref.lower().partition("-")
    return _of_module(KINDS[prefix]) if dash and prefix in KINDS else None


def of_record(record: "RecordView") -> "Kind[Any, Any]":
    """The kind of a record; of an undeclared kind it has nothing but plain fields."""
    from muster.cli.kinds.kind import Kind

    return of_ref(record.id) or Kind()


def of_work(record: "RecordView") -> "WorkKind[Any, Any]":
    """The kind of a record of work."""
    from muster.cli.kinds.kind import WorkKind

    kind = of_record(record)
    assert isinstance(kind, WorkKind), f"{record.id} is of a kind of work"
    return kind


def every() -> "Iterator[Kind[Any, Any]]":
    """All kinds."""
    return map(_of_module, KINDS.values())


def work() -> "list[WorkKind[Any, Any]]":
    """The kinds of work."""
    found: list[WorkKind[Any, Any]] = [import_module(KINDS[each]).KIND for each in WORK]
    return found


def _of_module(name: str) -> "Kind[Any, Any]":
    kind: Kind[Any, Any] = import_module(name).KIND
    return kind
