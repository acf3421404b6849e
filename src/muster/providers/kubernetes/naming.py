"""The names and labels by which pods and Secrets are known as a pool's own.

Labels select; a label's value cannot hold every text, so annotations of the same keys hold the
texts themselves, and both must be right before anything is touched.
"""

import hashlib
import json
import re
from collections.abc import Mapping

from muster.providers.provider import Scope

CLUSTER, POOL, SLICE, MACHINE = "muster/cluster", "muster/pool", "muster/slice", "muster/machine"
LABEL_VALUE = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
"""The pattern of a label's value that is not empty; a name of Muster's has the same."""

_VALUE = re.compile(LABEL_VALUE)
_DIGEST = re.compile(r"sha256-[0-9a-f]{56}")
_UNNAMEABLE = re.compile(r"[^a-z0-9]+")
_SHOWN_CHARS = 24  # of a slice's id in names, for people; the digest beside it makes them its own
_DIGEST_CHARS = 16


def label_value(text: str) -> str:
    """The value of a label for a text: the text itself where that is a value, else its digest.
    Different texts have different values: one that looks like a digest gets a digest too."""
    if _VALUE.fullmatch(text) and not _DIGEST.fullmatch(text):
        return text
    return f"sha256-{_hashed(text)[:56]}"


def labels(originals: Mapping[str, str]) -> dict[str, str]:
    """The labels for these texts, by the same keys."""
    return {key: label_value(text) for key, text in originals.items()}


def of_pool(scope: Scope) -> dict[str, str]:
    """The texts that everything of a pool carries."""
    return {CLUSTER: scope.cluster, POOL: scope.pool}


def of_slice(scope: Scope, slice_: str) -> dict[str, str]:
    return of_pool(scope) | {SLICE: slice_}


def of_machine(scope: Scope, slice_: str, machine: str) -> dict[str, str]:
    return of_slice(scope, slice_) | {MACHINE: machine}


def secret_name(scope: Scope, slice_: str) -> str:
    """The name of a slice's Secret, which no other slice of any pool or cluster has."""
    shown = _UNNAMEABLE.sub("-", slice_.lower())[:_SHOWN_CHARS].strip("-")
    digest = _hashed(json.dumps([scope.cluster, scope.pool, slice_]))[:_DIGEST_CHARS]
    return "-".join(filter(None, ["muster", shown, digest]))


def pod_name(scope: Scope, slice_: str, index: int) -> str:
    """The name of the pod of a slice's machine, counted from 0; it is a host name as well."""
    return f"{secret_name(scope, slice_)}-{index}"


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
