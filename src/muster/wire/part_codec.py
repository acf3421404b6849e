"""The parts of messages in protobuf form and back: keys of kernels, shares of devices, amounts."""

from collections.abc import Iterable

from muster.core.ids import KernelId
from muster.core.resources import DeviceShare, Resources
from muster.core.uids import ClusterUid
from muster.wire import agent_pb2 as pb
from muster.wire.messages import KernelKey


def encode_key(key: KernelKey) -> pb.KernelKey:
    return pb.KernelKey(kernel=key[0], generation=key[1])


def decode_key(key: pb.KernelKey) -> KernelKey:
    return KernelId(key.kernel), key.generation


def encode_shares(shares: tuple[DeviceShare, ...]) -> list[pb.DeviceShare]:
    return [pb.DeviceShare(index=share.index, milli=share.milli) for share in shares]


def decode_shares(shares: Iterable[pb.DeviceShare]) -> tuple[DeviceShare, ...]:
    return tuple([DeviceShare(share.index, share.milli) for share in shares])


def encode_resources(resources: Resources) -> pb.Resources:
    return pb.Resources(
        cpu_milli=resources.cpu_milli,
        memory_bytes=resources.memory_bytes,
        disk_bytes=resources.disk_bytes,
        gpu_milli=resources.gpu_milli,
        extra=dict(resources.extra),
    )


def decode_resources(resources: pb.Resources) -> Resources:
    return Resources.with_extra(
        resources.cpu_milli,
        resources.memory_bytes,
        resources.disk_bytes,
        resources.gpu_milli,
        resources.extra,
    )


def encode_uid(uid: ClusterUid) -> pb.ClusterUid:
    return pb.ClusterUid(cluster=uid.cluster, uid=uid.uid)


def decode_uid(uid: pb.ClusterUid) -> ClusterUid:
    return ClusterUid(uid.cluster, uid.uid if uid.HasField("uid") else None)
