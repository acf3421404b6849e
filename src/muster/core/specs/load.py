"""Reads a spec from a person's text, or finds the problems in it."""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from importlib import import_module
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_core import ErrorDetails

from muster.core import specs
from muster.core.errors import MAX_PROBLEMS, InvalidSpec, Problem
from muster.core.owner import OWNER_NAME
from muster.core.packages import names_of
from muster.core.specs.amounts import Spec, parse_duration
from muster.core.specs.documents import load_keys
from muster.core.specs.shape import check_shape, is_secret, named
from muster.core.specs.written_numbers import written_as
from muster.core.text import ATTRIBUTE, ENV_NAME, NAME, duration

S = TypeVar("S", bound=Spec)


def model_of(kind: str) -> type[Spec] | None:
    """The spec that people write as a file of this ``kind``: the ``KIND`` of the module of the same
    name in ``core.specs``, if there is one."""
    if kind not in _kinds():
        return None
    model: type[Spec] | None = getattr(import_module(f"{specs.__name__}.{kind}"), "KIND", None)
    return model


def models() -> dict[str, type[Spec]]:
    """The specs that people write as files, by their ``kind``."""
    found = {kind: model_of(kind) for kind in _kinds()}
    return {kind: model for kind, model in found.items() if model is not None}


@cache
def _kinds() -> Sequence[str]:
    """The names of the modules of ``core.specs``, of which some are kinds."""
    return names_of(specs)


def kind_of(model: type[Spec]) -> str:
    """The ``kind`` of a spec that people write as a file."""
    return str(model.model_fields["kind"].default)


def load_spec(text: str, *, aliases: bool = True) -> Spec:
    """A spec from YAML or JSON, of the class that its ``kind`` names (job when absent).

    Args:
        aliases: see ``load_documents``.

    Raises:
        InvalidSpec: not readable, too large, of an unknown kind, or wrong in some field.
    """
    return spec_of(load_keys(text, aliases=aliases))


def spec_of(data: Mapping[Any, Any]) -> Spec:
    """The spec whose keys these are, of the class that their ``kind`` names.

    Raises:
        InvalidSpec: of an unknown kind, or wrong in some field.
    """
    kind = data.get("kind", "job")
    model = model_of(kind) if isinstance(kind, str) else None
    if model is None:
        kinds = models()
        expected = f"expected one of {', '.join(kinds)}{_nearest(str(kind), kinds)}"
        raise InvalidSpec([Problem("kind", repr(kind), expected)])
    return parse_spec(model, data)


def parse_spec(model: type[S], data: Any) -> S:
    """``data`` as a spec of the given kind.

    Raises:
        InvalidSpec: with every problem found, not the first, up to ``MAX_PROBLEMS``.
    """
    check_shape(data)
    try:
        spec = model.model_validate(data)
    except ValidationError as error:
        told = error.errors(include_url=False)[:MAX_PROBLEMS]
        raise InvalidSpec(
            [_problem(model, detail) for detail in told], found=error.error_count()
        ) from None
    if problems := list(spec.contradictions()):
        raise InvalidSpec(problems)
    return spec


_EXPECTED: Mapping[str, str] = {
    "bool_parsing": "expected true or false",
    "bool_type": "expected true or false",
    "float_parsing": "expected a number",
    "float_type": "expected a number",
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected at least {ge}",
    "int_from_float": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_type": "expected a whole number",
    "invalid_key": "expected text as a key: quote it",
    "less_than_equal": "expected at most {le}",
    "missing": "missing, and it has no default",
    "string_too_short": "expected some text",
    "string_type": "expected text",
}
"""Sentences for pydantic's kinds of errors, which it words for programmers."""
_OF_NAME = "expected letters, digits, '.', '-' or '_', at most 63 of them"
_OF_PATTERN: Mapping[str, str] = {
    f"^{NAME}$": f"{_OF_NAME}, a letter or digit at both ends",
    f"^{OWNER_NAME.pattern}$": "expected letters, digits, '.', '-', '_' or '@', at most 63 of "
    "them, a letter or digit at both ends",
    f"^{ATTRIBUTE}$": "expected letters, digits, '.', '-', '_' or '/', at most 63 of them, the "
    "first a letter",
    f"^{ENV_NAME}$": "expected letters, digits or '_', at most 255 of them, the first no digit",
}
"""Sentences for the patterns of text in specs."""
_WRITTEN = 80  # characters of a value that are shown
_SHOULD = re.compile(r"^(Input|Value|String|List|Tuple|Dictionary) should (be|have)\b")


