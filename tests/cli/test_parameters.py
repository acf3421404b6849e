"""Annotated functions as commands: a toy one, and what it receives."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import click
import pytest
from click.testing import CliRunner

from muster.cli.parameters import Argument, Option, command_of


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def doubled(value: int | None) -> int | None:
    return None if value is None else value * 2


def received(*words: str) -> dict[str, Any]:
    """The arguments with which a function with one parameter of each kind is called."""
    calls: list[dict[str, Any]] = []

    def toy(
        ctx: click.Context,
        first: Annotated[str, Argument(metavar="FIRST")],
        rest: Annotated[list[str] | None, Argument(metavar="REST...")] = None,
        flag: Annotated[bool, Option("--flag", "-f")] = False,
        number: Annotated[int, Option("--number", min=1, max=9)] = 3,
        fraction: Annotated[float | None, Option("--fraction", min=0)] = None,
        twice: Annotated[int | None, Option("--twice", callback=doubled)] = None,
        place: Annotated[Path | None, Option("--place")] = None,
        colour: Annotated[Colour, Option("--colour")] = Colour.RED,
        names: Annotated[list[str] | None, Option("--name")] = None,
        set_: Annotated[str | None, Option("--set", envvar="TOY_SET")] = None,
    ) -> None:
        """A toy."""
        calls.append({name: value for name, value in locals().items() if name != "calls"})

    result = CliRunner(env={"TOY_SET": "environment"}).invoke(command_of(toy), list(words))
    assert result.exit_code == 0, result.output
    (call,) = calls
    assert isinstance(call.pop("ctx"), click.Context)
    return call


def test_what_is_not_given_is_the_default_of_the_function() -> None:
    assert received("x") == {
        "first": "x",
        "rest": None,
        "flag": False,
        "number": 3,
        "fraction": None,
        "twice": None,
        "place": None,
        "colour": Colour.RED,
        "names": None,
        "set_": "environment",
    }


def test_what_is_given_arrives_in_the_type_of_the_annotation() -> None:
    words = "x y z -f --number 9 --fraction 0.5 --twice 4 --place /tmp --colour blue"
    assert received(*words.split(), "--name", "a", "--name", "b", "--set", "line") == {
        "first": "x",
        "rest": ["y", "z"],
        "flag": True,
        "number": 9,
        "fraction": 0.5,
        "twice": 8,
        "place": Path("/tmp"),
        "colour": Colour.BLUE,
        "names": ["a", "b"],
        "set_": "line",
    }


@dataclass(frozen=True)
class Size:
    width: Annotated[int, Option("--width", min=1)] = 1
    heights: Annotated[list[int] | None, Option("--height")] = None


def test_options_of_a_dataclass_arrive_together() -> None:
    received: list[tuple[Size, str]] = []

    def toy(size: Size, name: Annotated[str, Option("--name")] = "x") -> None:
        received.append((size, name))

    for words in ([], ["--height", "3", "--width", "2", "--name", "y"]):
        result = CliRunner().invoke(command_of(toy), words)
        assert result.exit_code == 0, result.output
    assert received == [(Size(), "x"), (Size(2, [3]), "y")]


def test_parameter_without_a_description_is_a_mistake_of_the_program() -> None:
    def toy(first: str) -> None: ...

    with pytest.raises(TypeError, match="parameter first has no Option or Argument"):
        command_of(toy)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--number", "many"), "expected a whole number from 1 to 9, not 'many'"),
        (("--number", "10"), "expected a whole number from 1 to 9, not '10'"),
        (("--fraction", "abc"), "expected a number of at least 0, not 'abc'"),
        (("--fraction", "nan"), "expected a number of at least 0, not 'nan'"),
        (("--twice", "1.5"), "expected a whole number, not '1.5'"),
    ],
)
def test_number_that_is_none_is_answered_with_those_that_are(
    words: tuple[str, ...], said: str
) -> None:
    def toy(
        number: Annotated[int, Option("--number", min=1, max=9)] = 3,
        fraction: Annotated[float | None, Option("--fraction", min=0)] = None,
        twice: Annotated[int | None, Option("--twice")] = None,
    ) -> None:
        raise AssertionError("not called")

    result = CliRunner().invoke(command_of(toy), [*words])
    assert result.exit_code == 2
    assert said in result.output
