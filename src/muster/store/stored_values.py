"""Values that are stored as texts of their own form. Their rows are many, and most of the texts are
equal: each is read once."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.catalogue import reason_of
from muster.core.resources import DeviceShare, Resources
from muster.core.states import AgentBar


@lru_cache(maxsize=4096)
def dump_reasons(reasons: tuple[Reason, ...]) -> str | None:
    if not reasons:
        return None
    return json.dumps([[reason.code.value, reason.numbers()] for reason in reasons])


def load_reasons(text: str | None) -> tuple[Reason, ...]:
    return tuple(reason_of(ReasonCode(code), numbers) for code, numbers in json.loads(text or "[]"))


def dump_shares(shares: tuple[DeviceShare, ...]) -> str:
    return json.dumps([[share.index, share.milli] for share in shares]) if shares else "[]"


@lru_cache(maxsize=4096)
def load_shares(text: str | None) -> tuple[DeviceShare, ...]:
    return tuple(DeviceShare(index, milli) for index, milli in json.loads(text or "[]"))


def dump_list(values: Sequence[Any]) -> str:
    return json.dumps(values) if values else "[]"


@lru_cache(maxsize=4096)
def load_list(text: str | None) -> tuple[Any, ...]:
    """The plain values of a list."""
    return tuple(json.loads(text or "[]"))


@lru_cache(maxsize=4096)
def load_request(cpu: int, memory: int, disk: int, gpu: int, extra: str) -> Resources:
    """The request of a kernel, from a row of the ledger."""
    return Resources.with_extra(cpu, memory, disk, gpu, json.loads(extra), kernels=1)


def dump_extra(extra: Sequence[tuple[str, int]]) -> str:
    """The named amounts of a request."""
    return json.dumps(dict(extra)) if extra else "{}"


def dump_resources(amount: Resources) -> str:
    plain = amount.cpu_milli, amount.memory_bytes, amount.disk_bytes, amount.gpu_milli
    extra: Mapping[str, int] = dict(amount.extra)
    return json.dumps([*plain, extra])


def load_resources(text: str) -> Resources:
    cpu, memory, disk, gpu, extra = json.loads(text)
    return Resources.with_extra(cpu, memory, disk, gpu, extra)


def dump_bar(bar: AgentBar | None) -> str:
    """Why an agent takes no new work; empty if it does."""
    return bar or ""


def load_bar(text: str) -> AgentBar | None:
    return AgentBar(text) if text else None
