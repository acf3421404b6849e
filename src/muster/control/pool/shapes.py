"""The shape of machines as their agents report it, beside the one that a pool declares."""

from collections.abc import Collection

from muster.core.reasons import Reason
from muster.core.reasons.of_machines import SliceMismatch
from muster.core.reasons.of_pools import PoolShape
from muster.core.resources import GPU_WHOLE, is_model, unit_of
from muster.core.specs.pool import MachineShape
from muster.store.records import Agent


def misfit(agent: Agent, shape: MachineShape) -> Reason | None:
    """Why an agent does not have the devices that its pool declares; None if it has. Processors and
    memory are no reason to wait: a system never reports quite what a machine was sold with."""
    fitting = sum(is_model(device.model, shape.gpu_model) for device in agent.devices)
    lacks = next(
        (name for name, amount in shape.extra.items() if _extra(agent).get(name, 0) < amount), None
    )
    if fitting >= shape.gpus and lacks is None:
        return None
    if lacks is not None:
        has, declared = f"{_extra(agent).get(lacks, 0)} of {lacks}", str(shape.extra[lacks])
    else:
        has, declared = _devices(agent), f"{shape.gpus}× {shape.gpu_model}"
    return SliceMismatch(agent=agent.name, has=has, declared=declared)


def reported_shape(declared: MachineShape, agents: Collection[Agent]) -> MachineShape:
    """The shape that all of these agents have at least."""
    some = list(agents)
    gpus = min(len(agent.devices) for agent in some)
    devices = [device for agent in some for device in agent.devices]
    models = {device.model for device in devices}
    extra = {
        name: min(_extra(agent).get(name, 0) for agent in some)
        for name in {name for agent in some for name in _extra(agent)}
    }
    return MachineShape.model_construct(
        cpu=min(agent.capacity.cpu_milli for agent in some),
        memory=min(agent.capacity.memory_bytes for agent in some),
        disk=min(agent.capacity.disk_bytes for agent in some),
        gpus=gpus,
        gpu_model=min(models) if gpus and models else declared.gpu_model if gpus else "",
        gpu_memory=min((device.memory_bytes for device in devices), default=0) if gpus else 0,
        extra={name: amount for name, amount in sorted(extra.items()) if amount},
    )


def differing(pool: str, declared: MachineShape, reported: MachineShape) -> Reason | None:
    """How machines differ from what their pool declares, where that is more than a system keeps for
    itself; None if they do not. What they report counts."""
    for name, said, is_, most in (
        ("cpu", declared.cpu, reported.cpu, 0.02),
        ("memory", declared.memory, reported.memory, 0.1),
        ("gpu", declared.gpus * GPU_WHOLE, reported.gpus * GPU_WHOLE, 0.0),
    ):
        if abs(is_ - said) > most * said:
            return PoolShape(
                pool=pool,
                resource=name,
                declared=said,
                reported=is_,
                unit=unit_of(name),
            )
    return None


def _devices(agent: Agent) -> str:
    models = sorted({device.model for device in agent.devices})
    return f"{len(agent.devices)}× {', '.join(models)[:100]}" if models else "no GPU"


def _extra(agent: Agent) -> dict[str, int]:
    return dict(agent.capacity.extra)
