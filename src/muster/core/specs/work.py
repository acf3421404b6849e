"""The part that the specs of all work have in common."""

from collections.abc import Sequence
from typing import Annotated, Protocol, TypeAlias

from pydantic import Field

from muster.core.specs.amounts import Spec, Whole
from muster.core.specs.placement import Dependency

Priority: TypeAlias = Annotated[Whole, Field(ge=0, le=100)]
"""The priority of work: higher goes first."""
MAX_WAITED = 1000
"""Pieces of work that one request waits for."""
MAX_WAIT_S = 60.0
"""The longest that a request waits; a client asks again."""


class PrioritySpec(Spec):
    """Another priority for work that was handed in."""

    priority: Priority


Reference: TypeAlias = Annotated[str, Field(min_length=1, max_length=100)]
"""An id, the beginning of one, or a name."""


class WaitSpec(Spec):
    """The work that somebody waits for, by its ids or names, and how many seconds at most."""

    refs: list[Reference] = Field(min_length=1, max_length=MAX_WAITED)
    timeout_s: float = Field(default=30.0, ge=0, le=MAX_WAIT_S, allow_inf_nan=False)


class WorkSpec(Protocol):
    """A spec that a person hands in, as far as admission looks at specs of every kind.

    Args:
        project: the owner's project for which the work counts.
        group: the scaling group whose agents it may use.
        priority: higher goes first.
        after: other work for which it waits.
    """

    @property
    def project(self) -> str | None: ...
    @property
    def group(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def after(self) -> Sequence[Dependency]: ...
