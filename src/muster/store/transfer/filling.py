"""Filling an empty database with all rows of a cluster.

Everything happens in the caller's transaction, or in a file that nobody else sees yet: a database
that was half filled is never taken for a whole one.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice

from sqlalchemy import Connection, Table, delete
from sqlalchemy.exc import DataError

from muster.core.errors import MusterError
from muster.store.batch import inserting
from muster.store.transfer.source import ROWS_AT_A_TIME, Source, Tally, lines_of, state_tables


class NotFilled(MusterError):
    """Not all rows are there as they were."""


def fill(connection: Connection, source: Source) -> int:
    """Write all rows of ``source`` into tables of the same migration, in place of rows that the
    migrations made there, and read them back; the answer is how many there are.

    Raises:
        NotFilled: there is no such table, it refuses a row, or has other rows afterwards.
    """
    empty = {table.name: table for table in state_tables(connection)}
    for each in empty.values():
        connection.execute(delete(each))
    total = 0
    for rows in source.tables():
        table = empty.get(rows.table)
        if table is None or not {*rows.columns} <= {*table.columns.keys()}:
            raise NotFilled(f"there is no table {rows.table} with the columns {rows.columns}")
        sent, arrived = Tally(), Tally()
        try:
            _insert(connection, table, rows.columns, sent.counted(rows.lines))
        except DataError as error:
            raise NotFilled(f"the database refuses rows of {rows.table}: {error.orig}") from error
        for _ in arrived.counted(lines_of(connection, table, rows.columns)):
            pass
        if arrived != sent:
            raise NotFilled(
                f"{rows.table}: {sent.rows} rows were sent, {arrived.rows} or others came"
            )
        total += sent.rows
    return total


def _insert(
    connection: Connection, table: Table, columns: Sequence[str], lines: Iterator[bytes]
) -> None:
    insert = inserting(table, columns)
    while some := list(islice(lines, ROWS_AT_A_TIME)):
        insert.execute(connection, [json.loads(line) for line in some])
