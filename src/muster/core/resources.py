"""Amounts of resources: an agent's capacity, a kernel's request.

Canonical units are integers, so that a ledger adds up exactly: thousandths of a processor, bytes,
thousandths of a GPU, thousandths of any named extra resource.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from muster.core.text import MAX_NAME

_BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50}
_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BYTES_UNITS = {"": 1} | _BINARY | _DECIMAL
_AMOUNT = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[A-Za-z]*)")
_LIMIT = 2**62  # amounts are kept in 64-bit columns, with room for a sum

LEAST_BARE_BYTES = 2**20
"""A number without a unit that is smaller is no size, as a unit was forgotten."""

EXTRA_NAME = re.compile(r"[a-z][a-z0-9_.\-/]{0,62}")
GPU_WHOLE = 1000
MAX_DEVICES = 128
"""Devices of one machine, at most; their indexes are below it."""
KERNELS = "kernel slots"
"""The name of ``Resources.kernels``; no extra resource can be called so."""


def _split(text: str, expected: str) -> tuple[float, str]:
    match = _AMOUNT.fullmatch(text.strip()) if len(text) <= MAX_NAME else None
    if match is None:
        raise ValueError(f"expected {expected}")
    return float(match["number"]), match["unit"]


def _bounded(amount: float, expected: str) -> int:
    if not 0 <= amount < _LIMIT:
        raise ValueError(f"expected {expected}, not less than 0 and not absurdly large")
    return round(amount)


def parse_milli(value: str | int | float, expected: str = "a number such as 4, 0.5 or 500m") -> int:
    """Thousandths of ``value``: 4 → 4000, "500m" → 500, 0.5 → 500.

    Raises:
        ValueError: not an amount, negative, or finer than a thousandth.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected {expected}")
    if isinstance(value, str):
        number, unit = _split(value, expected)
        if unit not in ("", "m"):
            raise ValueError(f"expected {expected}")
        milli = number if unit == "m" else number * 1000
    else:
        milli = value * 1000
    whole = _bounded(milli, expected)
    if abs(whole - milli) > 1e-6:
        raise ValueError(f"expected {expected}, in steps of a thousandth")
    return whole


def parse_bytes(value: str | int | float, expected: str = "a size such as 16GiB, 512M or 0") -> int:
    """Bytes in ``value``: "16GiB" and "16Gi" are 16·2³⁰, "16GB" and "16G" are 16·10⁹; small letters
    mean the same. A number without a unit is bytes, from ``LEAST_BARE_BYTES`` on: sizes are sent
    and shown to programs so (see ``sent_bytes``).

    Raises:
        ValueError: not a size, negative, or without its unit.
    """
    size, has_unit = _parsed_bytes(value, expected)
    if not has_unit and size < LEAST_BARE_BYTES and float(value):
        number = str(value).strip()
        meant = "GiB" if size <= 1024 else "MiB"
        raise ValueError(
            f"expected a size with its unit: write {number}{meant}, or {number}B if bytes are meant"
        )
    return size


def parse_stored_bytes(value: str | int | float) -> int:
    """Bytes in ``value``, as ``parse_bytes``, where a small number without a unit is bytes too: for
    what earlier versions stored.

    Raises:
        ValueError: not a size, or negative.
    """
    return _parsed_bytes(value, "a size")[0]


