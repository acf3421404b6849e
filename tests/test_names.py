"""Names that a reader can rely on."""

import ast
from collections import defaultdict
from pathlib import Path

import muster

PACKAGE = Path(muster.__file__).parent


def test_public_class_name_is_defined_once() -> None:
    places = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        if "_pb2" in path.name:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
