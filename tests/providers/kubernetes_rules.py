"""The rules of Kubernetes for pods and Secrets: refusals of an API server, and selectors."""

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Object = dict[str, Any]

_DNS = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
DNS_LABEL = re.compile(_DNS)
_NAME = re.compile(rf"{_DNS}(\.{_DNS})*")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
KEY = re.compile(rf"({_DNS}(\.{_DNS})*/)?[A-Za-z0-9]([A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?")
_QUANTITY = re.compile(r"[0-9]{1,18}(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
_SECRET_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_TERM = re.compile(r"(?P<key>[^\s=!,()]+)\s*(?P<op>!=|==?|\s+in\s+|\s+notin\s+)\s*(?P<value>.*)")


class Refusal(Exception):
    """An answer that is a Status of failure."""

    def __init__(self, code: int, reason: str, message: str, name: str = "") -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.name = code, reason, message, name

    def status(self) -> Object:
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": {"name": self.name},
            "code": self.code,
        }


def invalid(kind: str, found: Object) -> Refusal | None:
    """The 422 for an object that breaks rules; None if it keeps them."""
    name = str(found["metadata"].get("name", ""))
    wrong = [*_metadata(found["metadata"]), *(_pod if kind == "pods" else _secret)(found)]
    if not wrong:
        return None
    title = "Pod" if kind == "pods" else "Secret"
    return Refusal(422, "Invalid", f'{title} "{name}" is invalid: {"; ".join(wrong)}', name)


def _metadata(metadata: Object) -> Iterator[str]:
    name = metadata.get("name", "")
    if not _NAME.fullmatch(name) or len(name) > 253:
        yield f'metadata.name: Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist'
    for key, value in metadata.get("labels", {}).items():
        if not KEY.fullmatch(key):
            yield f'metadata.labels: Invalid value: "{key}"'
        if not LABEL_VALUE.fullmatch(value):
            yield f'metadata.labels: Invalid value: "{value}": a valid label must be'
    for key, value in metadata.get("annotations", {}).items():
        if not KEY.fullmatch(key.lower()) or not isinstance(value, str):
            yield f'metadata.annotations: Invalid value: "{key}"'
    for owner in metadata.get("ownerReferences", ()):
        if not all(owner.get(key) for key in ("apiVersion", "kind", "name", "uid")):
            yield "metadata.ownerReferences: Invalid value: a field is empty"


def _secret(found: Object) -> Iterator[str]:
    for key, value in found.get("data", {}).items():
        if not _SECRET_KEY.fullmatch(key):
            yield f'data[{key}]: Invalid value: "{key}": a valid config key must consist'
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error:
            yield f"data[{key}]: Invalid value: illegal base64 data"


def _pod(found: Object) -> Iterator[str]:
    spec = found["spec"]
    volumes = {each["name"] for each in spec.get("volumes", ())}
    if not spec.get("containers"):
        yield "spec.containers: Required value"
    for index, container in enumerate(spec.get("containers", ())):
        place = f"spec.containers[{index}]"
        if not container.get("image", "").strip():
            yield f"{place}.image: Required value"
        for mount in container.get("volumeMounts", ()):
            if mount["name"] not in volumes:
                yield f'{place}.volumeMounts: Not found: "{mount["name"]}"'
            if not mount["mountPath"].startswith("/"):
                yield f"{place}.volumeMounts.mountPath: must be absolute"
        yield from _amounts(f"{place}.resources", container.get("resources", {}))
    for key, value in spec.get("nodeSelector", {}).items():
        if not KEY.fullmatch(key) or not LABEL_VALUE.fullmatch(value):
            yield f'spec.nodeSelector: Invalid value: "{value}"'
    for toleration in spec.get("tolerations", ()):
        if toleration.get("operator") == "Exists" and toleration.get("value"):
            yield "spec.tolerations: value must be empty when `operator` is 'Exists'"
        if not toleration.get("key") and toleration.get("operator") != "Exists":
            yield "spec.tolerations: operator must be Exists when `key` is empty"
        if toleration.get("tolerationSeconds") and toleration.get("effect") != "NoExecute":
            yield "spec.tolerations: effect must be 'NoExecute' when `tolerationSeconds` is set"
    if spec.get("hostNetwork") not in (None, True, False):
        yield "spec.hostNetwork: Invalid value"


def _amounts(place: str, resources: Object) -> Iterator[str]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    for key, value in (*limits.items(), *requests.items()):
        if not _QUANTITY.fullmatch(value):
            yield f'{place}[{key}]: Invalid value: "{value}": quantities must match'
        if "/" in key and not value.isdigit():
            yield f'{place}[{key}]: Invalid value: "{value}": must be an integer'
        if "/" in key and limits.get(key) != requests.get(key, limits.get(key)):
            yield f"{place}[{key}]: must be equal to limit of {key}"


def selector(text: str) -> Callable[[Object], bool]:
    """The test of a label selector: equality, sets and existence.

    Raises:
        Refusal: it cannot be understood.
    """
    terms = [_term(each.strip()) for each in re.split(r",(?![^(]*\))", text) if each.strip()]
    return lambda found: all(term(found["metadata"].get("labels", {})) for term in terms)


def _term(text: str) -> Callable[[Mapping[str, str]], bool]:
    if text.startswith("!"):
        return lambda labels: text[1:] not in labels
    if KEY.fullmatch(text):
        return lambda labels: text in labels
    match = _TERM.fullmatch(text)
    if match is None or not KEY.fullmatch(match["key"]):
        raise Refusal(400, "BadRequest", f"unable to parse requirement: {text}")
    key, op = match["key"], match["op"].strip()
    values = {each.strip() for each in match["value"].strip("()").split(",")}
    if not all(map(LABEL_VALUE.fullmatch, values)):
        raise Refusal(400, "BadRequest", f"unable to parse requirement: values: {values}")
    if op in ("=", "==", "in"):
        return lambda labels: labels.get(key) in values
    return lambda labels: labels.get(key) not in values
