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

_USES = frozenset({"compile", "match", "fullmatch", "search", "sub", "findall", "finditer"})
_GENERATED = ("muster.store.migrations.", "muster.wire.agent_pb2")


def modules() -> Iterator[Any]:
    for found in pkgutil.walk_packages(muster.__path__, "muster."):
        if not found.name.startswith(_GENERATED):
            yield importlib.import_module(found.name)


def in_source(module: Any) -> Iterator[tuple[str, str]]:
    """Patterns that stand in calls of ``re``; each must be known from the module's names.

    Those of a mapping made at once are found as its values.
    """
    tree = ast.parse(Path(module.__file__).read_text())
    mapped = {
        each for node in ast.walk(tree) if isinstance(node, ast.DictComp) for each in ast.walk(node)
    }
    for call in ast.walk(tree):
        match call:
            case ast.Call(
                func=ast.Attribute(value=ast.Name("re"), attr=name), args=[pattern, *_]
            ) if name in _USES and call not in mapped:
                where = f"{module.__name__}:{call.lineno}"
                yield where, eval(ast.unparse(pattern), vars(module))


def in_models(schema: Any) -> Iterator[str]:
    """Patterns in a core schema of pydantic, and in those that it consists of."""
    if isinstance(schema, dict):
        assert schema.get("regex_engine") != "python-re", "the other engine is linear by itself"
        if schema.get("type") == "str" and "pattern" in schema:
            yield schema["pattern"]
    if isinstance(schema, dict | list | tuple):
        for part in schema.values() if isinstance(schema, dict) else schema:
            yield from in_models(part)


def all_patterns() -> dict[str, str]:
    """Every pattern, by where it stands."""
    found: dict[str, str] = {}
    for module in modules():
        found |= dict(in_source(module))
        for name, value in vars(module).items():
            if isinstance(value, re.Pattern):
                found.setdefault(f"{module.__name__}.{name}", value.pattern)
            elif isinstance(value, dict):
                for key, each in value.items():
                    if isinstance(each, re.Pattern):
                        found[f"{module.__name__}.{name}[{key}]"] = each.pattern
            elif isinstance(value, type) and issubclass(value, pydantic.BaseModel):
                for pattern in in_models(getattr(value, "__pydantic_core_schema__", None)):
                    found[f"{module.__name__}.{name}: {pattern}"] = pattern
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
    """What each repetition in a parse tree may be fed: a beginning, and what comes many times."""
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


def slowest_s(pattern: str) -> tuple[float, str]:
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
            took_s = _timed(compiled, text)
            if took_s > LIMIT_S:  # once may be the machine's doing
                took_s = min(took_s, _timed(compiled, text))
            worst = max(worst, (took_s, f"{before!r} + {pump!r} * {size}"))
            if took_s > LIMIT_S:
                return worst
            size = size * 5 // 4  # slowly: it may be exponential
    return worst


def _timed(pattern: re.Pattern[str], text: str) -> float:
    began_s = time.perf_counter()
    pattern.fullmatch(text)
    pattern.match(text)
    pattern.search(text)
    return time.perf_counter() - began_s


def test_no_pattern_of_the_package_takes_more_than_linear_time() -> None:
    patterns = all_patterns()
    assert sum(where.startswith("muster.core.specs") for where in patterns) > 5, "they are found"
    slow = {
        where: f"{pattern!r} took {took_s:.2f} s for {form}"
        for where, pattern in patterns.items()
        for took_s, form in [slowest_s(pattern)]
        if took_s > LIMIT_S
    }
    assert not slow


@pytest.mark.parametrize(
    "pattern",
    [r"\s*(?:\d+)\s*(?:[A-Za-z]*)\s*", r"(?:a+)+", r"\s*([a-z]+)\s*=\s*(.+?)\s*", r"(?:a|a)*b"],
)
def test_slow_pattern_is_found_to_be_slow(pattern: str) -> None:
    assert slowest_s(pattern)[0] > LIMIT_S
