"""The settings of a pool of pods, as operators write them."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from muster.core.errors import InvalidSpec, Problem
from muster.core.specs.amounts import Flag, PathText, ShortText, Spec, Whole
from muster.core.specs.load import parse_spec
from muster.core.text import check_text
from muster.providers.kubernetes import fragment
from muster.providers.kubernetes.naming import LABEL_VALUE

_DNS = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_SUBDOMAIN = rf"{_DNS}(?:\.{_DNS})*"
_QUALIFIED = rf"(?:{_SUBDOMAIN}/)?{LABEL_VALUE}"
_IMAGE = r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*"
_LABEL = re.compile(_DNS)
_NAME = re.compile(_SUBDOMAIN)
_KEY = re.compile(_QUALIFIED)
_VALUE = re.compile(f"(?:{LABEL_VALUE})?")
_IMAGE_NAME = re.compile(_IMAGE)
_TEXT = re.compile("(?s).*")
_RESERVED = "muster/"
_MAX_DNS_CHARS = 253
_MAX_IMAGE_CHARS = 500
_FIRST_PORT, _LAST_PORT = 1024, 65_535


def _formed(
    pattern: re.Pattern[str], form: str, limit: int = _MAX_DNS_CHARS
) -> Callable[[Any], Any]:
    """A check that a text has a form of Kubernetes', which would else refuse each pod for it."""

    def read(value: Any) -> Any:
        if isinstance(value, str) and not pattern.fullmatch(check_text(value, limit)):
            raise ValueError(f"expected {form}")
        return value

    return read


def _ports(value: Any) -> Any:
    """
    Raises:
        ValueError: it is no range of ports.
    """
    if isinstance(value, str):
        first, _, last = check_text(value, 11).partition("-")
        is_range = first.isascii() and last.isascii() and first.isdecimal() and last.isdecimal()
        if not is_range or not _FIRST_PORT <= int(first) < int(last) <= _LAST_PORT:
            raise ValueError(f"expected FIRST-LAST from {_FIRST_PORT} on, such as 20100-20199")
    return value


_LABEL_FORM = "letters, digits, '.', '-' or '_', at most 63 of them, a letter or digit at both ends"
_DnsLabel = Annotated[
    str, BeforeValidator(_formed(_LABEL, "lower-case letters, digits and dashes, at most 63", 63))
]
_DnsName = Annotated[
    str, BeforeValidator(_formed(_NAME, "lower-case letters, digits, dashes and dots"))
]
_QualifiedName = Annotated[
    str,
    BeforeValidator(_formed(_KEY, f"{_LABEL_FORM}; a domain and a slash may stand before", 317)),
]
_LabelValue = Annotated[str, BeforeValidator(_formed(_VALUE, _LABEL_FORM))]
_Image = Annotated[
    str,
    BeforeValidator(
        _formed(_IMAGE_NAME, "an image such as registry.example/muster:1.0", _MAX_IMAGE_CHARS)
    ),
]
_Annotation = Annotated[str, BeforeValidator(_formed(_TEXT, "text", 10_000))]


class Toleration(Spec):
    """A taint that the pods tolerate, as Kubernetes has it.

    Args:
        key: of the taint; None tolerates every key.
        operator: whether the value must be equal, or any does.
        value: of the taint.
        effect: of the taint; None tolerates all.
        seconds: how long NoExecute is tolerated; None without end.
    """

    key: _QualifiedName | None = None
    operator: Literal["Equal", "Exists"] = "Equal"
    value: _LabelValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    seconds: Annotated[Whole, Field(ge=0)] | None = None

    def manifest(self) -> dict[str, Any]:
        """The toleration in Kubernetes' words."""
        known = {
            "key": self.key,
            "operator": self.operator,
            "value": self.value or None,
            "effect": self.effect,
            "tolerationSeconds": self.seconds,
        }
        return {name: value for name, value in known.items() if value is not None}


class KubernetesSettings(Spec):
    """The settings of a pool of pods.

    Args:
        image: has ``muster`` on its path, a shell and ``cp``.
        namespace: of the pods; None is that of the context, or of the controller's own pod.
        kubeconfig: a file on the controller. None means the controller's service account where it
            runs in a pod, else ``$KUBECONFIG``, else ``~/.kube/config``.
        context: of the kubeconfig; None is its current one. With it, the service account of the
            controller's own pod is not used.
        image_pull_policy, service_account, node_selector, tolerations, runtime_class,
        priority_class: of the pods, as Kubernetes has them.
        gpu_resource: the resource by which nodes offer GPUs.
        annotations: of the pods.
        host_network: whether the pods have their nodes' network.
        ports: the first and the last of those for kernels. Where pods have their nodes' network,
            two with the same first port are never on one node.
        pod: a fragment of the pods in Kubernetes' words (see ``fragment``).
    """

    image: _Image
    namespace: _DnsLabel | None = None
    kubeconfig: PathText | None = None
    context: ShortText | None = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    service_account: _DnsName | None = None
    node_selector: Annotated[dict[_QualifiedName, _LabelValue], Field(max_length=32)] = Field(
        default_factory=dict
    )
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32)] = ()
    gpu_resource: _QualifiedName = "nvidia.com/gpu"
    runtime_class: _DnsName | None = None
    priority_class: _DnsName | None = None
    annotations: Annotated[dict[_QualifiedName, _Annotation], Field(max_length=32)] = Field(
        default_factory=dict
    )
    host_network: Flag = False
    ports: Annotated[str, BeforeValidator(_ports)] = "20000-29999"
    pod: dict[str, Any] = Field(default_factory=dict)

    def contradictions(self) -> Iterator[Problem]:
        for index, toleration in enumerate(self.tolerations):
            if toleration.operator == "Exists" and toleration.value:
                field = f"tolerations.{index}.value"
                yield Problem(field, repr(toleration.value), "expected none with operator Exists")
            if toleration.operator == "Equal" and toleration.key is None:
                expected = "expected the key of a taint, or operator Exists"
                yield Problem(f"tolerations.{index}.key", "", expected)
            if toleration.seconds is not None and toleration.effect != "NoExecute":
                expected = "expected only with effect NoExecute"
                yield Problem(f"tolerations.{index}.seconds", str(toleration.seconds), expected)
        yield from fragment.problems_of(self.pod)
        for name in self.annotations:
            if name.startswith(_RESERVED):
                expected = f"names that begin with {_RESERVED} are Muster's own"
                yield Problem(f"annotations.{name}", "", expected)


def read_settings(settings: dict[str, Any]) -> KubernetesSettings:
    """A pool's ``settings``.

    Raises:
        InvalidSpec: with every problem found; fields begin with ``settings.``.
    """
    try:
        return parse_spec(KubernetesSettings, settings)
    except InvalidSpec as error:
        raise InvalidSpec([_placed(each) for each in error.problems]) from None


def _placed(problem: Problem) -> Problem:
    return replace(problem, field=f"settings.{problem.field}".removesuffix(".spec"))
