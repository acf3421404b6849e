"""Effects: what control wishes of the world (design: Effects).

A handler emits an effect; once the wake is committed it is handed to the performer of its kind,
and what became of it comes back as an input. What is wished is state in the database: the effect is
only its messenger, and is emitted again from that state after a restart, or when no outcome came in
time.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

E = TypeVar("E")


class Performer(ABC, Generic[E]):
    """Carries out the effects of one kind; decides nothing, and keeps nothing that matters.

    It may be handed the same wish twice, and must be harmless then. Its queue is bounded, each
    attempt has a time-out, and one that hangs holds up neither the control plane nor others.
    """

    kind: ClassVar[type]

    @abstractmethod
    def perform(self, effects: Sequence[E]) -> None:
        """Take these, in the order in which they were emitted. It neither waits nor raises: what
        cannot be taken is dropped, and comes again."""
