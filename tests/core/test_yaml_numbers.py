"""Unquoted values of YAML mean what their writer sees there, or are refused."""

import pytest

from muster.core.errors import InvalidSpec
from muster.core.specs import JobSpec, PoolSpec, load_spec


def job(text: str) -> JobSpec:
    spec = load_spec(text)
    assert isinstance(spec, JobSpec)
    return spec


def problems(text: str) -> list[tuple[str, str]]:
    """The places and the values of all problems."""
    with pytest.raises(InvalidSpec) as refused:
        load_spec(text)
    return [(each.field, each.value) for each in refused.value.problems]


def told(text: str) -> str:
    with pytest.raises(InvalidSpec) as refused:
        load_spec(text)
    return str(refused.value)


def test_number_that_is_printed_as_it_is_written_is_text() -> None:
    spec = job("command: [sleep, 0.5, -3, 10, 1.0]\nenv: {A: 4, B: 08}")
    assert spec.command == ["sleep", "0.5", "-3", "10", "1.0"]
    assert spec.env == {"A": "4", "B": "08"}


@pytest.mark.parametrize("number", ["3.10", ".5", "+5", "0x1F", "1_000", "-0", "1.0e+3", "0b11"])
def test_number_that_would_be_printed_otherwise_is_no_text(number: str) -> None:
    assert problems(f"command: [echo, {number}]") == [("command.1", number)]
    assert problems(f"command: x\nenv: {{A: {number}}}") == [("env.A", number)]
    assert f'quote it, as "{number}"' in told(f"command: {number}")
    assert problems(f'{{"command": ["echo"], "workdir": {number}}}') == [("workdir", number)]
    assert job(f"command: [echo, '{number}']").command == ["echo", number]


@pytest.mark.parametrize("number", ["0755", "00123", "-010", "12:30", "1:02:03", "00:04.0"])
@pytest.mark.parametrize(
    "field",
    ["env: {{A: {}}}", "resources: {{cpu: {}}}", "timeout: {}", "tasks: {}", "not_before: {}"],
)
def test_number_in_eights_or_sixties_is_refused_wherever_it_stands(field: str, number: str) -> None:
    text = f"command: x\n{field.format(number)}"
    assert problems(text) == [("line 2", number)]
    assert "in quotes" in told(text)


def test_all_such_numbers_are_told_at_once() -> None:
    found = problems("command: [echo, 0755]\ntimeout: 12:00\nenv:\n  A: 010")
    assert found == [("line 1", "0755"), ("line 2", "12:00"), ("line 4", "010")]


def test_any_way_of_writing_a_number_is_a_number_where_one_is_meant() -> None:
    spec = job("{command: x, tasks: 1_0, timeout: 1.50, resources: {cpu: 0.50}, priority: 0x10}")
    assert (spec.tasks, spec.timeout, spec.priority) == (10, 1.5, 16)
    assert (type(spec.tasks), type(spec.timeout)) == (int, float)
    assert spec.resources.cpu == 500


def test_settings_of_any_form_are_stored_as_numbers() -> None:
    machine = "machine: {cpu: 1, memory: 1GiB}"
    text = f"{{kind: pool, name: p, provider: x, max_slices: 1, {machine}, settings: {{a: 3.10}}}}"
    spec = load_spec(text)
    assert isinstance(spec, PoolSpec)
    assert '"settings":{"a":3.1}' in spec.model_dump_json()


@pytest.mark.parametrize("value", ["yes", "off", "true", "", "~", "null", "2027-01-31"])
def test_words_that_yaml_takes_for_no_text_are_refused_as_text(value: str) -> None:
    assert [field for field, _ in problems(f"command: x\nenv: {{A: {value}}}")] == ["env.A"]


def test_signs_that_yaml_knows_as_keys_are_text() -> None:
    assert job("command: [test, a, =, b]").command == ["test", "a", "=", "b"]
    assert job("command: [cat, <<, x]").command == ["cat", "<<", "x"]


def test_day_that_does_not_exist_is_told_with_its_line() -> None:
    assert problems("command: x\nenv: {A: 2027-02-30}") == [("line 2", "2027-02-30")]
