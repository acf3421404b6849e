"""The declarations of modules, which stand side by side whatever entity they are about.

This is the only place of the engine that leaves open which records something is about. A handler of
doors takes doors alone, so a list of handlers of doors and of windows has no type that would say
what each takes. Each tells its class of records (``entity``) or of effects (``kind``) when it runs,
and by that the engine pairs it with what is its own: from there on types hold again (``Order.of``
in ``steps``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from muster.control.engine.effects import Performer
from muster.control.engine.handler import Handler
from muster.control.engine.lifecycle import Lifecycle
from muster.store.entity import Entity
from muster.store.unit import LedgerWatch

SomeEntity: TypeAlias = Entity[Any]
SomeHandler: TypeAlias = Handler[Any]
SomeLifecycle: TypeAlias = Lifecycle[Any]
SomePerformer: TypeAlias = Performer[Any]


@dataclass(frozen=True, slots=True)
class Declared:
    """A module's declarations over a mirror that was just read.

    ``offers`` are parts for other modules and for requests; ``watch``, if there is one, is told of
    each change of the ledger.
    """

    lifecycles: Sequence[SomeLifecycle] = ()
    handlers: Sequence[SomeHandler] = ()
    offers: Sequence[object] = ()
    watch: LedgerWatch | None = None
