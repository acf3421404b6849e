"""A pool of a scaling group as operators write it: machines of one kind that a provider makes."""

import json
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from muster.core.errors import Problem
from muster.core.resources import GPU_WHOLE, MAX_DEVICES, Device, Resources
from muster.core.specs.amounts import (
    Bytes,
    Duration,
    Extra,
    Flag,
    Milli,
    Name,
    PositiveDuration,
    ShortText,
    Spec,
    Whole,
)
from muster.core.specs.placement import AttributeName

MAX_SLICES = 10_000
MAX_SLICE_SIZE = 1_000
MAX_SETTINGS_BYTES = 64 * 1024
DEFAULT_PRIORITY = 100
"""The priority of a pool that names none (source: Iris)."""

POOL, SLICE, PREEMPTIBLE = "pool", "slice", "preemptible"
RESERVED = (POOL, SLICE, PREEMPTIBLE)
"""Attributes that every machine of a pool has by itself: the pool's name, the slice's id, and
whether the provider may take the machine away (``true`` or ``false``)."""

_Price = Annotated[float, Field(ge=0, le=1_000_000)]


class MachineShape(Spec):
    """A machine of a provider, as kernels may use it.

    Args:
        cpu: processors.
        memory, disk: bytes.
        gpus: devices.
        gpu_model: their model, as the driver names it: "NVIDIA H100 80GB HBM3".
        gpu_memory: bytes of each device.
        extra: further resources that its agent declares, by name.
    """

    cpu: Annotated[Milli, Field(gt=0)]
    memory: Annotated[Bytes, Field(gt=0)]
    disk: Bytes = 0
    gpus: Annotated[Whole, Field(ge=0, le=MAX_DEVICES)] = 0
    gpu_model: Annotated[str, StringConstraints(max_length=100, strip_whitespace=True)] = ""
    gpu_memory: Bytes = 0
    extra: Extra = Field(default_factory=dict)

    @cached_property
    def devices(self) -> tuple[Device, ...]:
        return tuple(
            Device(index, self.gpu_model, memory_bytes=self.gpu_memory)
            for index in range(self.gpus)
        )

    def capacity(self, kernels: int) -> Resources:
        """The capacity that an agent on such a machine declares, if it may hold so many kernels."""
        milli = self.gpus * GPU_WHOLE
        return Resources.with_extra(
            self.cpu, self.memory, self.disk, milli, self.extra, kernels=kernels
        )


class PoolSpec(Spec):
    """Machines of one kind that a provider makes for a scaling group, in slices.

    Args:
        name: the pool's name; no other pool of the cluster has it.
        group: the scaling group whose demand it serves.
        provider: the name of a ``muster.providers`` plug-in: ``local``, ``ssh``, ``aws-ec2``,
            ``kubernetes``, ``script``, or one that is installed.
        settings: the provider's, as it documents them: a launch template, a list of hosts; at most
            64 KiB as JSON.
        machine: the shape of each machine.
        slice_size: machines that are made and deleted together.
        min_slices: as many there are at least, whether there is demand or not.
        max_slices: as many there are at most, those being deleted included.
        buffer_slices: so many idle slices are kept ready for the next demand.
        priority: of several pools that can serve demand, the one with the lowest is taken.
        preemptible: whether the provider may take machines away at short notice.
        attributes: of its machines, by which constraints choose agents.
        idle_timeout: a slice without work is deleted after so long.
        request_timeout: the longest that a slice may be REQUESTING: until the provider has made it.
        boot_timeout: the longest that it may be BOOTING: until a machine has joined.
        join_timeout: the longest that it may be INITIALIZING: until all have, with their devices.
        price: of a machine for an hour, in any currency.
        quota_key: pools with the same key share the provider's quota: if it refuses one of them
            for want of quota, all are closed for a while.
    """

    kind: Literal["pool"] = "pool"
    name: Name
    group: Name = "default"
    provider: Name
    settings: Annotated[dict[Name, Any], Field(max_length=100)] = Field(default_factory=dict)
    machine: MachineShape
    slice_size: Annotated[Whole, Field(ge=1, le=MAX_SLICE_SIZE)] = 1
    min_slices: Annotated[Whole, Field(ge=0, le=MAX_SLICES)] = 0
    max_slices: Annotated[Whole, Field(ge=0, le=MAX_SLICES)]
    buffer_slices: Annotated[Whole, Field(ge=0, le=MAX_SLICES)] = 0
    priority: Annotated[Whole, Field(ge=0, le=10_000)] = DEFAULT_PRIORITY
    preemptible: Flag = False
    attributes: Annotated[dict[AttributeName, ShortText], Field(max_length=32)] = Field(
        default_factory=dict
    )
    idle_timeout: Duration = 600.0
    request_timeout: PositiveDuration = 300.0
    boot_timeout: PositiveDuration = 900.0
    join_timeout: PositiveDuration = 900.0
    price: _Price = 0.0
    quota_key: Name | None = None

    def contradictions(self) -> Iterator[Problem]:
        size = len(json.dumps(self.settings, default=str).encode())
        if size > MAX_SETTINGS_BYTES:
            expected = f"expected at most {MAX_SETTINGS_BYTES:,} bytes as JSON"
            yield Problem("settings", f"{size:,} bytes", expected)
        for field, slices in (
            ("min_slices", self.min_slices),
            ("buffer_slices", self.buffer_slices),
        ):
            if slices > self.max_slices:
                expected = f"expected at most max_slices, which is {self.max_slices}"
                yield Problem(field, str(slices), expected)
        for name in RESERVED:
            if name in self.attributes:
                expected = "every machine of a pool has this attribute by itself: leave it out"
                yield Problem(f"attributes.{name}", repr(self.attributes[name]), expected)
        if self.machine.gpus and not self.machine.gpu_model:
            expected = "expected the model of the GPUs, as nvidia-smi names it"
            yield Problem("machine.gpu_model", "''", expected)
        if not self.machine.gpus and (self.machine.gpu_model or self.machine.gpu_memory):
            yield Problem("machine.gpus", "0", "expected the number of the GPUs that it describes")

    def attributes_in(self, slice_: str) -> dict[str, str]:
        """All attributes of a machine in this slice."""
        own = {POOL: self.name, SLICE: slice_, PREEMPTIBLE: str(self.preemptible).lower()}
        return self.attributes | own


KIND = PoolSpec
