"""The part of a pod that an operator writes in Kubernetes' own words, beside what Muster makes.

Only fields that are named here may stand in it. Those that Muster decides are refused, with the
setting that is meant if there is one, so that no fragment can take the agent's directory, its
credential or its user from it. What the values are is Kubernetes' business: the API server judges
them when the pool is applied, by a dry run.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from lightkube.models.core_v1 import PodSpec

from muster.core.errors import Problem

Fragment = Mapping[str, Any]

MAX_BYTES = 32_768
"""Of a fragment, as JSON: it is kept in each slice's Secret."""
MAX_ENTRIES = 64
"""Of each list in it."""
MOUNTED = ("/etc/muster", "/var/lib/muster", "/dev/shm")
"""Directories of the agent's container that are Muster's."""
OWN_VOLUMES = frozenset({"given", "room", "shared-memory"})
_CONTAINER = "container"
_OF_POD: Mapping[str, type] = {
    "affinity": dict,
    "dnsConfig": dict,
    "hostAliases": list,
    "hostIPC": bool,
    "imagePullSecrets": list,
    "preemptionPolicy": str,
    "resourceClaims": list,
    "schedulerName": str,
    "schedulingGates": list,
    "securityContext": dict,
    "topologySpreadConstraints": list,
    "volumes": list,
    _CONTAINER: dict,
}
_OF_CONTAINER: Mapping[str, type] = {
    "env": list,
    "securityContext": dict,
    "volumeDevices": list,
    "volumeMounts": list,
}
_SETTINGS = {
    "nodeSelector": "node_selector",
    "tolerations": "tolerations",
    "runtimeClassName": "runtime_class",
    "priorityClassName": "priority_class",
    "serviceAccountName": "service_account",
    "hostNetwork": "host_network",
    "image": "image",
    "imagePullPolicy": "image_pull_policy",
    "resources": "machine (of the pool), gpu_resource",
}
"""Fields that a pool says otherwise."""
_ROOTS = ("runAsUser", "runAsGroup", "runAsNonRoot", "readOnlyRootFilesystem")
"""Fields of a security context that would keep the agent from being root, or from writing."""
_WORDS = {dict: "an object", list: "a list", str: "text", bool: "true or false"}


def problems_of(fragment: Fragment) -> Iterator[Problem]:
    """Everything wrong with a fragment that can be told without asking Kubernetes."""
    try:
        size = len(json.dumps(fragment))
    except (TypeError, ValueError, RecursionError):
        yield Problem("pod", "", "expected objects, lists, texts and numbers, as in JSON")
        return
    if size > MAX_BYTES:
        yield Problem("pod", f"{size:,} bytes", f"expected at most {MAX_BYTES:,}")
        return
    own = fragment.get(_CONTAINER)
    container = own if isinstance(own, dict) else {}
    wrong = [*_wrong_fields(fragment, container), *_own_names(fragment, container)]
    yield from wrong or _unknown_to_kubernetes(fragment)


def _wrong_fields(fragment: Fragment, container: Fragment) -> Iterator[Problem]:
    """Fields that may not stand in a fragment, or have another form."""
    for place, fields, known in (
        ("pod", fragment, _OF_POD),
        ("pod.container", container, _OF_CONTAINER),
    ):
        for name, value in fields.items():
            if (expected := _misfit(name, value, known)) is not None:
                yield Problem(f"{place}.{name}"[:200], repr(value)[:100], expected)
        for name in _ROOTS:
            context = fields.get("securityContext")
            if isinstance(context, dict) and name in context:
                expected = "is Muster's own: the agent is root, and kernels are other users"
                yield Problem(
                    f"{place}.securityContext.{name}", repr(context[name])[:100], expected
                )


def _unknown_to_kubernetes(fragment: Fragment) -> Iterator[Problem]:
    """Keys that a pod has not, which would be left out silently, and values of other types."""
    bare: dict[str, Any] = {"containers": [{"name": "agent"}]}
    try:
        pod = msgspec.convert(merged(bare, fragment), PodSpec)
    except msgspec.ValidationError as error:
        yield Problem("pod", "", f"expected fields of a pod: {error}"[:300])
        return
    known = msgspec.to_builtins(pod)
    (container,) = known.pop("containers")
    for place in _left_out(fragment, {**known, _CONTAINER: container}, "pod"):
        yield Problem(place[:200], "", "no field of Kubernetes' is called so")


