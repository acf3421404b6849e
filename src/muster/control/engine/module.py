"""Modules: an entity's contribution to the control plane. The folder of each entity exports one
module (design: What an entity is)."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar, cast

from muster.control.engine.declared import Declared, SomeEntity, SomePerformer
from muster.control.engine.effects import Surroundings
from muster.control.engine.work import Work
from muster.core.clock import Clock
from muster.core.specs.amounts import Spec
from muster.store.audit.finding import Audit
from muster.store.live import Live
from muster.store.store import Store

S = TypeVar("S")


class Parts:
    """The objects that modules offer to each other and to requests, by their class.

    They are made anew whenever the mirror is read: nobody keeps a part beyond the wake.
    """

    def __init__(self) -> None:
        self._parts: dict[type, object] = {}

    def add(self, part: object) -> None:
        self._parts[type(part)] = part

    def __getitem__(self, kind: type[S]) -> S:
        """The part of this class.

        Raises:
            KeyError: no earlier module offers the part.
        """
        return cast(S, self._parts[kind])

    def derived_from(self, base: type[S]) -> Sequence[S]:
        """The parts of classes derived from this one, in the order in which they were offered."""
        return [part for part in self._parts.values() if isinstance(part, base)]


@dataclass(frozen=True, slots=True)
class Context:
    """The things that a module may use: the store with its mirror, the clock, and the parts of
    earlier modules."""

    store: Store
    clock: Clock
    parts: Parts


class Module:
    """One for each entity; it lives as long as the control plane. ``performers`` carry out its
    effects; ``audits`` check rules about its rows that do not follow from their declarations."""

    performers: Sequence[SomePerformer] = ()
    audits: ClassVar[Sequence[Audit]] = ()

    def check(self, spec: Spec) -> None:
        """Refuse a spec that is handed in, or planned, for a reason that only this module knows.

        Raises:
            InvalidSpec: with every problem found. Any other error refuses the spec too, as a defect
                of the controller.
        """

    def begin(self, live: Live, before: Live | None) -> None:
        """Complete the mirror's records by values that are not stored. Called for all modules
        whenever the mirror was read, before the first declares.

        If it raises, the state cannot be taken over, for each commit would lack the module's part.
        A controller that starts ends then; one that runs changes nothing, refuses requests with the
        reason, and tries again each second.

        Args:
            live: the mirror.
            before: the mirror that was thrown away, if there was one.
        """

    def declare(self, context: Context) -> Declared:
        """Derive the module's parts from the mirror. Called whenever the mirror was read; if it
        raises, the consequences are those of ``begin``."""
        return Declared()

    def catch_up(self) -> None:
        """Note in the mirror facts that came in outside of wakes (heartbeats); nothing is decided
        here. If it raises, it is not called for a while: handlers that decide by such facts ask
        their source."""

    def sweep(self, work: Work, since: float) -> None:
        """Do the module's periodic work, before anything else in its wake; ``since`` is when that
        was committed last. If it raises, or made a change that cannot be stored, the wake is undone
        and taken again without this sweep, which rests for a while."""

    def committed(self, work: Work) -> None:
        """Called after each commit, before its effects are performed. If it raises, the commit
        stands and all other modules are still told of it; the module makes up for the failed call
        in its next sweep."""


class EntityModule(Module):
    """A module whose folder holds all of its ``entities``, their records, tables and mappings too.
    It is found by its folder. ``after`` names the folders of those entity modules that come before
    it: their parts are there when it declares, and their handlers act first.

    Args:
        surroundings: the parts of the process that its performers may use.
    """

    entities: ClassVar[Sequence[SomeEntity]]
    after: ClassVar[Collection[str]] = ()

    def __init__(self, surroundings: Surroundings) -> None:
        self.surroundings = surroundings


def with_own(modules: Sequence[Module], method: Callable[..., None]) -> Sequence[Module]:
    """The modules whose class overrides this method of ``Module``."""
    return [each for each in modules if getattr(type(each), method.__name__) is not method]
