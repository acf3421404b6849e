"""Small traces and clusters as data."""

from collections.abc import Sequence
from typing import Any

from tests.scheduling.clusters import ask, group

from muster.core.owner import Owner
from muster.core.resources import Device
from muster.core.specs import QuotaSpec
from muster.simulate.cluster_file import ClusterAgent
from muster.simulate.policy_file import NamedPolicy
from muster.simulate.recording import Recording, SessionFate
from muster.simulate.replay import replay
from muster.simulate.trace import TraceSession

ANN, BOB = Owner("default", "research", "ann"), Owner("default", "research", "bob")


def comes(
    name: str,
    at: float = 0,
    runs: float = 10,
    gpu: float = 1,
    cpu: float = 1,
    kernels: int = 1,
    owner: Owner = ANN,
    **rest: Any,
) -> TraceSession:
    """A session of a trace; ``rest`` are further fields."""
    return TraceSession(name, at, runs, (ask(cpu, 0, gpu),) * kernels, owner, **rest)


def machine(name: str = "a", gpus: int = 1, cpu: float = 32) -> ClusterAgent:
    devices = tuple(Device(index, "H100") for index in range(gpus))
    return ClusterAgent(name, ask(cpu, 64, gpus), devices)


def policy(quotas: Sequence[dict[str, Any]] = (), **fields: Any) -> NamedPolicy:
    specs = tuple(QuotaSpec.model_validate(each) for each in quotas)
    return NamedPolicy("the policy", group(**fields), specs)


def replayed(
    *trace: TraceSession,
    on: Sequence[ClusterAgent] = (machine(),),
    under: NamedPolicy | None = None,
    **how: Any,
) -> Recording:
    return replay(trace, on, under or policy(), **how)


def starts(recording: Recording) -> dict[str, float | None]:
    return {fate.name: fate.started_at for fate in recording.fates}


def fate(recording: Recording, name: str) -> SessionFate:
    (found,) = [fate for fate in recording.fates if fate.name == name]
    return found


def codes(recording: Recording, name: str) -> list[str]:
    return [str(each.code) for each in fate(recording, name).reasons]
