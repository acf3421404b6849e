"""States of an agent. Unreachable is not failed (design: Silence is not failure)."""

from enum import StrEnum

from muster.core.states.table import StateTable


class AgentStatus(StrEnum):
    ALIVE = "ALIVE"
    UNREACHABLE = "UNREACHABLE"  # silent; its kernels are unknown and still charged
    LOST = "LOST"  # silent past the kernel lease; its kernels have stopped
    REMOVED = "REMOVED"


class AgentBar(StrEnum):
    """Why an agent takes no new work although it could; its kernels run on for the time being
    (design: Machine health)."""

    CORDONED = "cordoned"  # an operator said so
    DRAINING = "draining"  # the same, and its kernels have to leave; it stays so when empty


_A = AgentStatus

AGENT_TABLE: StateTable[AgentStatus] = StateTable(
    "agent",
    initial=_A.ALIVE,
    terminal=frozenset({_A.REMOVED}),
    allowed={
        (_A.ALIVE, _A.UNREACHABLE): "silent",
        (_A.UNREACHABLE, _A.ALIVE): "speaks again",
        (_A.UNREACHABLE, _A.LOST): "kernel lease ran out",
        (_A.LOST, _A.ALIVE): "speaks again",
        (_A.ALIVE, _A.REMOVED): "removed",
        (_A.UNREACHABLE, _A.REMOVED): "removed",
        (_A.LOST, _A.REMOVED): "removed",
    },
    words={
        _A.ALIVE: "answers again",
        _A.UNREACHABLE: "fell silent",
        _A.LOST: "is lost",
        _A.REMOVED: "was removed",
    },
)
