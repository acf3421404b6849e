"""The page that says where each sentence of the references is done: files, names and tests that it
names exist. Files are parsed, none is imported."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conformance.md"
_ROW = re.compile(r"^\| ([GTASX]\d+\.\d+) \|")


def _rows() -> list[list[str]]:
    """The cells of each row: number, sentence, where, test, note."""
    lines = filter(_ROW.match, PAGE.read_text().splitlines())
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@cache
def _names(path: Path) -> frozenset[str]:
    """The classes, functions and variables that a file defines."""
    return frozenset(_defined(ast.parse(path.read_text())))


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _wrong(cell: str, folder: Path, sign: str) -> Iterator[str]:
    """The files and names of a cell that do not exist."""
    for told in re.findall(r"`([^`]+)`", cell):
        path, _, name = told.partition(sign)
        file = folder / path
        if not file.exists():
            yield f"there is no {file.relative_to(ROOT)}"
        elif name and name not in _names(file):
            yield f"{file.relative_to(ROOT)} has no {name}"


@pytest.mark.parametrize(("column", "folder", "sign"), [(2, "src/muster", ":"), (3, "tests", "::")])
def test_each_row_names_what_exists(column: int, folder: str, sign: str) -> None:
    wrong = [
        f"{row[0]}: {each}" for row in _rows() for each in _wrong(row[column], ROOT / folder, sign)
    ]
    assert not wrong


def test_each_row_has_a_place_and_a_test_or_says_why_not() -> None:
    bare = [row[0] for row in _rows() if "–" in (row[2], row[3]) and not row[4]]
    assert not bare


def test_rows_are_numbered_without_a_gap() -> None:
    numbers = [row[0] for row in _rows()]
    assert len(numbers) == len(set(numbers))
    total = re.search(r"^\| all \| (\d+) \|$", PAGE.read_text(), re.MULTILINE)
    assert total is not None
    assert int(total[1]) == len(numbers)
    for before, after in pairwise(numbers):
        section, number = before.split(".")
        follows = after == f"{section}.{int(number) + 1}"
        assert follows or after.endswith(".1"), f"{after} follows {before}"
