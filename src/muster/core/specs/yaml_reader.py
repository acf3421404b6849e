"""YAML and JSON, read with limits.

YAML is parsed by libyaml where PyYAML has it, event by event, so that parsing stops where a
document becomes too deep or too long: a parser without such a bound takes time quadratic in the
depth.
"""

from typing import TYPE_CHECKING, Any

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from muster.core.errors import InvalidSpec, Problem
from muster.core.specs.shape import MAX_DEPTH, MAX_VALUES
from muster.core.text import MAX_NAME

if TYPE_CHECKING or not yaml.__with_libyaml__:
    from yaml.parser import Parser
    from yaml.reader import Reader
    from yaml.scanner import Scanner

    class _Events(Reader, Scanner, Parser):
        def __init__(self, text: str) -> None:
            Reader.__init__(self, text)
            Scanner.__init__(self)
            Parser.__init__(self)

else:
    from yaml.cyaml import CParser as _Events

MAX_EVENTS = 4 * MAX_VALUES

_TEXT_TAG = "tag:yaml.org,2002:str"
_NO_TAGS = (None, "!", _TEXT_TAG)


def read(text: str, *, aliases: bool) -> list[Any]:
    """The documents of a text, whatever they are.

    Raises:
        InvalidSpec: not readable, too deep, a key that stands twice, a tag, or an alias where none
            is allowed.
    """
    try:
        loader = _Loader(text, aliases=aliases)
        documents: list[Any] = []
        while loader.check_node():
            documents.append(loader.construct_document(loader.get_node()))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        where = getattr(error, "problem_mark", None)
        last = text.rstrip().count("\n")  # the end of the file is a line of its own for libyaml
        line = f"line {min(where.line, last) + 1}" if where else "spec"
        problem = getattr(error, "problem", None) or str(error)
        raise InvalidSpec([Problem(line, "", f"not readable as YAML or JSON: {problem}")]) from None
    return documents


class _Loader(Composer, _Events, SafeConstructor, Resolver):
    """Refuses a key that stands twice in a mapping, of which YAML would take the last; tags, whose
    constructors take any time they like; and, unless ``aliases``, aliases, because a few aliases of
    aliases expand without limit."""

    def __init__(self, text: str, *, aliases: bool) -> None:
        _Events.__init__(self, text)
        Composer.__init__(self)
        SafeConstructor.__init__(self)
        Resolver.__init__(self)
        self._aliases = aliases
        self._events = 0
        self._depth = 0

    def get_event(self) -> yaml.Event:
        event: yaml.Event = super().get_event()  # type: ignore[no-untyped-call] # a stub's lack
        self._events += 1
        if self._events > MAX_EVENTS:
            raise _at(event, f"expected at most {MAX_VALUES} values in all")
        match event:
            case yaml.CollectionStartEvent():
                self._depth += 1
                if self._depth > MAX_DEPTH:
                    raise _at(event, f"expected at most {MAX_DEPTH} levels")
            case yaml.CollectionEndEvent():
                self._depth -= 1
            case yaml.AliasEvent() if not self._aliases:
                raise _at(event, "expected YAML without aliases (*name)")
        if isinstance(event, yaml.NodeEvent) and getattr(event, "tag", None) not in _NO_TAGS:
            raise _at(event, "expected YAML without tags (!name)")
        return event

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        # Numbers and moments are short; a long scalar is text, whatever it looks like.
        if kind is yaml.ScalarNode and len(value) > MAX_NAME:
            return _TEXT_TAG
        tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        return tag

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        first: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if (name := (key.tag, key.value)) in first:
                    shown = "…" if "://" in key.value else key.value  # a URL may hold a token
                    twice = f"the key {shown} stands here again, after line {first[name]}"
                    raise InvalidSpec([Problem(f"line {line}", "", twice)])
                first[name] = line
        return node


def _at(event: yaml.Event, expected: str) -> InvalidSpec:
    line = f"line {event.start_mark.line + 1}" if event.start_mark else "spec"
    return InvalidSpec([Problem(line, "", expected)])
