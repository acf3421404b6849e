"""The objects of a slice: its Secret, and the pods that mount it.

A pod is an agent that runs as root, so that kernels run as their users. The agent's directory lasts
as long as the pod. A pod that replaces another of the same machine begins with an empty directory,
and is the same agent all the same: its credential is chosen beforehand and kept in the Secret, and
whoever joins with a name and its credential is the agent that did so before. The pod's uid is its
boot, so that what the former pod ran counts as ended.
"""

import json
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Self

import msgspec
from lightkube.resources.core_v1 import Pod, Secret
from pydantic import BaseModel, ConfigDict

from muster.core.specs.amounts import STORED
from muster.core.specs.pool import MachineShape
from muster.providers.kubernetes import naming
from muster.providers.kubernetes.fragment import merged
from muster.providers.kubernetes.settings import KubernetesSettings
from muster.providers.provider import AgentSetup, Scope, SliceOrder
from muster.providers.starting import AgentPlace, agent_command

GRACE_S = 30
"""How long a pod that is deleted may take to end."""
_ROOM = "/var/lib/muster"
_PLACE = AgentPlace(directory=f"{_ROOM}/agent")
_GIVEN = "/etc/muster"
_POD_UID = "MUSTER_POD_UID"
_CREDENTIAL, _PLAN = "credential", "plan"
_TOKEN = _PLACE.token_file.rpartition("/")[2]
_AUTHORITY = _PLACE.authority_file.rpartition("/")[2]

_START = f"""\
chmod 755 {_ROOM}
mkdir -p -m 700 {_PLACE.directory}
cp {_GIVEN}/* {_PLACE.directory}/
exec "$@"
"""
"""Kubernetes makes a pod's directories writable for everybody, where no agent keeps its credential:
this makes room for it, and becomes the agent."""


