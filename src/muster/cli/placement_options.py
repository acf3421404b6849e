"""Options for where and when work may start, for every command that hands work in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from muster.cli.completion import complete_agent, complete_dependency
from muster.cli.parameters import Option
from muster.cli.request import without_nones
from muster.client.moments import with_absolute_moments

if TYPE_CHECKING:
    from muster.core.specs.amounts import Spec

S = TypeVar("S", bound="Spec")

Project = Annotated[
    str | None,
    Option("--project", metavar="PROJECT", help="Count it for this project of yours."),
]


@dataclass(frozen=True, slots=True)
class Placement:
    """Options on the agents and the time at which work may start, and on the project for which it
    counts."""

    constraint: Annotated[
        list[str] | None,
        Option(
            "--constraint",
            metavar="RULE",
            help="Choose agents by zone=a, disk>=100 or !spot; may be repeated.",
            field="placement.constraints",
        ),
    ] = None
    agent: Annotated[
        list[str] | None,
        Option(
            "--agent",
            metavar="NAME",
            help="Choose this agent; may be repeated.",
            autocompletion=complete_agent,
            field="placement.agents",
        ),
    ] = None
    single_node: Annotated[
        bool,
        Option(
            "--single-node", help="Keep all kernels of a gang on one agent.", field="placement.mode"
        ),
    ] = False
    after: Annotated[
        list[str] | None,
        Option(
            "--after",
            metavar="REF[:WHEN]",
            help="Start once this has succeeded (or runs, ended, is healthy); may be repeated.",
            autocompletion=complete_dependency,
        ),
    ] = None
    not_before: Annotated[
        str | None,
        Option(
            "--not-before", metavar="MOMENT", help="Start no earlier, as +2h or 'tomorrow 08:00'."
        ),
    ] = None
    project: Project = None

    def keys(self) -> dict[str, Any]:
        """The keys of a spec that the options stand for."""
        placement = without_nones(
            {
                "constraints": self.constraint or None,
                "agents": self.agent or None,
                "mode": "single-node" if self.single_node else None,
            }
        )
        return without_nones(
            {
                "placement": placement or None,
                "after": self.after or None,
                "not_before": self.not_before,
                "project": self.project,
            }
        )


def with_keys(spec: S, keys: Mapping[str, Any]) -> S:
    """A spec with these keys in place of its own; variables, resources and placement are put beside
    those that it has. Of a session, keys of a process go to each kernel.

    Raises:
        InvalidSpec: with every problem found.
    """
    from muster.core.specs import parse_spec

    own = spec.model_dump(mode="json", exclude_defaults=True)
    changes = dict(with_absolute_moments(keys))
    if (kernels := own.get("kernels")) is not None:
        of_process = {name: changes.pop(name) for name in _OF_PROCESS if name in changes}
        own["kernels"] = [_merged(kernel, of_process) for kernel in kernels]
    return parse_spec(type(spec), _merged(own, changes))


_OF_PROCESS = ("env", "environment", "workdir", "uses", "stderr", "resources")
_BESIDE = ("env", "resources", "placement")


def _merged(own: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(own)
    for key, value in changes.items():
        found[key] = {**found.get(key, {}), **value} if key in _BESIDE else value
        if value is None:
            del found[key]
    return found
