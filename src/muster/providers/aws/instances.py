"""EC2's answers about instances, read: which are whose, and as which machines they are told."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from muster.providers.aws.launch import CLUSTER, MACHINE, POOL, SLICE
from muster.providers.provider import Machine, MachineState, Scope

NOTICE_S = 120.0
"""From a spot notice to the end of the instance."""
NOTICES = ("marked-for-termination", "marked-for-stop")
"""Status codes of a spot request whose instance is about to be taken back. A recommendation to
rebalance is none: most such instances stay."""
_STATES = {
    "pending": MachineState.COMING,
    "running": MachineState.RUNNING,
    "stopping": MachineState.STOPPED,
    "stopped": MachineState.STOPPED,
    "shutting-down": MachineState.LEAVING,
}
_TERMINATED = "terminated"


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance of the pool.

    Args:
        slice: as its tag says.
        name: as its tag says; empty before it has one.
        index: its place in its launch.
        reservation: id of its launch.
        token: the client token of its launch.
        state: EC2's word.
        launched: seconds since the epoch.
        spot: whether EC2 may take it back.
        stoppable: whether it can be stopped and started again.
        reason: code of the reason for its state; empty if there is none.
    """

    id: str
    slice: str
    name: str
    index: int
    reservation: str
    token: str
    state: str
    launched: float
    spot: bool
    stoppable: bool
    address: str
    reason: str
    detail: str

    @property
    def terminated(self) -> bool:
        return self.state == _TERMINATED

    @property
    def ended(self) -> bool:
        """Whether it is terminated, or is being terminated."""
        return self.terminated or self.state == "shutting-down"

    def machine(self, name: str = "", leaves_at: float | None = None) -> Machine:
        """
        Args:
            name: of the machine, if it is known otherwise than by the tag. A machine that nobody
                can name yet is told by its id, which no agent has.
        """
        state = _STATES.get(self.state, MachineState.COMING)
        told = self.name or name or self.id
        return Machine(self.id, self.slice, told, state, self.address, leaves_at, self.detail)


def instances_in(answer: Mapping[str, Any], scope: Scope) -> Iterator[Instance]:
    """The instances of an answer of DescribeInstances that have the tags of ``scope``, those that
    ended included."""
    for reservation in answer.get("Reservations", ()):
        yield from instances_of(reservation, scope)


def instances_of(reservation: Mapping[str, Any], scope: Scope) -> Iterator[Instance]:
    """The instances of a reservation, which also is the answer of RunInstances, that have the tags
    of ``scope``."""
    for each in reservation.get("Instances", ()):
        own = {tag["Key"]: tag["Value"] for tag in each.get("Tags", ())}
        if own.get(CLUSTER) == scope.cluster and own.get(POOL) == scope.pool and own.get(SLICE):
            yield _read(each, own, str(reservation.get("ReservationId", "")))


def _read(each: Mapping[str, Any], own: Mapping[str, str], reservation: str) -> Instance:
    spot = each.get("InstanceLifecycle") == "spot"
    reason = each.get("StateReason", {})
    market = "spot" if spot else "on demand"
    zone = each.get("Placement", {}).get("AvailabilityZone", "")
    told = [f"{each.get('InstanceType', '')} in {zone}, {market}", reason.get("Message", "")]
    launched = each.get("LaunchTime")
    return Instance(
        id=each["InstanceId"],
        slice=own[SLICE],
        name=own.get(MACHINE, ""),
        index=int(each.get("AmiLaunchIndex", 0)),
        reservation=reservation,
        token=each.get("ClientToken", ""),
        state=each.get("State", {}).get("Name", ""),
        launched=launched.timestamp() if isinstance(launched, datetime) else 0.0,
        spot=spot,
        stoppable=not spot and each.get("RootDeviceType", "ebs") == "ebs",
        address=each.get("PublicIpAddress") or each.get("PrivateIpAddress") or "",
        reason=reason.get("Code", ""),
        detail="; ".join(filter(None, told))[:300],
    )


def notices_in(answer: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """From an answer of DescribeSpotInstanceRequests: ids of the instances that are about to be
    taken back, and when, in seconds since the epoch."""
    for request in answer.get("SpotInstanceRequests", ()):
        status = request.get("Status", {})
        since = status.get("UpdateTime")
        if status.get("Code") in NOTICES and isinstance(since, datetime):
            yield request.get("InstanceId", ""), since.timestamp() + NOTICE_S


def launches(instances: Iterable[Instance]) -> list[list[Instance]]:
    """The instances by launch, the oldest first, each launch in its order."""
    by_launch: dict[str, list[Instance]] = {}
    for each in instances:
        by_launch.setdefault(each.reservation, []).append(each)
    for members in by_launch.values():
        members.sort(key=lambda each: each.index)
    return sorted(by_launch.values(), key=_age)


def _age(launch: Sequence[Instance]) -> tuple[float, str]:
    return launch[0].launched, launch[0].reservation
