"""The outputs of work, as `muster logs` reads it: of each task of a job, or each kernel of a
session."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import msgspec

from muster.core.views.base import RecordView

if TYPE_CHECKING:
    from muster.client import Client
    from muster.core.views.base import ReasonView
    from muster.core.views.work import KernelView

D = TypeVar("D", bound=RecordView)


class Runs(msgspec.Struct, frozen=True):
    """The processes whose output a part is, from the first to the latest, and the reason for its
    state."""

    kernels: "Sequence[KernelView]"
    reason: "ReasonView | None"


class Extent(msgspec.Struct, frozen=True):
    """How much of an output is read.

    Args:
        attempt: this attempt alone; None is the latest.
        every: all attempts from the first on, in place of ``attempt``.
        tail_bytes: only the last so many bytes.
        follow: whether reading goes on until no more can come.
        on_cut: called with the number of bytes before the next piece that are gone.
        stderr: whether what was written to stderr is read alone.
    """

    attempt: int | None
    every: bool
    tail_bytes: int | None
    follow: bool
    on_cut: Callable[[int], None]
    stderr: bool = False


class Outputs(ABC, Generic[D]):
    """The outputs of a kind of work, one for each of its parts, which have indexes.

    Args:
        part: the word for a part.
        has_attempts: whether a part runs again after it failed.
        has_numbers: whether people choose parts by their indexes.
    """

    part: ClassVar[str]
    has_attempts: ClassVar[bool] = False
    has_numbers: ClassVar[bool] = True

    def label(self, index: int) -> str:
        """The word with which lines of a part begin, beside those of others."""
        return str(index)

    def label_width(self, found: D) -> int:
        """The length of the longest label."""
        return len(str(max(self.index_end(found) - 1, 0)))

    def file_name(self, found: D, index: int) -> str:
        """The name of a file for the output of a part, which no other part of the work has."""
        return f"{self.part}-{index:0{self.label_width(found)}}.log"

    @abstractmethod
    def size(self, found: D) -> int:
        """How many parts there are."""

    @abstractmethod
    def indexes(self, found: D) -> Iterable[int]:
        """The indexes of all parts, begun or not."""

    @abstractmethod
    def index_end(self, found: D) -> int:
        """The number below which all indexes lie."""

    def begun(self, client: "Client", found: D, *, failed: bool = False) -> Iterable[int]:
        """The indexes of parts that have begun, a single one's in any case, so that an error says
        if it has not; or, where there are attempts, only of parts that ``failed``."""
        return self.indexes(found)

    def short(self, client: "Client", id_: str, indexes: Sequence[int]) -> Mapping[int, bytes]:
        """The whole present outputs of those of these parts whose output is short and can be had
        together with others; ``pieces`` reads the others."""
        return {}

    @abstractmethod
    def runs(self, client: "Client", found: D, index: int) -> Runs:
        """The processes of one part, as they are now."""

    @abstractmethod
    def pieces(self, client: "Client", id_: str, index: int, extent: Extent) -> Iterator[bytes]:
        """The output of one part, piece by piece."""
