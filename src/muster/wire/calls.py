"""The calls of agents and of the controller beside the stream: joining, and reading output."""

from dataclasses import dataclass
from typing import Protocol

from muster.core.ids import AgentId, KernelId
from muster.core.reasons import Reason


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """The first contact of an agent, which chose ``credential`` itself and asks to be known by it.

    ``token`` is a join token. The same request again has the same answer.
    """

    token: str
    name: str
    group: str
    credential: str


@dataclass(frozen=True, slots=True)
class JoinReply:
    """The request's credential is this agent's from now on."""

    agent: AgentId


class AgentTurnedAway(Exception):
    """The controller refuses an agent; the text says why, in a sentence."""


class NotNow(AgentTurnedAway):
    """The controller cannot take the agent in now; time may cure that."""


class Dismissed(AgentTurnedAway):
    """The credential belongs to a former agent: it was removed, or another machine has its name. It
    is to end all of its kernels."""


class Gatekeeper(Protocol):
    """The credentials of agents; filled by control."""

    async def join(self, request: JoinRequest) -> JoinReply:
        """Take in a new agent.

        Raises:
            AgentTurnedAway: wrong token, unknown group, or a name that another agent has.
            NotNow: the controller is too busy, or what the name's former agent held may run still.
        """
        ...

    def authenticate(self, credential: str) -> AgentId | None:
        """The agent that this credential is bound to, or None. Called on the gateway's thread.

        Raises:
            Dismissed: there is no such agent any more.
        """
        ...


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Read a kernel's output. ``offset`` is in bytes of all that was written since its start;
    a negative one counts from the end. ``follow`` goes on until the kernel has ended. ``stderr``
    reads that alone, and counts the bytes of that."""

    kernel: KernelId
    generation: int
    offset: int = 0
    limit_bytes: int = 1024 * 1024
    follow: bool = False
    stderr: bool = False


@dataclass(frozen=True, slots=True)
class LogChunk:
    """A piece of output that begins at ``offset``; ``eof`` says that no more will come. ``removed``
    is why there is none, where the agent removed the output."""

    offset: int
    data: bytes
    eof: bool = False
    removed: Reason | None = None


class StderrNotApart(Exception):
    """The answer to a request for a kernel's stderr alone, which was not kept apart."""

    def __init__(self) -> None:
        super().__init__(
            "its stdout and stderr were kept together, in the order in which they were written: "
            "hand it in with `stderr: apart` (`muster run --stderr apart`) to have stderr kept by "
            "itself, too"
        )
