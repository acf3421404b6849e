"""What a placement pass says of each session."""

from dataclasses import dataclass
from typing import TypeAlias

from muster.core.ids import AgentId
from muster.core.reasons import Reason
from muster.core.resources import DeviceShare
from muster.scheduling.workload import SessionWorkload


@dataclass(frozen=True, slots=True)
class KernelPlacement:
    """Where one kernel goes, and which devices of that agent it holds."""

    agent_id: AgentId
    shares: tuple[DeviceShare, ...] = ()


@dataclass(frozen=True, slots=True)
class Placed:
    """The session starts; ``kernels[i]`` is the place of its kernel i."""

    session: SessionWorkload
    kernels: tuple[KernelPlacement, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """The session does not start now; nothing of it is held."""

    session: SessionWorkload
    reasons: tuple[Reason, ...]


Outcome: TypeAlias = Placed | Refused
