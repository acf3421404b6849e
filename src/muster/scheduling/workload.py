"""A waiting session as placement sees it."""

from dataclasses import dataclass

from muster.core.ids import AgentId, SessionId
from muster.core.owner import Owner
from muster.core.resources import Resources


@dataclass(frozen=True, slots=True)
class SessionWorkload:
    """A session that asks for its place; all its kernels start together or none does.

    Args:
        group: the name of the scaling group.
        priority: larger goes first.
        submitted_at: seconds since the epoch.
        kernels: what each kernel asks for, by its index.
        failed_agents: agents that failed the session before; they rank last, but still count.
    """

    id: SessionId
    owner: Owner
    group: str
    priority: int
    submitted_at: float
    kernels: tuple[Resources, ...]
    failed_agents: frozenset[AgentId] = frozenset()


def by_request(kernels: tuple[Resources, ...]) -> list[tuple[Resources, list[int]]]:
    """The distinct requests, each with the indexes of the kernels that make it.

    The most demanding come first: what is hard to place must not find its room broken up.
    """
    indexes_of: dict[Resources, list[int]] = {}
    last: Resources | None = None
    indexes: list[int] = []
    for index, request in enumerate(kernels):
        if request is not last:  # hashing is what costs, and gangs repeat one object
            last, indexes = request, indexes_of.setdefault(request, [])
        indexes.append(index)
    return sorted(indexes_of.items(), key=lambda item: _demand(item[0]), reverse=True)


def _demand(request: Resources) -> tuple[int, int, int, int, tuple[tuple[str, int], ...]]:
    return (
        request.gpu_milli,
        request.cpu_milli,
        request.memory_bytes,
        request.disk_bytes,
        request.extra,
    )
