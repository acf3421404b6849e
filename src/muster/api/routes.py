"""The way from a request's path and method to its endpoint: a look-up by the words of the path."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from fastapi.routing import APIRoute

from muster.api.arguments import Arguments, arguments_of
from muster.core.errors import MusterError


class NoSuchPath(MusterError):
    """The API has no such path."""


class NoSuchMethod(MusterError):
    """The API has the path, but not for this method.

    Args:
        allowed: the methods for which it has the path.
    """

    def __init__(self, allowed: Collection[str]) -> None:
        super().__init__("this path has no such method")
        self.allowed = frozenset(allowed)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint.

    Args:
        arguments: of its function.
        names: of the parts of its path that vary, in their order.
    """

    arguments: Arguments
    names: tuple[str, ...]


@dataclass(slots=True)
class _Place:
    """A place in the tree of paths.

    Attributes:
        methods: the endpoints of the path that ends here, by method.
        words, any_word: the places after the next word of the path.
        rest: the endpoints of paths of which all that follows is one part.
    """

    methods: dict[str, Endpoint] = field(default_factory=dict)
    words: dict[str, "_Place"] = field(default_factory=dict)
    any_word: "_Place | None" = None
    rest: dict[str, Endpoint] = field(default_factory=dict)


class RouteTable:
    """The endpoints of an API. Where two paths fit, the one goes first that has a word where the
    other has a part that varies."""

    def __init__(self, routes: Iterable[APIRoute]) -> None:
        self._fixed: dict[tuple[str, str], Endpoint] = {}
        self._root = _Place()
        for route in routes:
            self._add(route)

    def _add(self, route: APIRoute) -> None:
        place, names, is_rest = self._root, [], False
        for word in route.path.split("/")[1:]:
            if not word.startswith("{"):
                place = place.words.setdefault(word, _Place())
                continue
            name, _, convertor = word[1:-1].partition(":")
            names.append(name)
            if convertor == "path":
                is_rest = True  # the last word
                break
            if place.any_word is None:
                place.any_word = _Place()
            place = place.any_word
        endpoint = Endpoint(arguments_of(route.endpoint, names), tuple(names))
        for method in route.methods or ():
            (place.rest if is_rest else place.methods).setdefault(method, endpoint)
            if not names:
                self._fixed.setdefault((method, route.path), endpoint)

    def find(self, method: str, path: str) -> tuple[Endpoint, dict[str, str]]:
        """The endpoint of a request, and the parts of its path that vary. HEAD is answered as GET
        is, and ``HttpExchange`` sends no body (RFC 9110, 9.3.2).

        Raises:
            NoSuchPath, NoSuchMethod: there is none.
        """
        if method == "HEAD":
            method = "GET"
        fixed = self._fixed.get((method, path))
        if fixed is not None:
            return fixed, {}
        first, *words = path.split("/")
        allowed: set[str] = set()
        for methods, parts in _fitting(self._root, words) if not first else ():
            if (endpoint := methods.get(method)) is not None:
                return endpoint, dict(zip(endpoint.names, parts, strict=True))
            allowed |= methods.keys()
        if not allowed:
            raise NoSuchPath
        raise NoSuchMethod(allowed | {"HEAD"} if "GET" in allowed else allowed)


def _fitting(
    place: _Place, words: Sequence[str], parts: tuple[str, ...] = ()
) -> Iterator[tuple[dict[str, Endpoint], tuple[str, ...]]]:
    """The endpoints of all paths that fit, with the parts that vary."""
    if not words:
        if place.methods:
            yield place.methods, parts
        return
    word, rest = words[0], words[1:]
    if (next_place := place.words.get(word)) is not None:
        yield from _fitting(next_place, rest, parts)
    if place.any_word is not None and word:
        yield from _fitting(place.any_word, rest, (*parts, word))
    if place.rest:
        yield place.rest, (*parts, "/".join(words))
