"""Amounts, durations, names and paths as people write them."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

from muster.core.errors import Problem
from muster.core.owner import OWNER_NAME
from muster.core.resources import (
    EXTRA_NAME,
    Resources,
    parse_bytes,
    parse_gpu,
    parse_milli,
    parse_stored_bytes,
    sent_bytes,
)
from muster.core.specs.written_numbers import written_as
from muster.core.text import ENV_NAME, MAX_ARGUMENT, MAX_NAME, NAME, check_text

_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,15})?"
_BARE_SECONDS = re.compile(_NUMBER)
_DURATION_PART = re.compile(rf"({_NUMBER})(ms|[dhms])")
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_YEAR_S = 366 * 86400.0


def parse_duration(value: Any) -> Any:
    """Seconds in ``value``: 90, "90", "90s", "1m30s", "2h", "250ms"; None stays None.

    Raises:
        ValueError: not a duration.
    """
    if value is None:
        return None
    seconds: float | None = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value
    elif isinstance(value, str) and len(value) <= MAX_NAME:
        text = value.replace(" ", "")
        seconds = float(text) if _BARE_SECONDS.fullmatch(text) else _sum_of_parts(text)
    if seconds is None or not 0 <= seconds <= _YEAR_S:
        raise ValueError("expected a duration such as 90, 90s, 1h30m or 250ms, at most a year")
    return float(seconds)


def _sum_of_parts(text: str) -> float | None:
    """Seconds in a duration such as 1h30m; None if the text is no duration."""
    seconds, at = 0.0, 0
    while at < len(text) and (part := _DURATION_PART.match(text, at)):
        number, unit = part.groups()
        seconds += float(number) * _SECONDS[unit]
        at = part.end()
    return seconds if text and at == len(text) else None


Whole = Annotated[int, Strict()]
"""A whole number; ``true`` and ``"3"`` are refused, as they are slips of the pen."""

Flag = Annotated[bool, Strict()]
"""True or false; no number or text that looks like either."""

Duration = Annotated[float, BeforeValidator(parse_duration)]
"""Seconds; written as a number or as text with units."""

PositiveDuration = Annotated[Duration, Field(gt=0)]


def parse_moment(value: Any) -> Any:
    """Seconds since the epoch in ``value``: a number of them, or ISO 8601 text with a time zone.

    Raises:
        ValueError: not a moment.
    """
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    moment = value
    if isinstance(value, str) and len(value) <= MAX_NAME:
        with suppress(ValueError):
            moment = datetime.fromisoformat(value)
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise ValueError(
            "expected a moment with its time zone, such as 2027-01-31T08:00:00+01:00; on the "
            "command line, in files and in Python also '18:30' (in quotes, or YAML makes a number "
            "of it), '+2h' or 'tomorrow 08:00'"
        )
    return moment.timestamp()


Moment = Annotated[float, BeforeValidator(parse_moment), Field(ge=0, le=2**40)]
"""Seconds since the epoch; written as a number or as ISO 8601 text."""

Name = Annotated[
    str,
    StringConstraints(max_length=63, pattern=f"^{NAME}$"),
]
"""1 to 63 letters, digits, dots, dashes or underscores, a letter or digit at both ends."""

OwnerName = Annotated[str, StringConstraints(max_length=63, pattern=f"^{OWNER_NAME.pattern}$")]
"""The name of a domain, a project or a user: a ``Name`` that may also contain @."""


def _text_of(limit: int) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, bool) or written_as(value) is not None:
            raise ValueError("expected text: write it in quotes")
        if isinstance(value, int | float):
            return str(value)
        return check_text(value, limit) if isinstance(value, str) else value

    return read


Text = Annotated[str, BeforeValidator(_text_of(MAX_ARGUMENT))]
"""Text that a process can be given; a number is its text, if it is printed as it was written."""

ShortText = Annotated[str, BeforeValidator(_text_of(MAX_NAME))]
"""Text that names something, or is compared with such a name."""

PathText = Annotated[str, BeforeValidator(_text_of(4096))]

EnvName = Annotated[str, StringConstraints(max_length=MAX_NAME, pattern=f"^{ENV_NAME}$")]
Environment = Annotated[dict[EnvName, Text], Field(max_length=1000)]


STORED: Final = "stored"
"""The context of a validation of what was accepted before, perhaps by rules that were wider."""


class Spec(BaseModel):
    """Base of what people write: unknown keys are refused, values never change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def stored(cls, text: str | bytes) -> Self:
        """The spec in JSON that was stored.

        Raises:
            ValidationError: it was stored by a version with other rules.
        """
        return cls.model_validate_json(text, context=STORED)

    def contradictions(self) -> Iterator[Problem]:
        """Combinations of fields that nobody can mean, though each field by itself is valid.

        They are refused when a spec is handed in; work that was accepted before goes on."""
        return iter(())


