"""A pod as a machine: its state, and what Kubernetes says of it."""

from collections.abc import Iterator

from lightkube.models.core_v1 import PodCondition
from lightkube.resources.core_v1 import Pod, Secret

from muster.autoscaling.standing import MAX_TOLD
from muster.providers.kubernetes import naming
from muster.providers.kubernetes.manifests import GRACE_S
from muster.providers.provider import Machine, MachineState

_STATES = {
    "Pending": MachineState.COMING,
    "Running": MachineState.RUNNING,
    "Succeeded": MachineState.STOPPED,
    "Failed": MachineState.STOPPED,
    "Unknown": MachineState.RUNNING,  # its node is silent: the controller hears the agent, or not
}


def machine_of(pod: Pod) -> Machine:
    """The machine that a pod is. Nothing of it is promised but what a pool's own pod has."""
    annotations = (pod.metadata and pod.metadata.annotations) or {}
    leaving = is_leaving(pod)
    phase = (pod.status and pod.status.phase) or "Pending"
    return Machine(
        id=name_of(pod),
        slice=annotations.get(naming.SLICE, ""),
        name=annotations.get(naming.MACHINE, ""),
        state=MachineState.LEAVING if leaving else _STATES.get(phase, MachineState.RUNNING),
        address=(pod.status and pod.status.podIP) or "",
        leaves_at=_leaves_at(pod),
        detail=" ".join("; ".join(_said(pod)).split())[:MAX_TOLD],
    )


def name_of(found: Pod | Secret) -> str:
    return (found.metadata and found.metadata.name) or ""


def is_leaving(found: Pod | Secret) -> bool:
    """Whether an object is being deleted."""
    return found.metadata is not None and found.metadata.deletionTimestamp is not None


def _leaves_at(pod: Pod) -> float | None:
    """When the pod will be gone: it is deleted, or its node is drained or taken away."""
    if pod.metadata is not None and pod.metadata.deletionTimestamp is not None:
        return pod.metadata.deletionTimestamp.timestamp()
    disruption = _condition(pod, "DisruptionTarget", "True")
    if disruption is None or disruption.lastTransitionTime is None:
        return None
    return disruption.lastTransitionTime.timestamp() + GRACE_S


def _said(pod: Pod) -> Iterator[str]:
    """Why the pod does not run, or will not for long; its node while it does."""
    status = pod.status
    if status is None:
        return
    for condition in (
        _condition(pod, "DisruptionTarget", "True"),
        _condition(pod, "PodScheduled", "False"),
    ):
        if condition is not None:
            yield _joined(condition.reason, condition.message)
    if status.reason or status.message:
        yield _joined(status.reason, status.message)
    quiet = True
    for container in status.containerStatuses or ():
        state = container.state
        if state is not None and state.waiting is not None:
            yield _joined(state.waiting.reason, state.waiting.message)
            quiet = False
        elif state is not None and state.terminated is not None:
            ended = f"ended with {state.terminated.exitCode}"
            yield _joined(state.terminated.reason, state.terminated.message or ended)
            quiet = False
    if quiet and status.phase == "Running" and pod.spec is not None and pod.spec.nodeName:
        yield f"on node {pod.spec.nodeName}"


def _condition(pod: Pod, kind: str, status: str) -> PodCondition | None:
    conditions = (pod.status and pod.status.conditions) or []
    return next((each for each in conditions if (each.type, each.status) == (kind, status)), None)


def _joined(reason: str | None, message: str | None) -> str:
    return ": ".join(filter(None, [reason, message]))
