"""Reading with statements that are used often, at the speed of SQLite's driver: what SQLAlchemy
puts around a statement that it knows takes several times as long as to run it.

Values come as the driver gives them: texts, numbers and None, which is how most columns are stored.
"""

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from sqlalchemy import BindParameter, CompoundSelect, Connection, Select, bindparam
from sqlalchemy.engine import Dialect

from muster.store.driver import each_of, rows_of

Query: TypeAlias = Select[Any] | CompoundSelect[Any]
_NONE: Mapping[str, Any] = {}


def given(name: str) -> BindParameter[Any]:
    """A parameter that has another value each time."""
    return bindparam(name, required=False)  # while the statement is compiled it has none


class Lookup:
    """The rows that one statement finds; it is compiled once.

    Args:
        statement: its parameters are those of ``given``.
    """

    def __init__(self, statement: Query) -> None:
        self._statement = statement
        names = [str(column.key) for column in statement.selected_columns]
        self._name = cast(Any, namedtuple("Found", names, rename=True))._make
        self._compiled: _Compiled | None = None  # for SQLite

    def rows(
        self, connection: Connection, values: Mapping[str, Any] = _NONE
    ) -> Sequence[Sequence[Any]]:
        """The rows for these values of the parameters."""
        if connection.dialect.name != "sqlite":
            return connection.execute(self._statement, values).all()
        compiled = self._for(connection)
        return rows_of(connection, compiled.sql, compiled.arranged(values))

    def each(
        self, connection: Connection, values: Mapping[str, Any] = _NONE
    ) -> Iterator[Sequence[Any]]:
        """``rows``, one by one; on a server they come in the batches that the connection's
        execution options say."""
        if connection.dialect.name != "sqlite":
            yield from connection.execute(self._statement, values)
        else:
            compiled = self._for(connection)
            yield from each_of(connection, compiled.sql, compiled.arranged(values))

    def named(self, connection: Connection, values: Mapping[str, Any] = _NONE) -> Iterator[Any]:
        """``each``, with the values by the names of their columns too."""
        return map(self._name, self.each(connection, values))

    def first(
        self, connection: Connection, values: Mapping[str, Any] = _NONE
    ) -> Sequence[Any] | None:
        """The first of ``rows``; None if there is none."""
        found = self.rows(connection, values)
        return found[0] if found else None

    def _for(self, connection: Connection) -> "_Compiled":
        if self._compiled is None:
            self._compiled = _Compiled(self._statement, connection.dialect)
        return self._compiled


class Selection:
    """The rows whose key is one of many.

    The statement is compiled once for each of a few list lengths; a list of another length is
    filled up by repeating one of its keys.

    Args:
        make: the statement for a list of parameters to compare the key with.
    """

    _LENGTHS = (1, 8, 64, 512)

    def __init__(self, make: Callable[[Sequence[BindParameter[str]]], Query]) -> None:
        self._make = make
        self._compiled: dict[tuple[str, int], _Compiled] = {}

    def rows(
        self, connection: Connection, keys: Sequence[str], values: Mapping[str, Any] = _NONE
    ) -> Iterator[Sequence[Any]]:
        """The rows for these keys, and for the values of other parameters."""
        dialect, longest = connection.dialect, self._LENGTHS[-1]
        for first in range(0, len(keys), longest):
            some = keys[first : first + longest]
            length = next(each for each in self._LENGTHS if each >= len(some))
            compiled = self._compiled.get((dialect.name, length))
            if compiled is None:
                statement = self._make([given(f"key_{n}") for n in range(length)])
                compiled = self._compiled[dialect.name, length] = _Compiled(statement, dialect)
            filled = [*some, *[some[0]] * (length - len(some))]
            named = {f"key_{n}": key for n, key in enumerate(filled)}
            parameters = compiled.arranged({**named, **values})
            if dialect.name == "sqlite":
                yield from rows_of(connection, compiled.sql, parameters)
            else:
                yield from connection.exec_driver_sql(compiled.sql, parameters)


class _Compiled:
    """A statement's text, and its parameters as the driver takes them."""

    def __init__(self, statement: Query, dialect: Dialect) -> None:
        compiled = statement.compile(dialect=dialect, compile_kwargs={"render_postcompile": True})
        self.sql = str(compiled)
        self._constant: Mapping[str, Any] = compiled.params
        self._order: Sequence[str] | None = getattr(compiled, "positiontup", None)

    def arranged(self, values: Mapping[str, Any]) -> Any:
        values = {**self._constant, **values}
        return values if self._order is None else tuple([values[name] for name in self._order])
