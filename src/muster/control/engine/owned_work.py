"""Work that ends with its owner: the offer of an entity to whoever removes a user or a project."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from muster.control.engine.work import Work
from muster.core.ids import SessionId
from muster.core.owner import Owner, Principal


class OwnedWork:
    """The live work of one kind. A part derived from this class has the work of its kind cancelled
    with its owner, and counted among what keeps the owner.

    Args:
        plural: of the kind, as sentences call it.
    """

    plural: ClassVar[str]

    def owned(self, work: Work, concerned: Callable[[Owner], bool]) -> Sequence[str]:
        """The ids of the live work of the owners concerned, without what is ending already."""
        raise NotImplementedError

    def end(self, work: Work, by: Principal, id_: str) -> None:
        """Cancel one of them."""
        raise NotImplementedError

    def drives(self, session: SessionId) -> bool:
        """Whether a session without a job is a part of such work, with which it ends."""
        return False