def _left_out(given: object, known: object, place: str) -> Iterator[str]:
    """The places of keys that are given and not known."""
    if isinstance(given, dict) and isinstance(known, dict):
        for name, value in given.items():
            if value is not None and known.get(name) is None:
                yield f"{place}.{name}"
            else:
                yield from _left_out(value, known.get(name), f"{place}.{name}")
    elif isinstance(given, list) and isinstance(known, list):
        for index, (value, kept) in enumerate(zip(given, known, strict=True)):
            yield from _left_out(value, kept, f"{place}.{index}")


def _misfit(name: str, value: object, known: Mapping[str, type]) -> str | None:
    """The words for what was expected of a field; None if it is well."""
    kind = known.get(name)
    if kind is None:
        if name in _SETTINGS:
            return f"is said by {_SETTINGS[name]}"
        return f"is Muster's own, or none of a pod's: expected one of {', '.join(sorted(known))}"
    if not isinstance(value, kind):
        return f"expected {_WORDS[kind]}"
    if isinstance(value, list):
        if len(value) > MAX_ENTRIES:
            return f"expected at most {MAX_ENTRIES} entries"
        if not all(isinstance(each, dict) for each in value):
            return "expected a list of objects"
    return None


def _own_names(fragment: Fragment, container: Fragment) -> Iterator[Problem]:
    """Names and places that are Muster's."""
    for index, volume in _objects(fragment, "volumes"):
        if volume.get("name") in OWN_VOLUMES:
            expected = "expected another name: this one is Muster's own"
            yield Problem(f"pod.volumes.{index}.name", repr(volume["name"]), expected)
    for index, mount in _objects(container, "volumeMounts"):
        field = f"pod.container.volumeMounts.{index}"
        if mount.get("name") in OWN_VOLUMES:
            expected = "expected a volume of the fragment: this one is Muster's own"
            yield Problem(f"{field}.name", repr(mount["name"]), expected)
        path = mount.get("mountPath")
        if not isinstance(path, str) or not path.startswith("/") or ".." in path.split("/"):
            yield Problem(f"{field}.mountPath", repr(path)[:100], "expected an absolute path")
        elif any(_overlap(path, taken) for taken in MOUNTED):
            expected = f"expected a path apart from {', '.join(MOUNTED)}"
            yield Problem(f"{field}.mountPath", repr(path)[:100], expected)
    for index, variable in _objects(container, "env"):
        name = variable.get("name")
        if not isinstance(name, str) or name.startswith("MUSTER_"):
            expected = "expected a name that does not begin with MUSTER_"
            yield Problem(f"pod.container.env.{index}.name", repr(name)[:100], expected)


def _objects(fields: Fragment, name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    found = fields.get(name)
    if isinstance(found, list):
        for index, each in enumerate(found[:MAX_ENTRIES]):
            if isinstance(each, dict):
                yield index, each


def _overlap(path: str, taken: str) -> bool:
    """Whether one path is the other, or within it."""
    parts, others = (
        [each for each in one.split("/") if each not in ("", ".")] for one in (path, taken)
    )
    shorter = min(len(parts), len(others))
    return parts[:shorter] == others[:shorter]


def merged(spec: Mapping[str, Any], fragment: Fragment) -> dict[str, Any]:
    """The spec of a pod of one container with the fragment; neither is changed. Lists are the one
    after the other, and what both say the spec says."""
    (container,) = spec["containers"]
    own = {name: value for name, value in fragment.items() if name != _CONTAINER}
    joined = _joined(container, fragment.get(_CONTAINER, {}))
    return {**_joined(spec, own), "containers": [joined]}


def _joined(made: Mapping[str, Any], added: Fragment) -> dict[str, Any]:
    whole = dict(made)
    for name, value in added.items():
        present = whole.get(name)
        if isinstance(present, list):
            whole[name] = [*present, *value]
        elif isinstance(present, dict):
            whole[name] = {**value, **present}
        else:
            whole[name] = value
    return whole
