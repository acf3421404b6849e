"""Sightings by agents of their own health, the means of their GPUs, and the services that they are
asked for, in protobuf form and back."""

from collections.abc import Iterable, Mapping

from muster.core.health.counters import GpuMeans
from muster.core.health.remedy import Remedy
from muster.core.health.service import Service, ServiceName
from muster.core.health.verdict import MAX_WHAT
from muster.core.text import made_text
from muster.wire import agent_pb2 as pb
from muster.wire.messages import HealthSeen, MalformedMessage, Sighting

_REMEDIES: Mapping[str, Remedy] = {each.value: each for each in Remedy}
_SERVICES: Mapping[str, ServiceName] = {each.value: each for each in ServiceName}


def encode_sightings(seen: HealthSeen) -> pb.HealthSeen:
    return pb.HealthSeen(
        sightings=[
            pb.Sighting(
                seq=each.seq,
                remedy=each.remedy,
                what=made_text(each.what, MAX_WHAT),
                devices=each.devices,
                confirmed=each.confirmed,
                boot_id=each.boot_id,
                at=each.at,
            )
            for each in seen.sightings
        ]
    )


def decode_sightings(seen: pb.HealthSeen) -> HealthSeen:
    """The message. A remedy that only a newer agent knows becomes a check: refusing the message
    would make the agent repeat it for ever."""
    return HealthSeen(
        tuple(
            Sighting(
                each.seq,
                _REMEDIES.get(each.remedy, Remedy.CHECK),
                each.what,
                tuple(each.devices),
                each.confirmed,
                each.boot_id,
                each.at,
            )
            for each in seen.sightings
        )
    )


def encode_gpu_means(gpus: Iterable[GpuMeans]) -> list[pb.GpuMeans]:
    return [
        pb.GpuMeans(
            device=each.device, busy=each.busy, clock_mhz=each.clock_mhz, power_w=each.power_w
        )
        for each in gpus
    ]


def decode_gpu_means(gpus: Iterable[pb.GpuMeans]) -> tuple[GpuMeans, ...]:
    return tuple(
        GpuMeans(
            each.device,
            each.busy if each.HasField("busy") else None,
            each.clock_mhz if each.HasField("clock_mhz") else None,
            each.power_w if each.HasField("power_w") else None,
        )
        for each in gpus
    )


def encode_service(service: Service) -> pb.Service:
    return pb.Service(
        name=service.name,
        devices=service.devices,
        level=service.level,
        checks=service.checks,
        observe=service.observe,
        timeout_s=service.timeout_s,
        why=service.why,
        clock_ahead_s=service.clock_ahead_s,
    )


def decode_service(service: pb.Service) -> Service:
    """
    Raises:
        MalformedMessage: a service that this version does not know.
    """
    name = _SERVICES.get(service.name)
    if name is None:
        told = repr(service.name[:64])
        raise MalformedMessage(f"a service that this version does not know: {told}")
    return Service(
        name,
        tuple(service.devices),
        service.level,
        tuple(service.checks),
        tuple(service.observe),
        service.timeout_s,
        service.why,
        service.clock_ahead_s if service.HasField("clock_ahead_s") else None,
    )
