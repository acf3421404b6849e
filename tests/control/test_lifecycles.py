"""Records whose entity has a lifecycle move by that alone (design: One way to change a status)."""

import ast
from collections.abc import Iterator
from pathlib import Path

from muster import control
from muster.control.engine.lifecycle import Lifecycle
from muster.control.modules import cluster_entities

_MOVERS = {"work.move", "work.transition", "unit.move", "unit.transition"}


def statuses_of_lifecycles() -> set[str]:
    """The names of the enumerations of statuses of entities with a lifecycle."""
    entities = cluster_entities()
    own = (kind for kind in Lifecycle.__subclasses__() if kind.__module__.startswith("muster."))
    return {type(entities[kind.entity].states.initial).__name__ for kind in own}


def calls(source: Path) -> Iterator[ast.Call]:
    """The calls in a module that change a status beside a lifecycle."""
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called = ast.unparse(node.func)
            if any(called == mover or called.endswith(f".{mover}") for mover in _MOVERS):
                yield node


def test_status_of_an_entity_with_a_lifecycle_is_changed_by_nobody_else() -> None:
    statuses = statuses_of_lifecycles()
    assert {"AgentStatus", "SessionStatus", "JobState", "NoticeStatus"} <= statuses
    beside = [
        f"{source.name}:{call.lineno}"
        for path in control.__path__
        for source in Path(path).rglob("*.py")
        for call in calls(source)
        for argument in ast.walk(call)
        if isinstance(argument, ast.Name) and argument.id in statuses
    ]
    assert not beside
