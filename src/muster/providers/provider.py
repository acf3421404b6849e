"""The interface of a provider, and the words in which it is asked and answers.

A provider keeps nothing that matters: what it made is known by its tags. A slice is made under its
id, and made once however often it is asked for: where an answer was lost the call is repeated, and
the machines that the first call made are found and answered. Calls block, and are made on threads
of the caller, several at once; those about one slice one after the other. Each ends by itself
within ``CALL_S``, or is given up and counts as unanswered.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from muster.autoscaling.standing import MAX_TOLD, CreateOutcome
from muster.core.errors import MusterError, Problem
from muster.core.specs.pool import MachineShape, PoolSpec

MAX_LOG = 2048
"""Characters of the last words of a machine; longer ones are cut at their beginning."""
CALL_S = 60.0
"""How long a call may take before its caller gives it up; a provider sets its own limits below."""


class ProviderError(MusterError):
    """A call that did not do what it was to do.

    Args:
        outcome: of which kind; anything but UNKNOWN promises that nothing was made, so a provider
            that cannot tell says UNKNOWN.
        told: the provider's own words, cut to a length that can be shown; no secrets.
    """

    def __init__(self, outcome: CreateOutcome, told: str) -> None:
        self.outcome = outcome
        self.told = " ".join(told.split())[:MAX_TOLD]
        super().__init__(f"{outcome}: {self.told}")


class MachineState(StrEnum):
    """A machine as its provider sees it. One that is gone is listed no more."""

    COMING = "coming"  # being made, or booting
    RUNNING = "running"
    STOPPED = "stopped"  # it does not run, and does not leave by itself
    LEAVING = "leaving"  # being deleted


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of a slice.

    Args:
        id: the provider's, by which it is rebooted.
        slice: the id of the slice, as its tag says.
        name: the name that its agent takes.
        address: where it is reached, for people; empty while unknown.
        leaves_at: when the provider will take it away, in seconds since the epoch; None if nothing
            of that kind is announced.
        detail: what the provider says of it, for people.
    """

    id: str
    slice: str
    name: str
    state: MachineState
    address: str = ""
    leaves_at: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class MachineListing:
    """The machines of a pool. ``complete`` says that no others exist: where the provider answered
    in part only, a machine that is missing may exist all the same."""

    machines: tuple[Machine, ...]
    complete: bool = True


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """How a machine becomes an agent: ``muster agent`` with these settings. The token fixes the
    agent's attributes.

    Args:
        controller: "host:port" of the controller's port for agents.
        group: the scaling group that it joins.
        token: the slice's join token; a secret.
        authority: PEM of the authority that the controller's certificate descends from; None where
            the port has no TLS.
        accounts: for machines that are the controller's own, a file there with the accounts of
            users.
        uids: the range from which the controller gives uids to users, as FIRST-LAST, where an
            operator chose it; None where all agents allow it.
    """

    controller: str
    group: str
    token: str = field(repr=False)
    authority: str | None = None
    accounts: Path | None = None
    uids: str | None = None


@dataclass(frozen=True, slots=True)
class SliceOrder:
    """A slice to be made.

    Args:
        slice: its id, which is its tag and the key by which it is made once.
        names: of the agents, one for each machine.
        shape: of each machine.
        preemptible: whether the machines may be such that the provider takes back.
        attributes: of the machines, which a provider may use as labels.
        setup: how they become agents.
    """

    slice: str
    names: tuple[str, ...]
    shape: MachineShape
    preemptible: bool
    attributes: Mapping[str, str]
    setup: AgentSetup


@dataclass(frozen=True, slots=True)
class Scope:
    """The responsibility of a provider: the machines of one pool of one cluster.

    Args:
        cluster: the cluster's id: letters, digits and dashes.
        pool: the pool's name.
        directory: where the provider may keep files of its own, such as keys and logs; it need not
            exist.
    """

    cluster: str
    pool: str
    directory: Path


class Provider(ABC):
    """Machines of one pool. A provider touches nothing that has not the tags of its scope.

    Args:
        spec: the pool; its ``settings`` are the provider's own.
        scope: of the pool.

    Raises:
        InvalidSpec: the settings are wrong (see ``problems``).
    """

    name: ClassVar[str]
    is_beside: ClassVar[bool] = False
    """Whether its machines are the controller's own, so that they reach it over loopback."""

    def __init__(self, spec: PoolSpec, scope: Scope) -> None:
        self.spec = spec
        self.scope = scope

    @classmethod
    @abstractmethod
    def problems(cls, spec: PoolSpec) -> Iterable[Problem]:
        """Everything wrong with a pool's settings that can be told without asking anybody; fields
        begin with ``settings.``."""

    @abstractmethod
    def check(self) -> None:
        """Ask the provider whether such machines could be made: credentials, images, limits. Makes
        nothing.

        Raises:
            ProviderError: why not.
        """

    @abstractmethod
    def create(self, order: SliceOrder) -> tuple[Machine, ...]:
        """Make the machines of a slice, or find those that an earlier call made. All or none: what
        was made of a slice that cannot be made whole is deleted before this raises.

        Raises:
            ProviderError: why it was not made; UNKNOWN where some of it may have been.
        """

    @abstractmethod
    def delete(self, slice_: str) -> bool:
        """Delete the machines of a slice; the answer says whether all of them are gone now. It is
        repeated until they are. A slice that is not known is gone.

        Raises:
            ProviderError: it could not be done, or not be known.
        """

    def give_up(self, slice_: str) -> None:
        """Take note that the machines of a slice, which could not be deleted, are off for good: an
        operator vouches for it. A machine that is seen again all the same is listed, and deleted
        then.

        Raises:
            ProviderError: it could not be noted. The slice ends all the same.
        """
        return

    @abstractmethod
    def list(self) -> MachineListing:
        """The machines of the pool, whatever slices they are of.

        Raises:
            ProviderError: nothing is known of them.
        """

    @abstractmethod
    def reboot(self, machine: Machine, *, hard: bool = False) -> None:
        """Have a machine boot anew; it keeps its disk, and its agent comes back by itself.

        Args:
            hard: without asking its operating system.

        Raises:
            ProviderError: it could not be told.
        """

    def log(self, machine: Machine) -> str:
        """The last words of a machine that does not join: of its agent, its first boot or its
        console, ``MAX_LOG`` characters of them at most; empty where there are none.

        Raises:
            ProviderError: they cannot be read.
        """
        return ""

    def forget(self) -> None:
        """Remove the provider's own files from the scope's directory: the pool is being deleted,
        has no slice any more, and ``list`` has just answered that there is no machine.

        Raises:
            ProviderError: some are left.
        """
        return

    def close(self) -> None:
        """End connections and processes of this object; machines stay."""
        return
