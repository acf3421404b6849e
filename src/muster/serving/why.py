"""The why of a decision: a code and its numbers, of which control makes a reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

Code = TypeVar("Code", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Why(Generic[Code]):
    """A code and its numbers by name. No number changes by the passing of time alone, so that equal
    decisions have equal whys."""

    code: Code
    numbers: Mapping[str, float]


def why(code: Code, **numbers: float) -> Why[Code]:
    """A code with its numbers."""
    return Why(code, numbers)
