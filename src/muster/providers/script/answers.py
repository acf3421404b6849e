"""The answers of an operator's executable, checked before anything is believed."""

import json
from collections.abc import Callable, Collection
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field

from muster.autoscaling.standing import CreateOutcome
from muster.core.errors import InvalidSpec
from muster.core.specs.amounts import ShortText, Spec
from muster.core.specs.load import parse_spec
from muster.core.text import made_text
from muster.providers.provider import (
    Machine,
    MachineListing,
    MachineState,
    ProviderError,
    SliceOrder,
)

OUTCOMES = frozenset(CreateOutcome) - {CreateOutcome.CREATED, CreateOutcome.NOT_BOOTED}
"""The outcomes that an executable may name."""
_MAX_DETAIL = 1000

S = TypeVar("S", bound=Spec)


class Nonsense(Exception):
    """An answer that is not one; the text says what is wrong with it."""


def _shortened(value: Any) -> Any:
    return made_text(value, _MAX_DETAIL) if isinstance(value, str) else value


_Required = Annotated[ShortText, Field(min_length=1)]


class _Machine(Spec):
    id: _Required
    name: _Required
    slice: _Required | None = None
    state: MachineState
    address: ShortText = ""
    leaves_at: Annotated[float, Field(ge=0, le=2**40, allow_inf_nan=False)] | None = None
    detail: Annotated[str, BeforeValidator(_shortened)] = ""


class _Error(Spec):
    outcome: ShortText
    told: Annotated[str, BeforeValidator(_shortened)] = ""


def refusal_in(document: dict[str, Any]) -> ProviderError | None:
    """The error that the executable answers; None if it answers something else.

    Raises:
        Nonsense: its error is none.
    """
    if "error" not in document:
        return None
    error = _parsed(_Error, document["error"], "error")
    if error.outcome not in OUTCOMES:
        known = ", ".join(sorted(OUTCOMES))
        raise Nonsense(
            f"its outcome {error.outcome[:40]!r} is none of {known}; it says: {error.told}"
        )
    return ProviderError(CreateOutcome(error.outcome), error.told)


def document_in(output: bytes, *, may_be_empty: bool = False) -> dict[str, Any]:
    """The document that was answered.

    Raises:
        Nonsense: it is none.
    """
    if may_be_empty and not output.strip():
        return {}
    if not output.strip():
        raise Nonsense("it answers nothing; expected a JSON document on standard output")
    try:
        document = json.loads(output)
    except (ValueError, RecursionError):
        begin = output[:60].decode(errors="replace")
        raise Nonsense(f"its answer is no JSON document; it begins {begin!r}") from None
    if not isinstance(document, dict):
        raise Nonsense("its answer is no JSON object")
    return document


def created(document: dict[str, Any], order: SliceOrder) -> tuple[Machine, ...]:
    """The machines of an ordered slice, in the order of their names.

    Raises:
        Nonsense: they are others, or not all.
    """
    _only(document, {"machines"})
    machines = {each.name: each for each in _machines(document, order.slice)}
    for each in machines.values():
        if each.slice != order.slice:
            raise Nonsense(f"it answers a machine of slice {each.slice[:60]!r}, not {order.slice}")
    if machines.keys() != {*order.names}:
        told = ", ".join(sorted(machines))[:100] or "none"
        raise Nonsense(f"it answers other machines than were ordered: {told}")
    return tuple(machines[name] for name in order.names)


def listed(document: dict[str, Any]) -> MachineListing:
    """The machines of the pool.

    Raises:
        Nonsense: that is not what was answered.
    """
    _only(document, {"machines", "complete"})
    return MachineListing(_machines(document, None), _flag(document, "complete", default=True))


def gone(document: dict[str, Any]) -> bool:
    """Whether a slice is gone.

    Raises:
        Nonsense: the answer does not say so.
    """
    _only(document, {"gone"})
    return _flag(document, "gone", default=None)


def nothing(document: dict[str, Any]) -> None:
    """
    Raises:
        Nonsense: something was answered.
    """
    _only(document, set())


def _machines(document: dict[str, Any], slice_: str | None) -> tuple[Machine, ...]:
    """
    Args:
        slice_: of machines for which none is told; None if it has to be told.
    """
    told = document.get("machines")
    if not isinstance(told, list):
        raise Nonsense("its answer has no list of machines")
    found = [_machine(each, f"machines.{index}", slice_) for index, each in enumerate(told)]
    for of_machine in (_id, _place):
        _all_differ(found, of_machine)
    return tuple(found)


def _machine(told: object, place: str, slice_: str | None) -> Machine:
    read = _parsed(_Machine, told, place)
    of_slice = read.slice or slice_
    if of_slice is None:
        raise Nonsense(f"its answer is wrong: {place}.slice: missing")
    return Machine(
        read.id, of_slice, read.name, read.state, read.address, read.leaves_at, read.detail
    )


def _id(machine: Machine) -> str:
    return machine.id


def _place(machine: Machine) -> str:
    return f"{machine.slice}/{machine.name}"


def _all_differ(machines: Collection[Machine], key: Callable[[Machine], str]) -> None:
    seen: set[str] = set()
    for machine in machines:
        if key(machine) in seen:
            raise Nonsense(f"it answers two machines {key(machine)[:100]!r}")
        seen.add(key(machine))


def _parsed(model: type[S], told: object, place: str) -> S:
    if not isinstance(told, dict):
        raise Nonsense(f"its answer is wrong: {place}: expected an object")
    try:
        return parse_spec(model, told)
    except InvalidSpec as error:
        raise Nonsense(f"its answer is wrong: {place}.{error.problems[0].sentence()}") from None


def _only(document: dict[str, Any], known: set[str]) -> None:
    for key in document:
        if key not in known:
            raise Nonsense(f"its answer has a key {key[:60]!r} that means nothing here")


def _flag(document: dict[str, Any], key: str, *, default: bool | None) -> bool:
    value = document.get(key, default)
    if not isinstance(value, bool):
        raise Nonsense(f"its answer is wrong: {key}: expected true or false")
    return value
