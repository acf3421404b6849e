"""Amounts, durations, names and paths as people write them."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    model_validator,
)

from muster.core.errors import Problem
from muster.core.resources import EXTRA_NAME, Resources, parse_bytes, parse_gpu, parse_milli

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)([dhms]|ms))+")
_BARE_SECONDS = re.compile(r"\d+(?:\.\d+)?")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
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
        seconds = float(value)
    elif isinstance(value, str):
        text = value.replace(" ", "")
        if _BARE_SECONDS.fullmatch(text):
            seconds = float(text)
        elif _DURATION.fullmatch(text):
            seconds = sum(float(n) * _SECONDS[unit] for n, unit in _DURATION_PART.findall(text))
    if seconds is None or not 0 <= seconds <= _YEAR_S:
        raise ValueError("expected a duration such as 90, 90s, 1h30m or 250ms, at most a year")
    return seconds


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
    if isinstance(value, str):
        with suppress(ValueError):
            moment = datetime.fromisoformat(value)
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise ValueError(
            "expected a moment with its time zone, such as 2027-01-31T08:00:00+01:00, or seconds "
            "since 1970"
        )
    return moment.timestamp()


Moment = Annotated[float, BeforeValidator(parse_moment), Field(ge=0, le=2**40)]
"""Seconds since the epoch; written as a number or as ISO 8601 text."""

Name = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"),
]
"""1 to 63 letters, digits, dots, dashes or underscores, a letter or digit at both ends."""

_ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,254}$"


def _no_nul(value: Any) -> Any:
    if isinstance(value, str) and "\0" in value:
        raise ValueError("expected text without NUL characters")
    if isinstance(value, bool):
        raise ValueError("expected text; write it in quotes")
    return str(value) if isinstance(value, int | float) else value


Text = Annotated[str, BeforeValidator(_no_nul), StringConstraints(max_length=131072)]
"""Text that a process can be given; numbers are taken as their text."""

EnvName = Annotated[str, StringConstraints(pattern=_ENV_NAME)]
Environment = Annotated[dict[EnvName, Text], Field(max_length=1000)]


def relative_path(path: str) -> str:
    """Refuse a path that could leave the directory that it is relative to.

    Raises:
        ValueError: absolute, empty, or with a ``..`` part.
    """
    parts = path.split("/")
    if not path or path.startswith("/") or ".." in parts or "\0" in path or len(path) > 1024:
        raise ValueError(
            f"expected a path inside the working directory, without '..' and not absolute, "
            f"not {path!r}"
        )
    return path


class Spec(BaseModel):
    """Base of what people write: unknown keys are refused, values never change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def contradictions(self) -> Iterator[Problem]:
        """What nobody can mean, though each field by itself may be so.

        It is refused when somebody hands it in; what was accepted before goes on."""
        return iter(())


DEFAULT_CPU_MILLI = 1000
_LEAST_MEMORY_BYTES = 1024 * 1024


def _write_milli(milli: int | None) -> str | None:
    """As a person writes it: what is kept and sent is read by the same rules."""
    return None if milli is None else f"{milli}m"


def _if_given(read: Callable[[Any], int]) -> Callable[[Any], int | None]:
    return lambda value: None if value is None else read(value)


Milli = Annotated[int, BeforeValidator(parse_milli), PlainSerializer(_write_milli)]
"""Thousandths; written as "4", 0.5 or "500m"."""

MaybeMilli = Annotated[
    int | None, BeforeValidator(_if_given(parse_milli)), PlainSerializer(_write_milli)
]
MaybeBytes = Annotated[int | None, BeforeValidator(_if_given(parse_bytes))]
"""Bytes; written as "16GiB"."""


def _memory(value: Any) -> int:
    """Bytes; so few that no process could run are a forgotten unit."""
    size = parse_bytes(value)
    if 0 < size < _LEAST_MEMORY_BYTES:
        raise ValueError("expected at least 1MiB: a number without a unit is in bytes, write 3GiB")
    return size


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


def _models(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    models = [model.strip() for model in value.split("|")]
    if not all(models):
        raise ValueError("expected models such as H100 or 'H100 SXM|B200', or nothing for any")
    return models


GpuModels = Annotated[
    tuple[
        Annotated[str, StringConstraints(min_length=1, max_length=100, strip_whitespace=True)], ...
    ],
    BeforeValidator(_models),
    Field(max_length=32),
]


class ResourcesSpec(Spec):
    """What each kernel asks for; also its limits, where the agent can set limits.

    Without ``cpu`` a kernel counts as one processor and is not limited to it: a limit that nobody
    asked for would surprise, and its cgroup costs a short task a quarter of its time.

    ``cpu`` in processors ("4", 0.5, "500m"), ``memory`` and ``disk`` in bytes ("16GiB"), ``gpu``
    in whole devices or one fraction of one device, ``gpu_model`` what those may be ("H100",
    "H100 SXM|B200"; any when empty), ``extra`` any resources that agents declare.
    """

    cpu: MaybeMilli = None
    memory: Annotated[int, BeforeValidator(_memory)] = 0
    disk: Annotated[int, BeforeValidator(parse_bytes)] = 0
    gpu: Annotated[int, BeforeValidator(parse_gpu), PlainSerializer(_write_milli)] = 0
    gpu_model: GpuModels = ()
    extra: Extra = Field(default_factory=dict)

    @model_validator(mode="after")
    def _models_of_something(self) -> "ResourcesSpec":
        if self.gpu_model and not self.gpu:
            raise ValueError("gpu_model: expected only with gpu")
        return self

    def resources(self) -> Resources:
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
