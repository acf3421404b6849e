"""Interfaces of the parts of a group's policy, and how parts are found by name.

Validators → sequencer → selector → allocator, and hooks by type of session (source: Sokovan). All
are pure: no IO, clock or randomness of their own; the caller commits what was allocated. A part
that takes settings is made with them as keyword arguments: ``options`` of the group, by the part's
name.
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Protocol, TypeVar, runtime_checkable

from muster.core.errors import MusterError
from muster.core.ids import SessionId
from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.core.resources import Resources
from muster.core.specs import Dependency
from muster.scheduling.accounting.fairness import DecayedUsage
from muster.scheduling.accounting.usage import Quotas, Usage
from muster.scheduling.budgets import Budgets, unbounded
from muster.scheduling.cluster.columns import Floats, Ints, Shares
from muster.scheduling.cluster.order import Ranking
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.workload import (
    DependencyState,
    KernelPlacement,
    RunningSession,
    SessionWorkload,
    WorkloadClass,
    no_replicas_are_known,
)


def nothing_is_known(owner: Owner, dependency: Dependency) -> DependencyState:
    """The ``dependency_state`` of a context in which no dependency is known."""
    return DependencyState.MISSING


def no_machines_come(session: SessionId, workload: WorkloadClass) -> bool:
    """The ``is_served`` of a context without pools."""
    return False


@dataclass(frozen=True, slots=True)
class PassContext:
    """The pass in which a plug-in is asked.

    Args:
        now: seconds since the epoch.
        usage: the holdings of owners in all groups, including the sessions that this pass has
            placed.
        quotas: the limits of owners.
        fairness: the usage of owners of late, for sequencers.
        running: the group's sessions that hold a place.
        displacing: for sessions, the others that are leaving for them already.
        dependency_state: tells how far the work that a dependency names has come.
        replicas_of: tells how many replicas of a deployment, named by its id, are healthy, and how
            many have to be for it to count as healthy.
        start_s: the time that it may take from a placement until the session runs; time limits
            count from then on.
        budgets: tells how many sessions of a service may be displaced.
        is_served: tells whether a waiting session of a class gets machines that are sure to come in
            time.
    """

    snapshot: Snapshot
    now: float
    usage: Usage = field(default_factory=Usage)
    quotas: Quotas = field(default_factory=Quotas)
    fairness: DecayedUsage = field(default_factory=DecayedUsage)
    running: Mapping[SessionId, RunningSession] = field(default_factory=dict)
    dependency_state: Callable[[Owner, Dependency], DependencyState] = nothing_is_known
    displacing: Mapping[SessionId, Collection[SessionId]] = field(default_factory=dict)
    start_s: float = 0.0
    budgets: Budgets = unbounded
    is_served: Callable[[SessionId, WorkloadClass], bool] = no_machines_come
    replicas_of: Callable[[str], tuple[int, int]] = no_replicas_are_known

    @property
    def runs_from(self) -> float:
        """When a session that is placed now will run at the latest."""
        return self.now + self.start_s


class SessionValidator(Protocol):
    """A rule that may forbid sessions of a class to start now, wherever there is room."""

    def validate(self, workload: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        """All reasons that hold; empty when sessions of the class may start.

        Called before each placement of the class. A validator that has forbidden a class must go on
        forbidding it for the rest of the pass, in which usage only grows.
        """


@runtime_checkable
class CountingValidator(Protocol):
    """A validator that can judge many sessions at once; other validators are called for each
    session."""

    def is_idle(self, context: PassContext) -> bool:
        """Whether it forbids no session to start in this pass."""

    def allows(self, workload: WorkloadClass, context: PassContext, count: int) -> int:
        """How many of ``count`` sessions of the class may be placed one after the other now."""


class SequencerPlugin(Protocol):
    """All that a sequencer of another package must have; it may declare ``dynamic`` too."""

    def key(self, session: SessionWorkload, context: PassContext) -> tuple[float, ...]:
        """The session's key: the smallest goes first, and equal ones by ``submitted_at``, then by
        id. All keys have one length. Sessions of a class differ in ``submitted_at`` and id alone,
        and their keys must follow the order of one of these."""


class SessionSequencer(SequencerPlugin, Protocol):
    """The order in which sessions are tried, inside a band of equal priority.

    ``dynamic`` says that a key may change as the pass places sessions; then keys are asked for
    again after each placement, for the owner's other sessions too. ``by_owner`` promises that a key
    depends on the session's owner alone; the promise of a plug-in is not believed.
    """

    dynamic: bool = True
    by_owner: bool = False


@runtime_checkable
class DeclaresDynamic(Protocol):
    """A plug-in that declares ``dynamic``, as of ``SessionSequencer``."""

    dynamic: bool


class SelectorPlugin(Protocol):
    """All that a selector of another package must have; it may declare ``packs`` too."""

    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        """A finite score for each of ``candidates``, the slots in which ``request`` fits.

        The highest wins; among equals the lowest slot.
        """

    def devices(self, request: Resources, snapshot: Snapshot, slot: int) -> Shares:
        """The devices in ``slot`` to take for ``request``, which asks for devices and fits."""


class AgentSelector(SelectorPlugin, Protocol):
    """The choice of an agent, and of its devices, for a kernel.

    ``packs`` promises that taking room for a request lowers no agent's score for an equal request
    and changes only the score of the agent taken from; then equal kernels in a row are scored once.
    ``ranking`` is an order of agents that says the same as the scores, so that nothing is scored;
    ``fullest_device`` tells whether ``devices`` takes a fraction of the fullest device or of the
    freest, so that ``devices`` is not called. A plug-in's ``ranking`` and ``fullest_device`` are
    ignored.
    """

    packs: bool = False
    ranking: Ranking | None = None
    fullest_device: bool | None = None


@runtime_checkable
class DeclaresPacks(Protocol):
    """A plug-in that declares ``packs``, as of ``AgentSelector``."""

    packs: bool


@runtime_checkable
class LearningSelector(Protocol):
    """A selector that learns the requests of sessions."""

    def arrived(self, request: Resources, kernels: int) -> None:
        """Called when a session with so many kernels of this request has entered the queue."""


@dataclass(frozen=True, slots=True)
class AllocationContext:
    """The pass in which an allocator is asked.

    Args:
        snapshot: the agents, with the room of the session taken already.
        now: seconds since the epoch.
    """

    snapshot: Snapshot
    now: float


@dataclass(frozen=True, slots=True)
class AllocationResult:
    """The places that an allocator gives a session, or its refusal.

    Args:
        kernels: the place of each kernel; None if the session is not to start now.
        reasons: the reasons of a refusal.
    """

    kernels: tuple[KernelPlacement, ...] | None
    reasons: tuple[Reason, ...] = ()


class SessionAllocator(Protocol):
    """The allocation of a session's resources on the agents that the selector chose: the last word
    before the session starts (source: Sokovan)."""

    def allocate(
        self,
        session: SessionWorkload,
        kernels: Sequence[KernelPlacement],
        context: AllocationContext,
    ) -> AllocationResult:
        """Allocate ``kernels``, or other free devices of the same agents, or nothing, with the
        reasons for which the session waits on; sessions equal to it wait with it until the next
        pass. Called once for each session that finds room, and when people ask what would be. The
        ledger is written, and the room checked once more, when the pass is committed."""


class SessionHook(Protocol):
    """The special treatment of a type of session (source: Sokovan)."""

    def on_schedule(self, workload: WorkloadClass) -> WorkloadClass:
        """Called once when a session enters the queue, and again if its group gets another policy
        while the session waits; the answer is scheduled in its place. Equal sessions may share the
        answer. Owner, group, type and the kernels' requests must stay."""

    def before_start(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        """Called when a session's kernels are about to start; the answer is their environment."""

    def after_end(self, session: SessionId, succeeded: bool) -> None:
        """Called once when a session has ended."""


Plugin = TypeVar("Plugin")

registered: dict[tuple[str, str], Callable[..., Any]] = {}
"""Makers of plug-ins, by kind and name, that no package brings: those of a simulation."""


def find(
    kind: str,
    name: str,
    builtin: Mapping[str, Callable[..., Plugin]],
    options: Mapping[str, Any] | None = None,
) -> Plugin:
    """A new plug-in of ``kind`` (validators, sequencers, selectors, allocators, hooks) by its name.

    Plug-ins that are not built in are entry points of the group ``muster.<kind>``: a class, or any
    callable that makes a plug-in from ``options``. They cannot replace a built-in one of the same
    name.

    Raises:
        MusterError: there is no plug-in of that name, or it cannot be made, or not with these
            options.
    """
    singular = kind.removesuffix("s")
    make: Callable[..., Plugin]
    if name in builtin:
        make = builtin[name]
    elif (kind, name) in registered:
        make = registered[kind, name]
    else:
        installed = entry_points(group=f"muster.{kind}")
        if name not in installed.names:
            known = ", ".join(sorted({*builtin, *installed.names})) or "none"
            raise MusterError(f"there is no {singular} named {name!r}; known: {known}")
        try:
            make = installed[name].load()
        except Exception as error:  # a plug-in's module may raise anything
            raise MusterError(f"{singular} {name!r} cannot be loaded: {error}") from error
    options = options or {}
    known_options = _options_of(make) if options else None
    for option in options:
        if known_options is not None and option not in known_options:
            has = ", ".join(known_options) or "none"
            raise MusterError(f"{singular} {name!r} has no option {option!r}; it has {has}")
    try:
        return make(**options)
    except Exception as error:
        raise MusterError(f"{singular} {name!r} cannot be made with {options}: {error}") from error


def _options_of(make: Callable[..., Any]) -> list[str] | None:
    """The names of the options that ``make`` takes; None if it takes any, or they are not known."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [each.name for each in parameters if each.kind in by_name]