class PodPlan(BaseModel):
    """All that the pods of a slice are made of, secrets excepted. It is kept in the slice's Secret,
    so that a pod can be made again as it was.

    Args:
        slice, names, shape: as in the order.
        controller, group, uids: of the order's setup.
        authority: whether the Secret has the controller's authority.
        settings: of the pool, when the slice was made.
    """

    model_config = ConfigDict(frozen=True)

    slice: str
    names: tuple[str, ...]
    shape: MachineShape
    controller: str
    group: str
    authority: bool
    settings: KubernetesSettings
    uids: str | None = None

    @classmethod
    def of(cls, order: SliceOrder, settings: KubernetesSettings) -> Self:
        setup = order.setup
        return cls(
            slice=order.slice,
            names=order.names,
            shape=order.shape,
            controller=setup.controller,
            group=setup.group,
            authority=setup.authority is not None,
            settings=settings,
            uids=setup.uids,
        )

    @classmethod
    def kept_in(cls, secret: Secret) -> Self | None:
        """The plan in a slice's Secret; None if nothing of that kind is there."""
        try:
            text = b64decode((secret.data or {})[_PLAN], validate=True)
            return cls.model_validate_json(text, context=STORED)
        except (KeyError, ValueError):
            return None

    def pod(self, scope: Scope, index: int, owner: Secret | None) -> Pod:
        """The pod of a machine.

        Args:
            index: of the machine, counted from 0.
            owner: the slice's Secret: Kubernetes deletes pods whose owner is gone, such as one that
                is made by a request that arrives late. None for a pod that is not to be made.
        """
        originals = naming.of_machine(scope, self.slice, self.names[index])
        metadata: dict[str, Any] = {
            "name": naming.pod_name(scope, self.slice, index),
            "labels": naming.labels(originals),
            "annotations": self.settings.annotations | originals,
        }
        if owner is not None and owner.metadata is not None:
            reference = {"apiVersion": "v1", "kind": "Secret", "uid": owner.metadata.uid}
            metadata["ownerReferences"] = [reference | {"name": owner.metadata.name}]
        manifest = {"metadata": metadata, "spec": self._pod_spec(scope, index)}
        return msgspec.convert(manifest, Pod)

    def _pod_spec(self, scope: Scope, index: int) -> dict[str, Any]:
        settings = self.settings
        keys = {_TOKEN: _TOKEN, _credential(index): "credential.json"}
        if self.authority:
            keys[_AUTHORITY] = _AUTHORITY
        given = {
            "secretName": naming.secret_name(scope, self.slice),
            "defaultMode": 0o400,
            "items": [{"key": key, "path": path} for key, path in keys.items()],
        }
        spec = {
            "containers": [self._container(index)],
            "volumes": [
                {"name": "given", "secret": given},
                {"name": "room", "emptyDir": {}},
                # Without it there are 64 MiB, which is too little for work on GPUs.
                {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
            ],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": GRACE_S,
            "automountServiceAccountToken": False,  # kernels are not to speak to the API server
            "enableServiceLinks": False,
            "serviceAccountName": settings.service_account,
            "nodeSelector": settings.node_selector or None,
            "tolerations": [each.manifest() for each in settings.tolerations] or None,
            "runtimeClassName": settings.runtime_class,
            "priorityClassName": settings.priority_class,
            "hostNetwork": settings.host_network or None,
            # Else pods in their nodes' network do not find the cluster's services.
            "dnsPolicy": "ClusterFirstWithHostNet" if settings.host_network else None,
        }
        made = {name: value for name, value in spec.items() if value is not None}
        return merged(made, settings.pod)

    def _container(self, index: int) -> dict[str, Any]:
        # The command has no secrets, so none are needed for it.
        authority = "" if self.authority else None
        setup = AgentSetup(self.controller, self.group, "", authority, uids=self.uids)
        order = SliceOrder(self.slice, self.names, self.shape, False, {}, setup)
        command = agent_command(order, self.names[index], _PLACE)
        command += ["--boot-id", f"$({_POD_UID})", "--ports", self.settings.ports]
        if self.shape.disk:
            command += ["--disk", f"{self.shape.disk}B"]
        amounts = self._amounts()
        host_network, first = self.settings.host_network, int(self.settings.ports.partition("-")[0])
        container = {
            "name": "agent",
            "image": self.settings.image,
            "imagePullPolicy": self.settings.image_pull_policy,
            "command": ["sh", "-ec", _START, "muster-agent"],
            "args": command,
            "env": [{"name": _POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
            "resources": {"requests": amounts, "limits": amounts},
            "securityContext": {"runAsUser": 0},
            # Two pods that say so are never on one node, where their kernels had the same ports.
            "ports": [{"name": "kernels", "containerPort": first}] if host_network else None,
            "volumeMounts": [
                {"name": "given", "mountPath": _GIVEN, "readOnly": True},
                {"name": "room", "mountPath": _ROOM},
                {"name": "shared-memory", "mountPath": "/dev/shm"},
            ],
        }
        return {name: value for name, value in container.items() if value is not None}

    def _amounts(self) -> dict[str, str]:
        shape = self.shape
        amounts = {"cpu": f"{shape.cpu}m", "memory": str(shape.memory)}
        if shape.disk:
            amounts["ephemeral-storage"] = str(shape.disk)
        if shape.gpus:
            amounts[self.settings.gpu_resource] = str(shape.gpus)
        return amounts


def secret_of(
    order: SliceOrder, settings: KubernetesSettings, scope: Scope, former: Secret | None = None
) -> Secret:
    """The Secret of a slice: token, authority, plan, and a credential for each of its agents.

    Args:
        former: the Secret that is there already, whose credentials stay.
    """
    plan = PodPlan.of(order, settings)
    data = {_TOKEN: _encoded(order.setup.token), _PLAN: _encoded(plan.model_dump_json())}
    if order.setup.authority is not None:
        data[_AUTHORITY] = _encoded(order.setup.authority)
    kept: Mapping[str, str] = (former.data if former is not None else None) or {}
    for index in range(len(order.names)):
        key = _credential(index)
        data[key] = kept.get(key) or _fresh_credential()
    originals = naming.of_slice(scope, order.slice)
    metadata = {
        "name": naming.secret_name(scope, order.slice),
        "labels": naming.labels(originals),
        "annotations": originals,
    }
    return msgspec.convert({"metadata": metadata, "data": data, "type": "Opaque"}, Secret)


def is_ours(found: Pod | Secret, originals: Mapping[str, str]) -> bool:
    """Whether an object is the pool's own, by its labels and annotations."""
    metadata = found.metadata
    if metadata is None:
        return False
    labels, annotations = metadata.labels or {}, metadata.annotations or {}
    wanted = naming.labels(originals).items()
    return wanted <= labels.items() and originals.items() <= annotations.items()


def is_owned_by(pod: Pod, secret: Secret) -> bool:
    """Whether a pod's owner is this Secret, and not one of the same name that was deleted."""
    owners = (pod.metadata and pod.metadata.ownerReferences) or []
    return secret.metadata is not None and secret.metadata.uid in {owner.uid for owner in owners}


def _credential(index: int) -> str:
    return f"{_CREDENTIAL}-{index}"


def _fresh_credential() -> str:
    """An identity as the agent keeps it, before its first contact with the controller."""
    return _encoded(json.dumps({"agent": "", "credential": secrets.token_urlsafe(32)}))


def _encoded(text: str) -> str:
    return b64encode(text.encode()).decode()
