"""Effects: control's wishes at the outside world (design: Effects).

A handler emits an effect; once the wake is committed the effect goes to the performer of its kind,
and its outcome comes back as an input. The wish is state in the database: the effect is only its
messenger, and is emitted again from that state after a restart, or when no outcome came in time.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from sqlalchemy import Engine

if TYPE_CHECKING:
    from muster.control.engine.inputs import Input

E = TypeVar("E")

ORDERS: set[type] = set()
"""The kinds of effects that only the controller in charge may have: a wake that emits one is
committed even where it writes nothing, because each commit looks at the fence. The modules of such
kinds add them."""


class Performer(ABC, Generic[E]):
    """Carries out the effects of one kind. It decides nothing, and has no state that may not be
    lost.

    It may be given the same effect twice, which must do no harm. Its queue is bounded, each attempt
    has a time-out, and an attempt that hangs delays neither the control plane nor other attempts.
    """

    kind: ClassVar[type]

    @abstractmethod
    def perform(self, effects: Sequence[E]) -> None:
        """Take effects, in the order in which they were emitted. The call neither waits nor raises:
        an effect that cannot be taken is dropped, and will be emitted again."""

    def close(self) -> None:
        """End the performer's threads and processes; effects that were not carried out come again
        from state."""


@dataclass(slots=True)
class AgentsDoor:
    """The addresses at which agents reach the controller, as "host:port", once it listens: from its
    own machine (``beside``), and from others (``elsewhere``, empty if they cannot). ``authority``
    is the PEM of the authority that its certificate descends from, None without TLS. ``accounts``
    is a file with the accounts that users have on its own machine, None if there is none."""

    beside: str = ""
    elsewhere: str = ""
    authority: str | None = None
    accounts: Path | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The parts of the controller's process that modules get, for their performers.

    Args:
        engine: the database, where a performer reads what an effect names by its id alone, such as
            a secret; on a thread of its own.
        report: takes the outcome of an effect, from any thread: an input of a later wake.
        settings: the folder with operators' settings; None where nothing can be set.
        on_loopback: whether only processes of this machine can reach the controller.
        door: where agents reach it.
        boot_id, machine_id: of the controller's own machine; empty where it has none.
        uids: from which users are given uids; None is the range that follows from the cluster's id.
        in_charge: whether the controller is still the one that works on its database, as far as it
            has heard lately; from any thread. Performers that repeat what was wished before ask it.
    """

    engine: Engine
    report: "Callable[[Input], None]"
    settings: Path | None = None
    on_loopback: bool = True
    door: AgentsDoor = field(default_factory=AgentsDoor)
    boot_id: str = ""
    machine_id: str = ""
    uids: range | None = None
    in_charge: "Callable[[], bool]" = lambda: True
