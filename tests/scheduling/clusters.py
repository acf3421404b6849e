"""Small clusters, queues and placements as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from muster.core.ids import AgentId, SessionId
from muster.core.owner import Owner
from muster.core.resources import Device, DeviceShare, Resources
from muster.core.specs import Dependency, PlacementSpec, ScalingGroup
from muster.scheduling.cluster.columns import Columns
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.making_room.reservation import Reservation
from muster.scheduling.passes.group_state import GroupState
from muster.scheduling.passes.pass_result import PassResult
from muster.scheduling.passes.placement import place
from muster.scheduling.passes.queue import Kept, Queue
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.plugins import PassContext
from muster.scheduling.workload import (
    Classes,
    KernelPlacement,
    RunningSession,
    SessionWorkload,
    WorkloadClass,
)

GIB = 2**30
ANN = Owner("default", "research", "ann")
BOB = Owner("default", "research", "bob")
CLASSES = Classes()
AWAY = "not connected"  # the status of an agent that is counted on all the same


@dataclass(frozen=True, slots=True)
class Box:
    """A machine: ``box(cpu=4, gib=16, gpus=2)``."""

    capacity: Resources
    devices: tuple[Device, ...]
    status: str
    attributes: Mapping[str, str] = field(default_factory=dict)


def box(
    cpu: float = 4,
    gib: float = 16,
    gpus: int = 0,
    model: str | Sequence[str] = "H100",
    status: str = "ALIVE",
    has: Mapping[str, str] | None = None,
    **extra: float,
) -> Box:
    """``model`` may be one for each of the GPUs; ``has`` are the agent's attributes."""
    models = [model] * gpus if isinstance(model, str) else model
    devices = tuple(Device(index, each) for index, each in enumerate(models))
    return Box(ask(cpu, gib, gpus, (), **extra), devices, status, has or {})


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
        attributes=machine.attributes,
        returning=machine.status == AWAY,
    )


def agent(name: str) -> AgentId:
    return AgentId(f"agt-{name}")


def ask(
    cpu: float = 1, gib: float = 0, gpu: float = 0, models: Sequence[str] = (), **extra: float
) -> Resources:
    named = {name: round(amount * 1000) for name, amount in extra.items()}
    amounts = round(cpu * 1000), round(gib * GIB), 0, round(gpu * 1000)
    return Resources.with_extra(*amounts, named, models)


def workload(
    *kernels: Resources,
    owner: Owner = ANN,
    priority: int = 50,
    failed: Sequence[str] = (),
    runs_s: float | None = None,
    after: Sequence[Dependency] = (),
    not_before: float | None = None,
    preemptible: bool = True,
    port: int | None = None,
    **placement: object,
) -> WorkloadClass:
    """The class of sessions that ask for ``kernels``; further keywords are of ``placement:``."""
    return CLASSES.one(
        WorkloadClass(
            owner,
            "pool",
            priority,
            kernels,
            placement=PlacementSpec.model_validate(placement),
            failed_agents=frozenset(agent(each) for each in failed),
            duration_s=runs_s,
            not_before=not_before,
            after=tuple(after),
            preemptible=preemptible,
            port=port,
        )
    )


def session(name: str, *kernels: Resources, at: float = 0, **rest: Any) -> SessionWorkload:
    """A waiting session; ``rest`` are keywords of ``workload``."""
    return SessionWorkload(SessionId(f"ses-{name}"), at, workload(*kernels, **rest))


def running(
    name: str, *places: str, kernels: Sequence[Resources], since: float = 0, **rest: Any
) -> RunningSession:
    """A session that holds ``places``, written as ``where`` writes them."""
    its = workload(*kernels, **rest)
    ends_at = None if its.duration_s is None else since + its.duration_s
    placements = tuple(map(_placement, places))
    return RunningSession(SessionId(f"ses-{name}"), its, placements, since, ends_at)


def _placement(place: str) -> KernelPlacement:
    name, _, devices = place.partition(":")
    shares = []
    for device in filter(None, devices.split(",")):
        index, _, milli = device.partition("=")
        shares.append(DeviceShare(int(index), int(milli or 1000)))
    return KernelPlacement(agent(name), tuple(shares))


def group(**fields: object) -> ScalingGroup:
    return ScalingGroup.model_validate({"name": "pool", **fields})


def policy(starvation_after: float = 300, **parts: Any) -> Policy:
    return Policy.of(group(starvation_after=starvation_after, **parts))


def context(
    snapshot: Snapshot, *holding: RunningSession, now: float = 10, **rest: Any
) -> PassContext:
    """A pass while ``holding`` hold their places; ``rest`` are further fields."""
    return PassContext(snapshot, now, running={each.id: each for each in holding}, **rest)


