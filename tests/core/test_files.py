"""Rules for all files of Python in this repository."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "proving", "tests", "benchmarks", "scripts", "demo")
GENERATED = {"agent_pb2.py", "agent_pb2_grpc.py"}
LONGEST = 450
"""Lines: a longer file does more than one thing."""
WITHOUT_NOUN = ("What", "Whatever", "Who", "Whoever", "Whom", "Whose", "Which", "Those", "Where")
"""First words of a docstring that leave its noun out."""


def files() -> dict[str, str]:
    """The texts of all files that are written by hand, by their paths."""
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for path in paths
        if path.name not in GENERATED
    }


def test_no_file_is_longer_than_a_reader_can_hold() -> None:
    lengths = {name: len(text.splitlines()) for name, text in files().items()}
    assert {path.split("/")[0] for path in lengths} == set(FOLDERS)
    assert {path: length for path, length in lengths.items() if length > LONGEST} == {}


def test_every_docstring_begins_with_its_noun() -> None:
    docstrings = [
        (f"{name}:{node.lineno}", node.value.value)
        for name, text in files().items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    assert len(docstrings) > 5_000
    first = {place: (said.split() or [""])[0].rstrip(",:") for place, said in docstrings}
    assert {place: word for place, word in first.items() if word in WITHOUT_NOUN} == {}
