"""The part that the specs of all work have in common."""

from collections.abc import Sequence
from typing import Protocol

from muster.core.specs.placement import Dependency


class WorkSpec(Protocol):
    """A spec that a person hands in, as far as admission looks at specs of every kind.

    Args:
        project: the owner's project for which the work counts.
        group: the scaling group whose agents it may use.
        after: other work for which it waits.
    """

    @property
    def project(self) -> str | None: ...
    @property
    def group(self) -> str: ...
    @property
    def after(self) -> Sequence[Dependency]: ...
