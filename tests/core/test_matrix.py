"""Parameters of tasks: which values each task has, which tasks run, and what is refused."""

from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from muster.core.errors import InvalidSpec
from muster.core.specs import JobSpec, load_spec
from muster.core.specs.matrix import Matrix, filled, variables

POINTS = list[dict[str, str]]


@st.composite
def matrices(draw: st.DrawFn) -> tuple[Matrix, POINTS, set[int]]:
    """A matrix, and found in a plain way: its points by index, and which of them are excluded."""
    names = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True))
    grid = {name: [f"{name}{n}" for n in range(draw(st.integers(1, 4)))] for name in names}
    points: POINTS = [dict(zip(grid, each, strict=True)) for each in product(*grid.values())]
    rules: POINTS = []
    for _ in range(draw(st.integers(0, 2))):
        chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
        rules.append({name: draw(st.sampled_from(grid[name])) for name in chosen})
    gone = {n for n, point in enumerate(points) for rule in rules if rule.items() <= point.items()}
    extra = [dict.fromkeys(names, "x")] if draw(st.booleans()) else []
    points += extra
    if len(gone) == len(points):
        rules, gone = [], set()
    return Matrix.model_validate({**grid, "exclude": rules, "include": extra}), points, gone


@settings(max_examples=200)
@given(matrices())
def test_task_has_the_values_of_its_place_in_the_grid(
    found: tuple[Matrix, POINTS, set[int]],
) -> None:
    matrix, points, gone = found
    assert [dict(matrix.point(index)) for index in range(matrix.size)] == points
    runs = matrix.run(None)
    indexes = range(matrix.size) if runs is None else [runs[n] for n in range(len(runs))]
    assert set(indexes) == set(range(len(points))) - gone
    for where in points[:5]:
        some = dict(list(where.items())[:2])
        expected = [n for n, point in enumerate(points) if some.items() <= point.items()]
        assert list(matrix.matching(some)) == expected
    varying = {name for name in matrix.names if len({point[name] for point in points}) > 1}
    assert matrix.common([]) == {}
    for pair in combinations(range(len(points)), 2):
        shared = set.intersection(*(set(points[index].items()) for index in pair))
        assert matrix.common(pair) == {name: value for name, value in shared if name in varying}


@given(matrices())
def test_stored_matrix_is_the_same(found: tuple[Matrix, POINTS, set[int]]) -> None:
    spec = JobSpec(command=["x"], matrix=found[0])
    again = JobSpec.stored(spec.model_dump_json(exclude_defaults=True))
    assert again == spec
    assert again.tasks == found[0].size


def test_values_are_told_as_they_were_written() -> None:
    spec = load_spec("command: [x]\nmatrix: {lr: [0.10, 1e-3, .5, true, '007']}")
    assert isinstance(spec, JobSpec)
    values = [spec.point(index)["lr"] for index in range(spec.tasks)]
    assert values == ["0.10", "1e-3", ".5", "true", "007"]


def test_ten_million_tasks_cost_two_ranges() -> None:
    spec = load_spec("command: [x, '{a}']\nmatrix: {a: 0-999999, b: 0-9}")
    assert isinstance(spec, JobSpec)
    assert (spec.tasks, spec.only) == (10_000_000, None)
    assert spec.point(9_999_999) == {"a": "999999", "b": "9"}
    assert len(spec.model_dump_json(exclude_defaults=True)) < 200
    assert next(iter(spec.matrix.matching({"b": "7"}))) == 7 if spec.matrix else False


def test_only_is_a_choice_of_what_is_not_excluded() -> None:
    spec = load_spec("command: [x]\nmatrix: {a: 0-9, exclude: [{a: 3}]}\nonly: 2-5")
    assert isinstance(spec, JobSpec)
    assert (str(spec.only), spec.tasks_to_run) == ("2,4-5", 3)


def test_names_in_braces_are_replaced_and_other_braces_stay() -> None:
    point = {"lr": "0.1", "seed": "3"}
    assert filled("--lr={lr} ${HOME} {print} {{seed}} {lr}", point) == (
        "--lr=0.1 ${HOME} {print} {3} 0.1"
    )
    assert variables(point) == {"MUSTER_PARAM_LR": "0.1", "MUSTER_PARAM_SEED": "3"}


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("matrix: {lr: []}", "lr: expected 1 to 100000 values"),
        ("matrix: {lr: [1, 1]}", "expected each value once, not '1' again"),
        ("matrix: {lr: [1, null]}", "lr: expected text, a number, or true or false"),
        ("matrix: {lr: [[1]]}", "lr: expected text, a number, or true or false"),
        ("matrix: {lr: 3}", "lr: expected a list of values"),
        ("matrix: {x y: [1]}", "not 'x y'"),
        ("matrix: {lr: [1], LR: [2]}", "differ in more than capitals"),
        ("matrix: {a: 0-9999999, b: 0-9999}", "at most 10,000,000 tasks"),
        ("matrix: {lr: [1], exclude: [{lr: 1}]}", "leave something to run"),
        ("matrix: {lr: [1], exclude: [{l: 1}]}", "exclude.0.l: no such parameter; known are lr"),
        ("matrix: {lr: [1], exclude: [{lr: 2}]}", "'2' is none of its values"),
        ("matrix: {lr: [1, 2], include: [{x: 3}]}", "include.0: expected lr, each once"),
        ("matrix: [{a: 1}, {b: 2}]", "include.1: expected a, each once"),
        ("matrix: []", "expected parameters with values"),
        ("matrix: 7", "expected parameters with values"),
        ("matrix: {a: 0-999999, b: 0-9, exclude: [{b: 3}]}", "write the parameters"),
        ("matrix: {lr: [1, 2]}\ntasks: 4", "the matrix makes 2 tasks: leave it out"),
        ("matrix: {lr: [1, 2]}\nonly: 2", "expected indexes below tasks"),
        ("matrix: {lr: [1, 2], exclude: [{lr: 2}]}\nonly: 1", "does not exclude"),
        ("matrix: {lr: [1, 2]}\ncoscheduled: true", "leave out coscheduled"),
        ("matrix: {rate: [1, 2]}\nenv: {X: '{raet}'}", "did you mean {rate}?"),
        ("max_running: 0", "expected at least 1"),
        ("max_running: 2\ncoscheduled: true\ntasks: 2", "a gang runs whole"),
    ],
)
def test_wrong_matrix_is_refused_with_what_is_wrong(written: str, told: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        load_spec(f"command: [x]\n{written}")
    assert told in str(refused.value)


def test_range_of_a_matrix_is_bounded_like_the_tasks() -> None:
    with pytest.raises(ValidationError):
        Matrix.model_validate({"a": "0-99999999"})
