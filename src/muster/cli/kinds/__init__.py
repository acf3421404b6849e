"""The kinds of records on the command line. To add one, name its module in ``KINDS``, or
in ``WORK`` if people hand it in and wait for it."""

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from muster.core.ids import IdKind

if TYPE_CHECKING:
    from muster.cli.kinds.kind import Kind, WorkKind
    from muster.core.views.base import RecordView

WORK: dict[str, str] = {
    IdKind.JOB: "muster.cli.kinds.job",
    IdKind.SESSION: "muster.cli.kinds.session",
}
"""The modules of the kinds of work, which are among ``KINDS``: lists of work import no others."""

KINDS: dict[str, str] = {
    **WORK,
    IdKind.NOTICE: "muster.cli.kinds.notice",
    IdKind.RECOVERY: "muster.cli.kinds.recovery",
    IdKind.DEPLOYMENT: "muster.cli.kinds.deployment",
    IdKind.ROUTE: "muster.cli.kinds.route",
    IdKind.AGENT: "muster.cli.kinds.agent",
    IdKind.POOL: "muster.cli.kinds.pool",
    IdKind.SLICE: "muster.cli.kinds.slice",
    IdKind.INCIDENT: "muster.cli.kinds.incident",
}
"""The modules of the kinds by the prefix of their ids, in the order of offers and listings. The
``KIND`` of a module is its declaration; the module is imported when that is asked for."""


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
    found: list[WorkKind[Any, Any]] = [import_module(each).KIND for each in WORK.values()]
    return found


def _of_module(name: str) -> "Kind[Any, Any]":
    kind: Kind[Any, Any] = import_module(name).KIND
    return kind