def _parsed_bytes(value: str | int | float, expected: str) -> tuple[int, bool]:
    """The bytes, and whether they were written with a unit."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"expected {expected}")
    if not isinstance(value, str):
        return _bounded(value, expected), False
    number, unit = _split(value, expected)
    scale = _BYTES_UNITS.get(unit.lower().removesuffix("b"))
    if scale is None:
        raise ValueError(f"expected {expected}")
    return _bounded(number * scale, expected), bool(unit)


def sent_bytes(size: int) -> int | str:
    """A size as programs read it: a number of bytes, which is text with its unit where
    ``parse_bytes`` would miss the unit."""
    return f"{size}B" if 0 < size < LEAST_BARE_BYTES else size


def parse_gpu(value: str | int | float) -> int:
    """Thousandths of a GPU: whole devices, or one fraction of one device (design: Devices).

    Raises:
        ValueError: not an amount, negative, or a fraction of several devices.
    """
    expected = "a whole number of GPUs, or a fraction of one such as 0.5"
    milli = parse_milli(value, expected)
    if milli > GPU_WHOLE and milli % GPU_WHOLE:
        raise ValueError(f"expected {expected}; fractions of several devices cannot be placed")
    return milli


def format_milli(milli: int) -> str:
    """4000 → "4", 500 → "0.5"."""
    return f"{milli / 1000:g}"


def format_bytes(amount: int) -> str:
    """17179869184 → "16GiB"; an amount that is not round keeps one decimal."""
    size = float(amount)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            return f"{size:.0f}{unit}" if size == int(size) else f"{size:.1f}{unit}"
        size /= 1024
    raise AssertionError("unreachable")


@dataclass(frozen=True)
class Resources:
    """A vector of amounts; equal vectors are one *shape*.

    ``gpu_milli`` is a multiple of 1000 (whole devices) or below 1000 (one fraction of one device).
    ``extra`` holds named resources in thousandths, sorted by name, without zeros. ``gpu_models``
    are the models that a request allows, sorted; empty allows any (see ``is_model``). ``kernels``
    is 1 in a kernel's request, and in an agent's capacity the number of kernels that it may hold.
    """

    cpu_milli: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    gpu_milli: int = 0
    extra: tuple[tuple[str, int], ...] = ()
    gpu_models: tuple[str, ...] = ()
    kernels: int = 0

    @staticmethod
    def with_extra(
        cpu_milli: int,
        memory_bytes: int,
        disk_bytes: int,
        gpu_milli: int,
        extra: Mapping[str, int],
        gpu_models: Iterable[str] = (),
        kernels: int = 0,
    ) -> "Resources":
        kept = tuple(sorted((name, amount) for name, amount in extra.items() if amount))
        models = tuple(sorted(set(gpu_models)))
        return Resources(cpu_milli, memory_bytes, disk_bytes, gpu_milli, kept, models, kernels)

    @cached_property
    def _hash(self) -> int:
        amounts = (self.cpu_milli, self.memory_bytes, self.disk_bytes, self.gpu_milli)
        return hash((*amounts, self.extra, self.gpu_models, self.kernels))

    def __hash__(self) -> int:
        """The hash is computed once: a gang is hashed by the requests of all its kernels, which are
        mostly one object."""
        return self._hash

    @property
    def gpu_devices(self) -> int:
        """How many devices a kernel with this request sees."""
        return -(-self.gpu_milli // GPU_WHOLE)

    @cached_property
    def shape(self) -> str:
        """A short text that equal requests share: the key of an agent's backlog."""
        extra = ",".join(f"{name}={amount}" for name, amount in self.extra)
        gpu = f"{self.gpu_milli}{'|'.join(self.gpu_models)}"
        return f"{self.cpu_milli}/{self.memory_bytes}/{self.disk_bytes}/{gpu}/{extra}"

    def as_dict(self) -> dict[str, int]:
        """Every non-zero amount by the name that a person knows it by."""
        named = {
            "cpu": self.cpu_milli,
            "memory": self.memory_bytes,
            "disk": self.disk_bytes,
            "gpu": self.gpu_milli,
            KERNELS: self.kernels,
        }
        return {name: amount for name, amount in (named | dict(self.extra)).items() if amount}

    def describe(self) -> str:
        """ "2 cpu, 16GiB memory, 1 gpu"; "nothing" when empty. ``kernels`` is left out."""
        amounts = [(name, amount) for name, amount in self.as_dict().items() if name != KERNELS]
        parts = [f"{format_amount(name, amount)} {name}" for name, amount in amounts]
        models = f" ({' or '.join(self.gpu_models)})" if self.gpu_models else ""
        return (", ".join(parts) or "nothing") + models


class AmountUnit(StrEnum):
    """The canonical unit of an amount."""

    MILLI = "milli"  # thousandths: of a processor, a GPU, an extra resource
    BYTES = "bytes"
    COUNT = "count"  # kernels or sessions

    def written(self, amount: int) -> str:
        """The amount as a person writes it: 16GiB, 0.5, 3."""
        match self:
            case AmountUnit.BYTES:
                return format_bytes(amount)
            case AmountUnit.MILLI:
                return format_milli(amount)
            case AmountUnit.COUNT:
                return str(amount)


def unit_of(resource: str) -> AmountUnit:
    """The unit in which amounts of the named resource are kept."""
    if resource == KERNELS:
        return AmountUnit.COUNT
    return AmountUnit.BYTES if resource in ("memory", "disk") else AmountUnit.MILLI


def format_amount(resource: str, amount: int) -> str:
    """An amount of the named resource as a person writes it."""
    return unit_of(resource).written(amount)


_WORD = re.compile(r"[a-z0-9]+")


def is_model(model: str, wanted: str) -> bool:
    """Whether a device of ``model`` is one that a person calls ``wanted``: the model has all words
    of it.

    "H100" is met by any "NVIDIA H100 80GB HBM3", "H100 HBM3" by that variant only. A partition of a
    GPU, such as "H100 80GB HBM3 MIG 1g.10gb", is met by names with "MIG" alone, as "MIG 1g.10gb".
    """
    words = set(_WORD.findall(model.lower()))
    asked = _WORD.findall(wanted.lower())
    if _PARTITION in words and _PARTITION not in asked:
        return False
    return all(word in words for word in asked)


_PARTITION = "mig"


def is_partition(model: str) -> bool:
    """Whether devices of ``model`` are partitions of GPUs (MIG), which are given whole."""
    return _PARTITION in _WORD.findall(model.lower())


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU of an agent; capacity 1.0 each (design: Devices)."""

    index: int
    model: str
    uuid: str = ""
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """A kernel's share of one device; ``milli`` is 1000 for the whole device."""

    index: int
    milli: int
