"""Interfaces of the parts that a group's policy is made of, and how they are found by name.

Validators → sequencer → selector, and hooks by type of session (source: Sokovan); the fourth of
them, the allocator, is the caller that commits a pass's outcome. All are pure: no IO, clock or
randomness of their own. A part that takes settings is made with them as keyword arguments:
``options`` of the group, by the part's name.
"""

import inspect
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeVar, runtime_checkable

from muster.core.errors import MusterError
from muster.core.ids import SessionId
from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.core.resources import Resources
from muster.core.specs import Dependency
from muster.scheduling.columns import Floats, Ints, Shares
from muster.scheduling.fairness import DecayedUsage
from muster.scheduling.snapshot import Snapshot
from muster.scheduling.usage import Quotas, Usage
from muster.scheduling.workload import RunningSession, SessionWorkload, TargetState, WorkloadClass


def nothing_is_known(owner: Owner, dependency: Dependency) -> TargetState:
    return TargetState.MISSING


@dataclass(frozen=True, slots=True)
class PassContext:
    """The pass that a plug-in is asked in.

    Args:
        now: seconds since the epoch.
        usage: what owners hold, in all groups; what this pass has placed is counted in.
        quotas: the limits on that.
        fairness: what owners have used of late, for sequencers.
        running: the group's sessions that hold a place.
        displacing: sessions for which others are leaving already.
        target: how far the job or session has come that a dependency names.
        start_s: how long it may take from a placement until the session runs; limits count from
            then on.
    """

    snapshot: Snapshot
    now: float
    usage: Usage = field(default_factory=Usage)
    quotas: Quotas = field(default_factory=Quotas)
    fairness: DecayedUsage = field(default_factory=DecayedUsage)
    running: Mapping[SessionId, RunningSession] = field(default_factory=dict)
    target: Callable[[Owner, Dependency], TargetState] = nothing_is_known
    displacing: Container[SessionId] = frozenset()
    start_s: float = 0.0

    @property
    def runs_from(self) -> float:
        """When what is placed now will run at the latest."""
        return self.now + self.start_s


class SessionValidator(Protocol):
    """Says what forbids sessions of a class to start now, wherever there is room."""

    def validate(self, what: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        """All reasons that hold; empty when they may start.

        It is asked before each placement of the class. Within a pass, once it forbids it goes on
        forbidding: what was placed only adds to what is held.
        """


@runtime_checkable
class CountingValidator(Protocol):
    """A validator that need not be asked about each session; others are."""

    def is_idle(self, context: PassContext) -> bool:
        """Whether it forbids nothing to anybody in this pass."""

    def allows(self, what: WorkloadClass, context: PassContext, count: int) -> int:
        """How many of ``count`` sessions of the class may be placed one after the other."""


class SessionSequencer(Protocol):
    """Says in which order sessions are tried, inside a band of equal priority.

    ``dynamic`` says that a key may change as the pass places sessions; then it is asked again after
    each of them, for the owner's other sessions too.
    """

    dynamic: bool

    def key(self, session: SessionWorkload, context: PassContext) -> tuple[float, ...]:
        """The smallest goes first; equal ones by ``submitted_at``, then by id. All keys have one
        length. All sessions of a class differ in ``submitted_at`` and id alone, and must come in
        the order of one of them."""


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


@runtime_checkable
class LearningSelector(AgentSelector, Protocol):
    """A selector that wants to know what is asked for."""

    def arrived(self, request: Resources, kernels: int) -> None:
        """A session with so many such kernels has entered the queue."""


class SessionHook(Protocol):
    """What is special about a type of session (source: Sokovan)."""

    def on_schedule(self, what: WorkloadClass) -> WorkloadClass:
        """Called once when a session enters the queue, and again if its group gets another policy
        while it waits; what is answered is scheduled in its place. Equal sessions may share the
        answer. Owner, group, type and what the kernels ask for must stay."""

    def before_start(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        """Called when its kernels are about to start; what is answered is their environment."""

    def after_end(self, session: SessionId, succeeded: bool) -> None:
        """Called once when it has ended."""


Plugin = TypeVar("Plugin")


def find(
    kind: str,
    name: str,
    builtin: Mapping[str, Callable[..., Plugin]],
    options: Mapping[str, Any] | None = None,
) -> Plugin:
    """A new plug-in of ``kind`` (validators, sequencers, selectors, hooks) by its name.

    Others are entry points of the group ``muster.<kind>``: a class, or any callable that makes one
    from ``options``. They cannot replace a built-in of the same name.

    Raises:
        MusterError: there is none of that name, it cannot be loaded, or not with these options.
    """
    singular = kind.removesuffix("s")
    make: Callable[..., Plugin]
    if name in builtin:
        make = builtin[name]
    else:
        installed = entry_points(group=f"muster.{kind}")
        if name not in installed.names:
            known = ", ".join(sorted({*builtin, *installed.names})) or "none"
            raise MusterError(f"there is no {singular} named {name!r}; known: {known}")
        try:
            make = installed[name].load()
        except Exception as error:  # whatever a stranger's module raises
            raise MusterError(f"{singular} {name!r} cannot be loaded: {error}") from error
    options = options or {}
    known_options = _options_of(make)
    for option in options:
        if known_options is not None and option not in known_options:
            has = ", ".join(known_options) or "none"
            raise MusterError(f"{singular} {name!r} has no option {option!r}; it has {has}")
    try:
        return make(**options)
    except Exception as error:
        raise MusterError(f"{singular} {name!r} cannot be made with {options}: {error}") from error


def _options_of(make: Callable[..., Any]) -> list[str] | None:
    """What ``make`` takes by name; None if that is not known, or anything."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [each.name for each in parameters if each.kind in by_name]
