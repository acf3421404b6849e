"""Inputs: requests of people, messages of agents, outcomes of effects."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.core.owner import Owner


class Input(ABC):
    """Something that came in, for a wake to take.

    ``is_kept`` says whether it is taken again, or refused, when nothing can be stored.
    """

    is_kept: ClassVar[bool] = True
    owner: Owner | None = None
    """The owner on whose behalf the input came, if a person sent it."""

    @property
    def amount(self) -> int:
        """How many things it tells, each of which has to be looked at even if none is news."""
        return 1

    @property
    def can_wait(self) -> bool:
        """Whether nobody waits for it, and another input is likely to follow at once: then one wake
        takes both."""
        return False

    @abstractmethod
    def take(self, work: Work, parts: Parts) -> None:
        """Apply the input to the wake's work.

        Raises:
            Exception: the input cannot be applied and is refused; the wake is undone.
        """

    @abstractmethod
    def refuse(self, error: Exception) -> None:
        """Tell the sender that the input is not taken."""

    def apart(self) -> Sequence["Input"]:
        """Smaller inputs that together say the same; the input itself if it cannot be divided."""
        return (self,)
