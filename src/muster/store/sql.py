"""Conditions that more than one query needs."""

from collections.abc import Collection

from sqlalchemy import Column, ColumnElement, bindparam


def one_of(column: Column[str], values: Collection[str]) -> ColumnElement[bool]:
    """``column IN (…)`` with the values in the text: only so does SQLite see that a partial index
    holds the answer."""
    return column.in_(bindparam(None, sorted(values), expanding=True, literal_execute=True))
