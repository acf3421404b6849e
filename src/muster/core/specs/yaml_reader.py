"""YAML and JSON, read with limits.

YAML is parsed by libyaml where PyYAML has it, event by event, so that parsing stops where a
document becomes too deep or too long: a parser without such a bound takes time quadratic in the
depth.
"""

import re
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from muster.core.errors import MAX_PROBLEMS, InvalidSpec, Problem
from muster.core.specs.shape import MAX_DEPTH, MAX_VALUES
from muster.core.specs.written_numbers import written_number
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

_OCTAL = re.compile(r"[-+]?0[0-7_]+")
_TAG = "tag:yaml.org,2002:"
_TEXT_TAG = f"{_TAG}str"
_NO_TAGS = (None, "!", _TEXT_TAG)


def read(text: str, *, aliases: bool) -> list[Any]:
    """The documents of a text, whatever they are.

    Raises:
        InvalidSpec: not readable, too deep, a key that stands twice, a tag, an alias where none is
            allowed, or a number that few people know for one.
    """
    try:
        loader = _Loader(text, aliases=aliases)
        documents: list[Any] = []
        while loader.check_node():
            documents.append(loader.construct_document(loader.get_node()))
        loader.check_scalars()
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
    aliases expand without limit.

    Numbers with a colon or a zero in front, which YAML counts in sixties and in eights, are refused
    wherever they stand (``check_scalars``): who writes 12:30 or 0755 means text, a time or another
    number. Of other numbers it is remembered how they were written (``written_number``)."""

    def __init__(self, text: str, *, aliases: bool) -> None:
        _Events.__init__(self, text)
        Composer.__init__(self)
        SafeConstructor.__init__(self)
        Resolver.__init__(self)
        self._aliases = aliases
        self._events = 0
        self._depth = 0
        self._wrong: list[tuple[int, Problem]] = []  # by their places in the text

    def check_scalars(self) -> None:
        """
        Raises:
            InvalidSpec: values of all documents that are not what they seem.
        """
        if self._wrong:
            in_order = [problem for _, problem in sorted(self._wrong, key=itemgetter(0))]
            raise InvalidSpec(in_order[:MAX_PROBLEMS], found=len(in_order))

    def whole_number(self, node: yaml.ScalarNode) -> float:
        number: int = self.construct_yaml_int(node)
        return self._number(node, number)

    def any_number(self, node: yaml.ScalarNode) -> float:
        number: float = self.construct_yaml_float(node)
        return self._number(node, number)

    def _number(self, node: yaml.ScalarNode, number: float) -> float:
        written = node.value
        if ":" in written:
            expected = (
                f"YAML reads this as the number {number}: write text and times of day in quotes, "
                f"and a duration with its units, as 12h30m"
            )
            self._note(node, expected)
        elif _OCTAL.fullmatch(written):
            expected = (
                f"YAML reads this as the number {number}: write text in quotes, and a number "
                f"without a zero in front"
            )
            self._note(node, expected)
        return written_number(number, written)

    def day_or_moment(self, node: yaml.ScalarNode) -> Any:
        try:
            return self.construct_yaml_timestamp(node)
        except ValueError as error:
            self._note(node, f"this is no date ({error}): write text in quotes")
            return node.value

    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        **SafeConstructor.yaml_constructors,
        f"{_TAG}int": whole_number,
        f"{_TAG}float": any_number,
        f"{_TAG}timestamp": day_or_moment,
        # "=" and "<<" mean something as keys only.
        f"{_TAG}value": SafeConstructor.construct_yaml_str,
        f"{_TAG}merge": SafeConstructor.construct_yaml_str,
    }

    def _note(self, node: yaml.ScalarNode, expected: str) -> None:
        line = f"line {node.start_mark.line + 1}"
        self._wrong.append((node.start_mark.index, Problem(line, node.value, expected)))

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