DEFAULT_CPU_MILLI = 1000
_LEAST_MEMORY_BYTES = 1024 * 1024


def write_milli(milli: int) -> str:
    """Thousandths as a person writes them, because stored and sent specs are read by the same
    rules."""
    return f"{milli}m"


def _write_milli(milli: int | None) -> str | None:
    return None if milli is None else write_milli(milli)


def if_given(read: Callable[[Any], int]) -> Callable[[Any], int | None]:
    """``read``, which leaves None as it is."""
    return lambda value: None if value is None else read(value)


Milli = Annotated[int, BeforeValidator(parse_milli), PlainSerializer(_write_milli)]
"""Thousandths; written as "4", 0.5 or "500m"."""

MaybeMilli = Annotated[
    int | None, BeforeValidator(if_given(parse_milli)), PlainSerializer(_write_milli)
]


def _size(value: Any, info: ValidationInfo) -> int:
    return parse_stored_bytes(value) if info.context == STORED else parse_bytes(value)


def maybe_size(value: Any, info: ValidationInfo) -> int | None:
    """Bytes in ``value``, which is what a person or an earlier version wrote; None stays None."""
    return None if value is None else _size(value, info)


Bytes = Annotated[int, BeforeValidator(_size), PlainSerializer(sent_bytes)]
"""Bytes; written as "16GiB"."""


def _is_enough(memory: int) -> int:
    """
    Raises:
        ValueError: no process could run in so little.
    """
    if 0 < memory < _LEAST_MEMORY_BYTES:
        raise ValueError("expected at least 1MiB: no process runs in less")
    return memory


def _extra(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("expected names with amounts, such as {licence: 1}")
    for name in value:
        if not isinstance(name, str) or not EXTRA_NAME.fullmatch(name):
            raise ValueError(f"expected names of lower-case letters, digits, _ . - /, not {name!r}")
    return {name: parse_milli(amount) for name, amount in value.items()}


def _write_extra(extra: dict[str, int]) -> dict[str, str | None]:
    return {name: _write_milli(milli) for name, milli in extra.items()}


Extra = Annotated[
    dict[str, int],
    BeforeValidator(_extra),
    PlainSerializer(_write_extra),
    Field(max_length=32),
]
"""Named resources that agents declare, with amounts of them."""


_MAX_MODELS = 32
_MAX_MODEL = 100


def _models(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    check_text(value, _MAX_MODELS * (_MAX_MODEL + 3))
    models = [model.strip() for model in value.split("|")]
    if not all(models):
        raise ValueError("expected models such as H100 or 'H100 SXM|B200', or nothing for any")
    return models


GpuModels = Annotated[
    tuple[
        Annotated[
            str, StringConstraints(min_length=1, max_length=_MAX_MODEL, strip_whitespace=True)
        ],
        ...,
    ],
    BeforeValidator(_models),
    Field(max_length=_MAX_MODELS),
]


class ResourcesSpec(Spec):
    """The request of each kernel; also its limits, where the agent can set limits.

    Args:
        cpu: processors. Without it a kernel counts as one and is not limited to it: a limit that
            nobody asked for would surprise, and its cgroup costs a short task a quarter of its
            time. With 0 it gets what all others on its machine leave.
        memory: bytes; a kernel that uses more is killed.
        disk: bytes of the scratch directory.
        gpu: whole devices, or one fraction of one device.
        gpu_model: models of which the devices may be; any when empty.
        extra: any resources that agents declare, by name.
    """

    cpu: MaybeMilli = None
    memory: Annotated[Bytes, AfterValidator(_is_enough)] = 0
    disk: Bytes = 0
    gpu: Annotated[int, BeforeValidator(parse_gpu), PlainSerializer(_write_milli)] = 0
    gpu_model: GpuModels = ()
    extra: Extra = Field(default_factory=dict)

    @field_validator("gpu_model")
    @classmethod
    def _models_of_something(cls, models: GpuModels, info: ValidationInfo) -> GpuModels:
        if models and not info.data.get("gpu", 1):  # no gpu is there if it is wrong itself
            raise ValueError("expected only with gpu")
        return models

    def resources(self) -> Resources:
        """The request; equal kernels share the object."""
        return self._resources

    @cached_property
    def _resources(self) -> Resources:
        cpu_milli = DEFAULT_CPU_MILLI if self.cpu is None else self.cpu
        return Resources.with_extra(
            cpu_milli,
            self.memory,
            self.disk,
            self.gpu,
            self.extra,
            gpu_models=self.gpu_model,
            kernels=1,
        )
