"""Warnings about a spec that is handed in: values that are allowed and hardly meant."""

from collections.abc import Iterator

from muster.core.reasons import Reason
from muster.core.reasons.of_sessions import VariablesNotUsed
from muster.core.specs import DeploymentSpec, JobSpec, SessionSpec
from muster.core.specs.variables import unused

MOST_NAMES = 5
"""Names that a warning tells."""


def spec_warnings(spec: JobSpec | SessionSpec | DeploymentSpec) -> Iterator[Reason]:
    """The reasons for a second look at a spec, for whoever has just handed it in."""
    names = unused(spec)
    if names:
        more = len(names) - MOST_NAMES
        told = ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
        yield VariablesNotUsed(names=told, several=len(names) > 1)
