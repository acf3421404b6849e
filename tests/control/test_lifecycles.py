"""Records whose entity has a lifecycle move by that alone (design: One way to change a status), and
the engine alone counts tries (design: Tries).

Each test of ``control`` watches all changes of statuses (``conftest.only_lifecycles_move``). So
that none can go unseen, the scenarios here reach every line that asks for one.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.control.conftest import MakeWorld
from tests.control.moves import Line, Moves, with_lifecycle
from tests.control.scenarios import MOVING, SCENARIOS, UNLESS, job

from muster import control
from muster.control import engine
from muster.control.engine.work import Move, Work
from muster.core.states import JobState, SessionStatus, TaskState
from muster.store.records import Agent, Job, Session

_TRIES = {"tries", "retry_at"}


def sources() -> Iterator[tuple[str, ast.Module]]:
    """The modules of ``control`` beside the engine, which is tested by itself."""
    (own,) = engine.__path__
    for path in control.__path__:
        for source in Path(path).rglob("*.py"):
            if not source.is_relative_to(own):
                yield str(source), ast.parse(source.read_text())


def movers() -> Iterator[tuple[str, ast.Call]]:
    """The calls that have a record move, whatever they call it and its status."""
    for file, tree in sources():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            of_a_group = ast.unparse(node.func.value).startswith("self.groups[")  # of its shares
            if node.func.attr in {"move", "move_one"} and not of_a_group:
                yield file, node


def test_each_line_that_has_a_record_move_is_observed(
    group_world: MakeWorld, only_lifecycles_move: Moves
) -> None:
    for scenario in {*SCENARIOS.values(), *UNLESS.values(), *MOVING}:
        scenario(group_world)
    assert not [
        f"{file}:{call.lineno}"
        for file, call in movers()
        if not only_lifecycles_move.lines & lines_of(file, call)
    ]


def lines_of(file: str, call: ast.Call) -> set[Line]:
    return {(file, line) for line in range(call.lineno, (call.end_lineno or call.lineno) + 1)}


def test_entities_with_a_lifecycle_are_watched() -> None:
    assert {Agent, Job, Session} <= with_lifecycle()


def test_change_beside_the_lifecycle_is_noticed_whatever_its_names_are(
    group_world: MakeWorld, only_lifecycles_move: Moves
) -> None:
    world = job(group_world({"a": 1}))
    session, (its_job,) = world.only_session(), world.plane.live.jobs.values()
    (task,) = its_job.tasks.values()
    work = Work(world.store.unit(world.clock.now(), world.cluster), world.ids)
    into, change = SessionStatus.TERMINATING, work.unit.move
    change(session, {session.status}, into, "Test")
    work.move(its_job, {its_job.status}, JobState.FAILED, Move("Test"))
    work.move(task, {task.status}, TaskState.KILLED, Move("Test"))  # it has no lifecycle
    noticed = [each.split(" at ")[0] for each in only_lifecycles_move.beside]
    only_lifecycles_move.beside.clear()
    assert noticed == ["Session to TERMINATING", "Job to FAILED"]


def test_tries_are_counted_by_the_engine_alone() -> None:
    """A record that is loaded is given them, which is no assignment to an attribute."""
    assert not [
        f"{file}:{node.lineno}"
        for file, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if node.attr in _TRIES
    ]


def test_types_are_open_in_one_place_of_the_engine() -> None:
    (own,) = engine.__path__
    assert {
        source.name
        for source in Path(own).rglob("*.py")
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Name | ast.Attribute)
        if ast.unparse(node).split(".")[-1] == "Any"
    } == {"declared.py"}
