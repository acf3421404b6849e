"""The part that the specs of all work have in common."""

from collections.abc import Sequence
from typing import Annotated, Protocol, TypeAlias

from pydantic import Field

from muster.core.specs.amounts import Spec, Whole
from muster.core.specs.placement import Dependency

Priority: TypeAlias = Annotated[Whole, Field(ge=0, le=100)]
"""The priority of work: higher goes first."""


class PrioritySpec(Spec):
    """Another priority for work that was handed in."""

    priority: Priority


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
