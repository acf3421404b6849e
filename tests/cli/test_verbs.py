"""Declarations of verbs, and what follows from each: endpoint, methods, command; and its pages."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from muster.api.app import RESOURCES, routes_of
from muster.cli.commands import COMMANDS, load
from muster.client import AsyncClient, Client
from muster.core import verbs
from muster.core.packages import modules_of, objects_of
from muster.core.verbs import Verb

VERBS = objects_of(modules_of(verbs), Verb)
DOCS = Path(__file__).parents[2] / "docs"

each_verb = pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command with the words that are typed for it."""
    for word in COMMANDS:
        command = load(word)
        assert command is not None
        yield word, command
        if isinstance(command, click.Group):
            yield from ((f"{word} {part}", command.commands[part]) for part in command.commands)


def command_of(verb: Verb[object]) -> str:
    """The words of the one command with the word and the help of a verb."""
    (typed,) = [
        typed
        for typed, command in commands()
        if typed.split()[-1] == verb.word and command.help == verb.help
    ]
    return typed


def test_names_of_verbs_are_their_own() -> None:
    assert len(VERBS) >= 6
    assert len({verb.name for verb in VERBS}) == len(VERBS)


@each_verb
def test_verb_is_an_endpoint(verb: Verb[object]) -> None:
    (route,) = [each for each in routes_of(tuple(RESOURCES)) if each.name == verb.name]
    assert route.path.endswith(f"/{{ref}}/{verb.word}")
    assert route.methods == {"POST"}
    assert route.description == verb.does


@each_verb
def test_verb_is_a_method_of_both_clients(verb: Verb[object]) -> None:
    for client in (Client, AsyncClient):
        method = inspect.getattr_static(client, verb.name)
        assert method.__doc__.startswith(verb.does)


@each_verb
def test_verb_is_a_command_and_has_its_place_on_pages(verb: Verb[object]) -> None:
    group, _, word = command_of(verb).rpartition(" ")
    lines = [line for page in DOCS.glob("*.md") for line in page.read_text().splitlines()]
    told = rf"`muster {group} .*\b{word}\b" if group else rf"`muster {word}\b"
    assert any(re.search(told, line) for line in lines)
    assert f"`{verb.name}`" in (DOCS / "python.md").read_text()
