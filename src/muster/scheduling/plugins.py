"""Interfaces of the parts that a group's policy is made of, and how they are found by name.

Validators → sequencer → selector, as in sokovan-scheduler ("Plugin System"); the fourth of them,
the allocator, is the caller that commits what ``placement.place`` answers. All are pure: no IO,
clock or randomness of their own.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Protocol, TypeVar

from muster.core.errors import MusterError
from muster.core.reasons import Reason
from muster.core.resources import Resources
from muster.scheduling.columns import Floats, Ints, Shares
from muster.scheduling.snapshot import Snapshot
from muster.scheduling.workload import SessionWorkload


@dataclass(frozen=True, slots=True)
class PassContext:
    """The pass that a plug-in is asked in.

    Args:
        now: seconds since the epoch.
        placed: the sessions placed earlier in this pass; grows as the pass goes on.
    """

    snapshot: Snapshot
    now: float
    placed: list[SessionWorkload] = field(default_factory=list)


class SessionValidator(Protocol):
    """Says what forbids a session to start now, wherever there is room."""

    def validate(self, session: SessionWorkload, context: PassContext) -> Sequence[Reason]:
        """All reasons that hold; empty when it may start."""


class SessionSequencer(Protocol):
    """Says in which order sessions are tried."""

    def sequence(
        self, sessions: Sequence[SessionWorkload], context: PassContext
    ) -> Iterable[SessionWorkload]:
        """Every session once. A lazy answer (a generator) sees ``context.placed`` grow."""


class AgentSelector(Protocol):
    """Says which agent, and which of its devices, a kernel goes to.

    ``packs`` promises that taking for a request lowers no agent's score for an equal request and
    changes only that of the agent taken from; then equal kernels in a row are scored once.
    """

    packs: bool

    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        """A finite score for each of ``candidates``, the slots in which ``request`` fits.

        The highest wins; among equals the lowest slot.
        """

    def devices(self, request: Resources, snapshot: Snapshot, slot: int) -> Shares:
        """The devices in ``slot`` to take for ``request``, which asks for some and fits."""


Plugin = TypeVar("Plugin")


def find(kind: str, name: str, builtin: Mapping[str, Callable[[], Plugin]]) -> Plugin:
    """A new plug-in of ``kind`` (validators, sequencers, selectors) by its name.

    Others are entry points of the group ``muster.<kind>``: a class, or any callable without
    arguments that makes one. They cannot replace a built-in of the same name.

    Raises:
        MusterError: there is none of that name, or it cannot be loaded.
    """
    if name in builtin:
        return builtin[name]()
    installed = entry_points(group=f"muster.{kind}")
    if name not in installed.names:
        known = ", ".join(sorted({*builtin, *installed.names})) or "none"
        raise MusterError(f"there is no {kind.removesuffix('s')} named {name!r}; known: {known}")
    try:
        plugin: Plugin = installed[name].load()()
    except Exception as error:  # whatever a stranger's module raises
        raise MusterError(f"{kind.removesuffix('s')} {name!r} cannot be loaded: {error}") from error
    return plugin