def _problem(model: type[BaseModel], detail: ErrorDetails) -> Problem:
    kind, value = detail["type"], detail["input"]
    place = [part for part in detail["loc"] if part != "[key]"]
    field = named(place)
    written = _written(value)
    if kind in ("missing", "value_error") and isinstance(value, dict | list):
        written = ""  # pydantic's value is the whole mapping around the field, not the field's
    if secret := is_secret(place):
        written = ""
    match kind:
        case "extra_forbidden":
            known = _known_keys(model, place[:-1])
            near = _meant(str(place[-1]), known) or _deeper(model, place)
            near = near or _nearest(str(place[-1]), known)
            written, expected = "", f"unknown key{near or _listed(known)}"
        case "model_type" | "dict_type":
            known = _known_keys(model, place) if kind == "model_type" else []
            expected = f"expected keys with values{_listed(known)}"
        case "list_type" | "tuple_type" | "set_type":
            short = isinstance(value, str) and len(value) < _WRITTEN and not secret
            as_list = f", such as [{value}]" if short else ""
            expected = f"expected a list{as_list}"
        case "string_type" if isinstance(value, bool | int | float | date):
            expected = f'expected text: quote it, as "{written}"'
        case "string_type" if value is None:
            expected = 'expected text: write "" for empty text'
        case "string_pattern_mismatch":
            expected = _OF_PATTERN.get(detail["ctx"]["pattern"], _OF_NAME)
        case _:
            expected = worded(detail, of_time=bool(place) and _is_duration(model, place))
    return Problem(field, written, expected)


def worded(detail: ErrorDetails, *, of_time: bool = False) -> str:
    """The expectation of pydantic, in Muster's words.

    Args:
        of_time: whether the value is a length of time.
    """
    if (sentence := _EXPECTED.get(detail["type"])) is None:
        return _reworded(detail["msg"])
    bounds = detail.get("ctx", {}).items()
    return sentence.format_map({name: _limit(each, of_time=of_time) for name, each in bounds})


def _limit(bound: Any, *, of_time: bool) -> Any:
    """A bound as a person writes it: 55 rather than 55.0, and a length of time as 55s."""
    if of_time and bound:
        return duration(bound)
    return int(bound) if isinstance(bound, float) and bound.is_integer() else bound


def _is_duration(model: type[BaseModel], place: Sequence[int | str]) -> bool:
    """Whether the field at ``place`` is a length of time."""
    *path, key = place
    field = _model_at(model, path).model_fields.get(str(key))
    if field is None:
        return False
    inner = (each for part in get_args(field.annotation) for each in get_args(part))
    return any(
        isinstance(each, BeforeValidator) and each.func is parse_duration
        for each in (*field.metadata, *inner)
    )


def _reworded(message: str) -> str:
    """Pydantic's message in the wording of Muster's own."""
    message = message.removeprefix("Value error, ").replace(" after validation", "")
    return _SHOULD.sub("expected", message)


def _written(value: Any) -> str:
    """The value as a person wrote it, or nearly so."""
    match value:
        case str():
            written = repr(value)
        case _ if (number := written_as(value)) is not None:
            written = number
        case date():  # also a moment: YAML knows them
            written = value.isoformat()
        case _:
            try:
                written = json.dumps(value, default=str, ensure_ascii=False, skipkeys=True)
            except (ValueError, RecursionError):  # aliases can make it contain itself
                written = ""
    return written[:_WRITTEN]


def _listed(known: Sequence[str]) -> str:
    return f"; known are {', '.join(sorted(known))}" if known else ""


def _known_keys(model: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    """The keys of the model found by walking ``path`` from ``model``."""
    return list(_model_at(model, path).model_fields)


def _model_at(model: type[BaseModel], path: Sequence[int | str]) -> type[BaseModel]:
    """The model found by walking ``path`` from ``model``."""
    for part in path:
        if isinstance(part, str) and part in model.model_fields:
            model = _model_in(model.model_fields[part].annotation) or model
    return model


def _deeper(model: type[BaseModel], place: Sequence[int | str]) -> str:
    """The offer of a key of the same name one level deeper, as ``resources.gpu`` for ``gpu``."""
    *path, key = place
    for name, field in _model_at(model, path).model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel) and key in inner.model_fields:
            return f"; did you mean {named([*path, name, key])}?"
    return ""


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that ``annotation`` is or contains; None if it has none."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


_MEANT: Mapping[str, str] = {
    "autoscaling": "scale",
    "cmd": "command",
    "cwd": "workdir",
    "depends_on": "after",
    "environment": "env",
    "gang": "coscheduled",
    "health": "probe",
    "health_check": "probe",
    "healthcheck": "probe",
    "instances": "replicas",
    "liveness": "probe",
    "liveness_probe": "probe",
    "max_retries": "max_retries_failure",
    "needs": "after",
    "nodes": "kernels",
    "readiness": "probe",
    "readiness_probe": "probe",
    "requires": "after",
    "retries": "max_retries_failure",
    "rollout": "update",
    "strategy": "update",
    "time": "timeout",
    "time_limit": "timeout",
    "variables": "env",
    "working_dir": "workdir",
    "working_directory": "workdir",
}
"""Words of options, and of other schedulers, and the keys that they mean."""


_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def _meant(word: str, known: Sequence[str]) -> str:
    in_words = _CAPITAL.sub("_", word[:_WRITTEN]).replace("-", "_").lower()
    key = _MEANT.get(in_words)
    return f"; did you mean {key}?" if key in known else ""


def _nearest(word: str, known: Mapping[str, object] | list[str]) -> str:
    close = difflib.get_close_matches(word[:_WRITTEN], list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
