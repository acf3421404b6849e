"""The machines of a simulated cluster, as people write them (docs/simulate.md)."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from muster.core.errors import InvalidSpec, MusterError, Problem
from muster.core.resources import MAX_DEVICES, Device, Resources
from muster.core.specs import parse_spec
from muster.core.specs.amounts import Bytes, Extra, Milli, Name, Spec, Text
from muster.core.specs.documents import load_documents
from muster.core.specs.placement import AttributeName
from muster.simulate.trace import read_nodes

MAX_AGENTS = 100_000


class AgentsSpec(Spec):
    """``count`` agents alike. Several are called ``name-1``, ``name-2`` and so on.

    Args:
        gpus, model: the number of devices of each agent, and their model.
        extra: named resources that each has.
        attributes: for constraints and topology.
    """

    name: Name
    count: Annotated[int, Field(ge=1, le=MAX_AGENTS)] = 1
    cpu: Milli
    memory: Bytes
    disk: Bytes = 0
    gpus: Annotated[int, Field(ge=0, le=MAX_DEVICES)] = 0
    model: Annotated[Text, Field(min_length=1, max_length=100)] = "gpu"
    extra: Extra = Field(default_factory=dict)
    attributes: Annotated[dict[AttributeName, Text], Field(max_length=100)] = Field(
        default_factory=dict
    )


class ClusterSpec(Spec):
    """All agents of a cluster; names are unique."""

    kind: Literal["cluster"] = "cluster"
    agents: Annotated[list[AgentsSpec], Field(min_length=1, max_length=10_000)]

    @model_validator(mode="after")
    def _counted_and_unlike(self) -> "ClusterSpec":
        names = [name for spec in self.agents for name in _names(spec)]
        if len(names) > MAX_AGENTS:
            raise ValueError(f"expected at most {MAX_AGENTS:,} agents, not {len(names):,}")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"two agents are called {twice}; give each entry its name")
        return self


@dataclass(frozen=True, slots=True)
class ClusterAgent:
    """One agent of a simulated cluster."""

    name: str
    capacity: Resources
    devices: tuple[Device, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()


def read_cluster(path: Path) -> tuple[ClusterAgent, ...]:
    """The agents that a file describes: a node list of the openb trace if it is a ``.csv``, else
    YAML or JSON of ``kind: cluster``.

    Raises:
        MusterError: the file cannot be read.
        InvalidSpec: it is wrong somewhere; every problem is named.
    """
    if path.suffix == ".csv":
        return tuple(
            ClusterAgent(node.name, node.capacity, node.devices) for node in read_nodes(path)
        )
    text = read_text(path)
    try:
        documents = load_documents(text)
        if len(documents) > 1:
            shown = f"{len(documents)} documents"
            raise InvalidSpec([Problem("cluster", shown, "expected one a file")])
        spec = parse_spec(ClusterSpec, documents[0])
    except InvalidSpec as error:
        raise error.in_file(str(path)) from None
    return tuple(agent for agents in spec.agents for agent in _agents(agents))


def read_text(path: Path) -> str:
    """
    Raises:
        MusterError: the file cannot be read, or is not text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise MusterError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise MusterError(f"cannot read {path}: it is not text in UTF-8") from None


def _names(spec: AgentsSpec) -> Iterable[str]:
    if spec.count == 1:
        return (spec.name,)
    return (f"{spec.name}-{number}" for number in range(1, spec.count + 1))


def _agents(spec: AgentsSpec) -> Iterable[ClusterAgent]:
    capacity = Resources.with_extra(
        spec.cpu, spec.memory, spec.disk, spec.gpus * 1000, dict(spec.extra)
    )
    devices = tuple(Device(index, spec.model) for index in range(spec.gpus))
    attributes = tuple(sorted(spec.attributes.items()))
    return (ClusterAgent(name, capacity, devices, attributes) for name in _names(spec))