def occupy(snapshot: Snapshot, *holding: RunningSession) -> None:
    """Take from the snapshot what they hold."""
    for each in holding:
        for request, kernel in zip(each.workload.kernels, each.kernels, strict=True):
            snapshot.take(kernel.agent_id, request, kernel.shares)


def leave(snapshot: Snapshot, *holding: RunningSession) -> None:
    """Give back to the snapshot what they hold."""
    for each in holding:
        for request, kernel in zip(each.workload.kernels, each.kernels, strict=True):
            snapshot.give_back(kernel.agent_id, request, kernel.shares)


def passed(
    snapshot: Snapshot,
    *sessions: SessionWorkload,
    holding: Sequence[RunningSession] = (),
    now: float = 10,
    **parts: Any,
) -> PassResult:
    """One pass over a new queue; ``holding`` must have been taken from the snapshot already."""
    return place(Queue(sessions), snapshot, policy(**parts), context(snapshot, *holding, now=now))


def where(result: PassResult) -> dict[str, list[str]]:
    """By session, where its kernels went or the codes of the reasons why not: first what was
    placed, in that order.

    ``"a"`` is agent a, ``"a:0,1"`` its devices 0 and 1, ``"a:0=500"`` half of device 0.
    """
    decided = {name_of(session): places(kernels) for session, kernels in result.placed}
    for members, reasons in result.refused.items():
        for session in members:
            decided.setdefault(name_of(session), [str(reason.code) for reason in reasons])
    return decided


def places(kernels: Sequence[KernelPlacement]) -> list[str]:
    """As ``where`` writes them."""
    return [_place(kernel) for kernel in kernels]


def sentences(result: PassResult) -> list[str]:
    """Why the classes that wait do so."""
    return [reason.sentence() for reasons in result.refused.values() for reason in reasons]


def name_of(session: SessionWorkload | RunningSession) -> str:
    return _name(session.id)


def _name(id_: SessionId) -> str:
    return id_.removeprefix("ses-")


class World:
    """A group in virtual time, in which every session that starts ends when it has run."""

    def __init__(
        self,
        snapshot: Snapshot,
        policy: Policy,
        runs_s: Mapping[str, float] | None = None,
        longest_s: float = 4,
    ) -> None:
        """
        Args:
            runs_s: how long sessions really run, by name; what they said they would is in their
                class.
            longest_s: how long all others run.
        """
        self.state = GroupState(snapshot, policy)
        self.runs_s = dict(runs_s or {})
        self.longest_s = longest_s
        self.now: float = 0
        self.started_at: dict[str, float] = {}

    def arrive(self, *sessions: SessionWorkload) -> None:
        for each in sessions:
            self.state.submit(each)

    def context(self) -> PassContext:
        return self.state.context(self.now)

    def end(self) -> None:
        """Sessions that have run long enough leave."""
        for id_, held in list(self.state.placed.items()):
            if held.since + self.runs_s.get(_name(id_), self.longest_s) <= self.now:
                self.leave(id_)

    def leave(self, id_: SessionId) -> None:
        self.state.end(id_, self.now)

    def pass_(self) -> PassResult:
        """A pass, and what it placed starts."""
        result = self.state.run_pass(self.now)
        for placed in result.placed:
            self.state.start(placed, self.now)
            self.started_at[name_of(placed.session)] = self.now
        return result


def _place(kernel: KernelPlacement) -> str:
    name = kernel.agent_id.removeprefix("agt-")
    shares = [_share(share) for share in kernel.shares]
    return f"{name}:{','.join(shares)}" if shares else name


def _share(share: DeviceShare) -> str:
    return str(share.index) if share.milli == 1000 else f"{share.index}={share.milli}"


def contents(snapshot: Snapshot) -> dict[str, object]:
    """All that a snapshot says, to compare with."""
    columns = snapshot.columns
    answers = {
        name: getattr(columns, name)
        for name, value in vars(Columns).items()
        if isinstance(value, property)
    }
    numbers = {
        name: answer.tolist() for name, answer in answers.items() if isinstance(answer, np.ndarray)
    }
    return numbers | {
        "dimensions": columns.dimensions,
        "models": columns.models,
        "version": snapshot.version,
        "next_slot": snapshot.next_slot,
        "agents": len(snapshot),
    }


def kept(decided: Queue | PassResult) -> Kept | None:
    """The room kept for the first session that lacks room."""
    return next(iter(decided.rooms.values()), None)


def reservation(decided: Queue | PassResult) -> Reservation | None:
    """The reservation of the first session that lacks room."""
    first = kept(decided)
    return None if first is None else first.reservation
