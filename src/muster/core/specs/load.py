"""From a person's text to a spec, or to a list of what is wrong with it."""

import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from muster.core.errors import InvalidSpec, Problem
from muster.core.specs.amounts import Spec
from muster.core.specs.group import ScalingGroup
from muster.core.specs.job import JobSpec
from muster.core.specs.quota import QuotaSpec
from muster.core.specs.session import SessionSpec

MAX_SPEC_BYTES = 1024 * 1024

AnySpec = JobSpec | SessionSpec | ScalingGroup | QuotaSpec
KINDS: Mapping[str, type[AnySpec]] = {
    "job": JobSpec,
    "session": SessionSpec,
    "group": ScalingGroup,
    "quota": QuotaSpec,
}
S = TypeVar("S", bound=Spec)


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice in a mapping, of which YAML would take the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        first: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if (name := (key.tag, key.value)) in first:
                    twice = f"the key {key.value} stands here again, after line {first[name]}"
                    raise InvalidSpec([Problem(f"line {line}", "", twice)])
                first[name] = line
        return node


def load_spec(text: str) -> AnySpec:
    """A spec from YAML or JSON; its ``kind`` (job when absent) says which.

    Raises:
        InvalidSpec: not readable, too large, of an unknown kind, or wrong in some field.
    """
    return spec_of(load_keys(text))


def load_keys(text: str) -> dict[Any, Any]:
    """What stands in YAML or JSON, not looked at yet.

    Raises:
        InvalidSpec: as ``load_documents``; more than one.
    """
    documents = load_documents(text)
    if len(documents) > 1:
        raise InvalidSpec([Problem("spec", f"{len(documents)} documents", "expected one a file")])
    return documents[0]


def load_documents(text: str) -> list[dict[Any, Any]]:
    """The documents of YAML or JSON, parted by ``---``, not looked at yet; at least one.

    Raises:
        InvalidSpec: not readable, too large, a key that stands twice, or no keys at all.
    """
    if len(text.encode()) > MAX_SPEC_BYTES:
        raise InvalidSpec([Problem("spec", "", f"expected at most {MAX_SPEC_BYTES} bytes")])
    try:
        documents = list(yaml.load_all(text, _Loader)) or [None]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        where = getattr(error, "problem_mark", None)
        line = f"line {where.line + 1}" if where else "spec"
        problem = getattr(error, "problem", None) or str(error)
        raise InvalidSpec([Problem(line, "", f"not readable as YAML or JSON: {problem}")]) from None
    for data in documents:
        if not isinstance(data, dict):
            shown = "empty" if data is None else f"a {type(data).__name__}"
            expected = "expected keys and values, such as command: …"
            raise InvalidSpec([Problem("spec", shown, expected)])
    return documents


def spec_of(data: Mapping[Any, Any]) -> AnySpec:
    """The spec whose keys these are, of the ``kind`` that they say.

    Raises:
        InvalidSpec: of an unknown kind, or wrong in some field.
    """
    kind = data.get("kind", "job")
    if not isinstance(kind, str) or kind not in KINDS:
        near = _nearest(str(kind), KINDS)
        raise InvalidSpec(
            [Problem("kind", repr(kind), f"expected one of {', '.join(KINDS)}{near}")]
        )
    return parse_spec(KINDS[kind], data)


def parse_spec(model: type[S], data: Any) -> S:
    """``data`` as a spec of the given kind.

    Raises:
        InvalidSpec: with every problem found, not the first.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidSpec(
            [_problem(model, detail) for detail in error.errors(include_url=False)]
        ) from None


def _problem(model: type[BaseModel], detail: ErrorDetails) -> Problem:
    place = [part for part in detail["loc"] if part != "[key]"]
    field = ".".join(str(part) for part in place) or "spec"
    value = "" if isinstance(detail["input"], dict | list) else repr(detail["input"])[:80]
    match detail["type"]:
        case "extra_forbidden":
            known = _known_keys(model, place[:-1])
            near = _nearest(str(place[-1]), known)
            expected = f"unknown key{near or '; known are ' + ', '.join(sorted(known))}"
            return Problem(field, "", expected)
        case "missing":
            return Problem(field, "", "missing, and it has no default")
        case "string_pattern_mismatch":
            return Problem(
                field, value, "expected letters, digits, '.', '-' or '_', at most 63 of them"
            )
        case "list_type" | "string_type" if isinstance(detail["input"], bool | int | float):
            written = str(detail["input"]).lower()
            return Problem(field, written, f'expected text: quote it, as "{written}"')
        case _:
            message = detail["msg"].removeprefix("Value error, ")
            message = message.replace("Input should be", "expected")
            return Problem(field, value, message)


def _known_keys(model: type[BaseModel], path: list[int | str]) -> list[str]:
    """The keys of the model found by walking ``path`` from ``model``."""
    for part in path:
        if isinstance(part, int):
            continue
        annotation: Any = (
            model.model_fields[part].annotation if part in model.model_fields else None
        )
        nested = [annotation, *getattr(annotation, "__args__", ())]
        model = next(
            (kind for kind in nested if isinstance(kind, type) and issubclass(kind, BaseModel)),
            model,
        )
    return list(model.model_fields)


def _nearest(word: str, known: Mapping[str, object] | list[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
