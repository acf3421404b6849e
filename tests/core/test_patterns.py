"""No pattern of the package takes more than linear time, whatever it is given (ReDoS)."""

import ast
import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from pathlib import Path
from re import _parser  # type: ignore[attr-defined] # the parse tree of a pattern
from typing import Any

import pydantic
import pytest

import muster

LONGEST = 1 << 16
LIMIT_S = 0.1
"""For the longest text: quadratic time would be a hundred times as long."""

SHORT = 256
"""Texts below it grow slowly: the time may be exponential in their length."""

BOUNDED_BY_TIME = frozenset({"muster.cli.follow.chosen_lines"})
"""Modules that search for a pattern of the caller's own, and end a search that takes too long."""
_SEARCHES = frozenset({"search", "sub", "subn", "split", "findall", "finditer"})
"""Uses that try a pattern at each place of a text; the others try it at the first."""
_USES = _SEARCHES | {"compile", "match", "fullmatch"}
_GENERATED = ("muster.store.migrations.", "muster.wire.agent_pb2")


def modules() -> Iterator[Any]:
    for found in pkgutil.walk_packages(muster.__path__, "muster."):
        if not found.name.startswith(_GENERATED):
            yield importlib.import_module(found.name)


def calls(module: Any) -> Iterator[tuple[ast.Call, str, str]]:
    """Calls of methods of a name: the call, the name and the method."""
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(name), attr=method)):
                yield node, name, method


def in_models(schema: Any) -> Iterator[str]:
    """Patterns in a core schema of pydantic, and in those that it consists of."""
    if isinstance(schema, dict):
        assert schema.get("regex_engine") != "python-re", "the other engine is linear by itself"
        if schema.get("type") == "str" and "pattern" in schema:
            yield schema["pattern"]
    if isinstance(schema, dict | list | tuple):
        for part in schema.values() if isinstance(schema, dict) else schema:
            yield from in_models(part)


def as_text(pattern: str | bytes) -> str:
    """A pattern, as if it were of text where it is of bytes."""
    return pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern


def all_patterns() -> dict[str, tuple[str, bool]]:
    """Every pattern, with a place where it stands, and whether it is searched for.

    Those that stand in calls of ``re`` must be known from their module's names.
    """
    found: dict[str, tuple[str, bool]] = {}
    every = list(modules())
    searched = {
        name for module in every for _, name, method in calls(module) if method in _SEARCHES
    }
    for module in every:
        if module.__name__ in BOUNDED_BY_TIME:
            continue
        compiled: set[str] = set()
        for name, value in vars(module).items():
            for each in value.values() if isinstance(value, dict) else [value]:
                if isinstance(each, re.Pattern):
                    pattern = as_text(each.pattern)
                    compiled.add(pattern)
                    found[pattern] = f"{module.__name__}.{name}", name in searched
            if isinstance(value, type) and issubclass(value, pydantic.BaseModel):
                for pattern in in_models(getattr(value, "__pydantic_core_schema__", None)):
                    found.setdefault(pattern, (f"{module.__name__}.{name}", False))
        for call, name, method in calls(module):
            if name == "re" and method in _USES:
                try:
                    pattern = as_text(eval(ast.unparse(call.args[0]), vars(module)))
                except NameError:  # of a mapping made at once
                    assert compiled, f"{module.__name__}:{call.lineno} has a pattern of its own"
                    continue
                if pattern not in compiled:
                    found[pattern] = f"{module.__name__}:{call.lineno}", method in _SEARCHES
    return found


CATEGORIES = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " "}
CHARACTERS = ("LITERAL", "NOT_LITERAL", "ANY", "IN", "CATEGORY", "RANGE")


def kind(node: Any) -> str:
    return str(node[0])


def one_of(node: Any) -> str:
    """Characters that a node of one character matches: one for each part of its class."""
    match kind(node), node[1]:
        case "LITERAL", code:
            return chr(code)
        case "RANGE", (low, _):
            return chr(low)
        case "CATEGORY", category:
            return CATEGORIES.get(str(category), "a")
        case "IN", parts:
            return "".join(one_of(part) for part in parts if kind(part) != "NEGATE")
    return "a"


def inner(node: Any) -> str:
    """A short text for a node that holds others."""
    match kind(node), node[1]:
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT", (least, _, tree):
            return text_of(tree) * min(max(int(least), 1), 4)
        case "SUBPATTERN", (*_, tree):
            return text_of(tree)
        case "BRANCH", (_, branches):
            return text_of(branches[0])
    return ""


def text_of(tree: Any) -> str:
    return "".join(one_of(node)[:1] if kind(node) in CHARACTERS else inner(node) for node in tree)


def attacks(tree: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Texts for each repetition in a parse tree: a beginning, and a part that comes many times."""
    for node in tree:
        match kind(node), node[1]:
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT", (_, _, body):
                yield before, text_of(body)
                for part in body:
                    if kind(part) in CHARACTERS:
                        yield from ((before, character) for character in one_of(part))
                yield from attacks(body, before)
            case "SUBPATTERN", (*_, body):
                yield from attacks(body, before)
            case "BRANCH", (_, branches):
                for branch in branches:
                    yield from attacks(branch, before)
        before += text_of([node])


def slowest_s(pattern: str, *, searched: bool = True) -> tuple[float, str]:
    """The longest that ``pattern`` takes for a text, and the text's form; texts grow until then."""
    compiled = re.compile(pattern)
    worst = (0.0, "")
    tree = _parser.parse(pattern)
    for before, pump in {*attacks(tree), *(("", each) for each in " 1a.")}:
        if not pump:
            continue
        size = 8
        while size <= LONGEST:
            text = before + pump * size + "\x01"
            took_s = _timed(compiled, text, searched=searched)
            if LIMIT_S < took_s < 5 * LIMIT_S:  # once may be the machine's doing
                took_s = min(took_s, _timed(compiled, text, searched=searched))
            worst = max(worst, (took_s, f"{before!r} + {pump!r} * {size}"))
            if took_s > LIMIT_S:
                return worst
            size += max(1, size // 8) if size < SHORT else size // 2
    return worst


def _timed(pattern: re.Pattern[str], text: str, *, searched: bool) -> float:
    began_s = time.thread_time()
    pattern.fullmatch(text)
    pattern.match(text)
    if searched:
        pattern.search(text)
    return time.thread_time() - began_s


def test_no_pattern_of_the_package_takes_more_than_linear_time() -> None:
    patterns = all_patterns()
    assert sum(where.startswith("muster.core.") for where, _ in patterns.values()) > 5
    slow = {
        where: f"{pattern!r}: {took_s:.2f} s for {form}"
        for pattern, (where, searched) in patterns.items()
        for took_s, form in [slowest_s(pattern, searched=searched)]
        if took_s > LIMIT_S
    }
    assert not slow


@pytest.mark.parametrize(
    "pattern",
    [r"\s*(?:\d+)\s*(?:[A-Za-z]*)\s*", r"(?:a+)+", r"\s*([a-z]+)\s*=\s*(.+?)\s*", r"(?:a|a)*b"],
)
def test_slow_pattern_is_found_to_be_slow(pattern: str) -> None:
    assert slowest_s(pattern)[0] > LIMIT_S
