"""The declaration of a kind of records: what commands say of them, and do with them.

Every command that takes a REF imports it. So modules that are long to import (rich, specs) are
imported inside methods, and plain values are structures of msgspec: a dataclass takes as long to
make as a module to import.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec

from muster.cli.streams import Line, plain, state_word
from muster.cli.words import sentence_of
from muster.core.views.base import OwnerView, RecordView, View

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from muster.cli.cluster import Cluster
    from muster.cli.hand_in import Display
    from muster.cli.kinds.outputs import Outputs
    from muster.client import Client
    from muster.core.specs.amounts import Spec
    from muster.core.states import StateTable
    from muster.core.views.base import ReasonView
    from muster.core.views.placement import WhyView

V = TypeVar("V", bound=RecordView)
D = TypeVar("D", bound=RecordView)

Json = View | Sequence[View] | dict[str, Any]


class Shown(msgspec.Struct, frozen=True):
    """The part of a record that `muster show` is asked for.

    Args:
        part: the index of one task or kernel; None is the whole record.
        every: whether all tasks are listed by index, not the noteworthy few.
        limit: how many tasks of a list at most, if the person said so.
        offset: how many tasks a list leaves out before its first.
        where: the values of parameters that the tasks of a list have.
    """

    part: int | None = None
    every: bool = False
    limit: int | None = None
    offset: int = 0
    where: Mapping[str, str] = {}


class Kind(Generic[V, D]):
    """A kind of records: a listing has their views ``V``, one alone is shown as ``D``. As it stands
    it is one that is shown by its plain fields, and of which nothing is offered.

    Args:
        name: as sentences call it.
        is_cancelled: whether `muster cancel` offers it.
        has_parts: whether it has tasks or kernels, to which a REF can refer by an index.
        has_replicas: whether some are of deployments, and ``replicas`` is one of its filters.
        is_on_agents: whether they hold room of agents, and ``agent`` is one of its filters.
    """

    name: ClassVar[str] = "record"
    is_cancelled: ClassVar[bool] = False
    has_parts: ClassVar[bool] = False
    has_replicas: ClassVar[bool] = False
    is_on_agents: ClassVar[bool] = False

    def newest(self, client: "Client", state: str, *, limit: int, **filters: Any) -> Sequence[V]:
        """The newest of those records whose names are offered; ``filters`` are those of
        `muster ps`."""
        return ()

    def name_of(self, record: V | D) -> str | None:
        """The name by which people refer to it, if it has one."""
        return None

    def offers(self, record: V) -> Iterator[tuple[str, str]]:
        """References to it that are offered where one is typed, each with a word of explanation."""
        for ref in (self.name_of(record), record.id):
            if ref:
                yield ref, record.status.lower()

    def described(
        self, console: "Console", client: "Client", found: D, shown: Shown
    ) -> "Sequence[RenderableType]":
        """The record as `muster show` tells it."""
        from muster.cli.described.record import record_parts

        return record_parts(found)

    def output_of(self, client: "Client", found: D) -> "tuple[RecordView, Outputs[Any] | None]":
        """The record whose output is shown as this one's, and its outputs, if it has some.

        Raises:
            MusterError: there is none yet.
        """
        return found, None

    def as_json(self, client: "Client", found: D, shown: Shown) -> Json:
        """The record as `muster show --json` has it."""
        return found

    def why_of_part(self, client: "Client", found: D, index: int) -> "WhyView":
        """The answer of `muster why` about one of its tasks or kernels."""
        return client.why(found.id)

    def concluded(self, client: "Client", found: D) -> "tuple[Line, int]":
        """The sentence on a record that is over, and the exit code of a command that waited for it.

        Raises:
            MusterError: how it ended cannot be read.
        """
        return self.sentence_on(found), self.exit_code(found)

    def sentence_on(self, found: V | D) -> Line:
        """How a record stands, and why."""
        why = f": {sentence_of(found.reason)}" if found.reason else ""
        name = self.name_of(found) or found.id
        return Line(f"{plain(name)} ", state_word(found.standing), plain(why))

    def exit_code(self, found: D) -> int:
        """The exit code of a command that waited for a record that is over."""
        return 0


class Row(msgspec.Struct, frozen=True):
    """A line of `muster ps`.

    Args:
        prefix: what the short id begins with, so that it can be used as a REF.
        size: how much of it is done, or its type.
        tasks: how many of its tasks run, wait, and have failed, where it has several.
        gpus: how many GPUs it has, of how many that it asks for; empty if of none.
    """

    prefix: str
    name: str
    size: str
    group: str
    owner: OwnerView
    created_at: float
    started_at: float | None
    finished_at: float | None
    tasks: tuple[int, int, int] | None = None
    gpus: str = ""


def gpus_of(held_milli: int, asked_milli: int) -> str:
    """How many GPUs work has, of how many that it asks for: 8, 0/8; empty if it asks for none."""
    if not asked_milli:
        return ""
    from muster.core.resources import format_milli

    asked = format_milli(asked_milli)
    return asked if held_milli == asked_milli else f"{format_milli(held_milli)}/{asked}"


class WorkKind(Kind[V, D], ABC):
    """A kind that people hand in, wait for, cancel, and see in `muster ps`.

    Args:
        states: its states; in the initial one it waits for a place.
        scopes: by the words of ``standing``, the states to ask for in which all such work is.
        outputs: the outputs of its processes, if it has some.
    """

    is_cancelled = True
    states: "ClassVar[StateTable[Any]]"
    scopes: "ClassVar[Mapping[str, str]]" = MappingProxyType({})
    outputs: "ClassVar[Outputs[Any] | None]" = None

    def output_of(self, client: "Client", found: D) -> "tuple[RecordView, Outputs[Any] | None]":
        return found, self.outputs

    def ended(self, record: RecordView) -> bool:
        return record.status in self.states.terminal

    def standing(self, record: V | D) -> str:
        """How it stands, in a person's word, which may tell more than its state."""
        return record.status

    def kernels_left(self, record: V) -> int:
        """How many kernels of it hold room still, if it has ended."""
        return 0

    def silence(self, record: V) -> "ReasonView | None":
        """The reason that a machine of it is not heard, if one is not."""
        return None

    def stands(self, record: V) -> bool:
        """Whether it has not ended, and nothing of it runs, though it may have run: `muster ps`
        says why."""
        return bool(record.status == self.states.initial)

    @abstractmethod
    def row(self, record: V) -> Row:
        """The record as `muster ps` lists it."""

    def note(self, spec: "Spec", file: str) -> str | None:
        """A surprise that waits for the person whose file is handed in, if there is one."""
        return None

    def warnings(self, accepted: V) -> "Sequence[ReasonView]":
        """The reasons for which it waits until somebody else acts, and what of it is hardly meant,
        told when it is handed in."""
        return ()

    @abstractmethod
    def wait(self, cluster: "Cluster", accepted: V, display: "Display") -> "tuple[RecordView, int]":
        """The record once it has ended, or is left to itself, and the exit code; as much is shown
        meanwhile as the person wants.

        Raises:
            MusterError: it cannot be watched any more.
        """
