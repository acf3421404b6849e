"""Small clusters, queues and placements as data."""

from collections.abc import Sequence
from dataclasses import dataclass

from muster.core.ids import AgentId, SessionId
from muster.core.owner import Owner
from muster.core.resources import Device, DeviceShare, Resources
from muster.core.specs import ScalingGroup
from muster.scheduling.columns import Columns
from muster.scheduling.outcome import KernelPlacement, Outcome, Placed
from muster.scheduling.policy import Policy
from muster.scheduling.snapshot import Snapshot
from muster.scheduling.workload import SessionWorkload

GIB = 2**30
ANN = Owner("default", "research", "ann")


@dataclass(frozen=True, slots=True)
class Box:
    """A machine: ``box(cpu=4, gib=16, gpus=2)``."""

    capacity: Resources
    devices: tuple[Device, ...]
    status: str


def box(
    cpu: float = 4,
    gib: float = 16,
    gpus: int = 0,
    model: str = "H100",
    status: str = "ALIVE",
    **extra: float,
) -> Box:
    devices = tuple(Device(index, model) for index in range(gpus))
    return Box(ask(cpu, gib, gpus, **extra), devices, status)


def cluster(**boxes: Box) -> Snapshot:
    """A snapshot of group ``pool`` whose agents have the names of the keywords."""
    snapshot = Snapshot("pool")
    for name, machine in boxes.items():
        put(snapshot, name, machine)
    return snapshot


def put(snapshot: Snapshot, name: str, machine: Box) -> None:
    snapshot.upsert_agent(
        agent(name),
        name,
        machine.capacity,
        machine.devices,
        accepting=machine.status == "ALIVE",
        status=machine.status,
    )


def agent(name: str) -> AgentId:
    return AgentId(f"agt-{name}")


def ask(cpu: float = 1, gib: float = 0, gpu: float = 0, **extra: float) -> Resources:
    named = {name: round(amount * 1000) for name, amount in extra.items()}
    return Resources.with_extra(round(cpu * 1000), round(gib * GIB), 0, round(gpu * 1000), named)


def session(
    name: str,
    *kernels: Resources,
    at: float = 0,
    priority: int = 50,
    failed: Sequence[str] = (),
) -> SessionWorkload:
    return SessionWorkload(
        SessionId(f"ses-{name}"),
        ANN,
        "pool",
        priority,
        at,
        kernels,
        frozenset(agent(each) for each in failed),
    )


def group(**fields: object) -> ScalingGroup:
    return ScalingGroup.model_validate({"name": "pool", **fields})


def policy(starvation_after: float = 300, **parts: str) -> Policy:
    return Policy.of(group(starvation_after=starvation_after, **parts))


def where(outcomes: Sequence[Outcome]) -> dict[str, list[str]]:
    """By session, where its kernels went or the codes of the reasons why not.

    ``"a"`` is agent a, ``"a:0,1"`` its devices 0 and 1, ``"a:0=500"`` half of device 0.
    """
    return {
        outcome.session.id.removeprefix("ses-"): (
            [_place(kernel) for kernel in outcome.kernels]
            if isinstance(outcome, Placed)
            else [str(reason.code) for reason in outcome.reasons]
        )
        for outcome in outcomes
    }


def _place(kernel: KernelPlacement) -> str:
    name = kernel.agent_id.removeprefix("agt-")
    shares = [_share(share) for share in kernel.shares]
    return f"{name}:{','.join(shares)}" if shares else name


def _share(share: DeviceShare) -> str:
    return str(share.index) if share.milli == 1000 else f"{share.index}={share.milli}"


def contents(snapshot: Snapshot) -> dict[str, object]:
    """All that a snapshot says, to compare with."""
    columns = snapshot.columns
    numbers = {
        name: getattr(columns, name).tolist()
        for name, value in vars(Columns).items()
        if isinstance(value, property) and name not in ("dimensions", "models")
    }
    return numbers | {
        "dimensions": columns.dimensions,
        "models": columns.models,
        "version": snapshot.version,
        "agents": len(snapshot),
    }
