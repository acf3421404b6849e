"""How a deployment's replicas are probed, updated, scaled and reached, as people write it."""

import re
from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise
from math import ceil, floor
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    StringConstraints,
    field_validator,
    model_validator,
)

from muster.core.errors import Problem
from muster.core.serving.traffic import is_of_machine
from muster.core.specs.amounts import (
    Duration,
    Flag,
    OwnerName,
    PositiveDuration,
    ShortText,
    Spec,
    Whole,
)
from muster.core.specs.session import Command
from muster.core.text import check_text

MAX_REPLICAS = 10_000
MAX_HEADERS = 32
MAX_HEADER_BYTES = 4096
MAX_PROBE_BODY_BYTES = 16 * 1024
MAX_STEPS = 20
MAX_NAMED = 100
"""Users or projects that may be named for access."""

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_LINE = re.compile(r"[!-~\u0080-\uffff \t]*")
_PATH = re.compile(r"/[!-\"$-~]*")
_PERCENT = re.compile(r"([0-9]{1,3})%")
_HOST = re.compile(
    r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?){0,9}"
)

Headers = Annotated[dict[ShortText, ShortText], Field(max_length=MAX_HEADERS)]


def _header_name(name: str) -> str:
    """
    Raises:
        ValueError: no name of a header (RFC 9110, 5.1).
    """
    if _TOKEN.fullmatch(name) is None:
        raise ValueError(f"expected the name of a header, such as X-Session, not {name!r}")
    return name


def _status_range(value: Any) -> tuple[int, int]:
    if isinstance(value, list | tuple) and len(value) == 2:
        first, last = value
    else:
        first, _, last = check_text(str(value), 20).partition("-")
        last = last or first
    try:
        low, high = int(first), int(last)
    except ValueError:
        low, high = 0, 0
    if not 100 <= low <= high <= 599:
        raise ValueError("expected statuses such as 200, '200-399' or [200, 204]")
    return low, high


def _statuses(value: Any) -> Any:
    each = value if isinstance(value, list | tuple) else [value]
    return tuple(_status_range(one) for one in each)


Statuses = Annotated[
    tuple[tuple[int, int], ...],
    BeforeValidator(_statuses),
    Field(min_length=1, max_length=20),
]
"""Ranges of statuses of HTTP, first and last of each."""


class ProbeKind(StrEnum):
    HTTP = "http"
    TCP = "tcp"
    COMMAND = "command"


class ProbeSide(StrEnum):
    """The side from which replicas are probed."""

    AUTO = "auto"  # the controller's; the agent's where the controller does not reach the machine
    CONTROLLER = "controller"
    AGENT = "agent"


class ProbeSpec(Spec):
    """How a replica's health is found out. Each probe is a connection of its own to the replica's
    port, or a command beside its program; a redirection is not followed, and of an answer nothing
    but its head is read.

    Args:
        side: where probes come from: ``controller``, ``agent``, which is that of the replica's
            machine, or ``auto``: the controller, and the agent where the controller does not reach
            the machine.
        kind: ``http``: a request is answered as expected; ``tcp``: a connection is accepted;
            ``command``: a command ends with exit code 0.
        command: the command, which runs on the replica's machine as a part of the replica; text is
            for `/bin/sh`. It sets ``kind``. Another command, interval or timeout makes a new
            revision.
        path, method, headers, body: of the request.
        status: statuses of the answer that are good, as "200-399" or a list of such; a redirection
            counts by its own status.
        interval: time between two probes of a replica.
        timeout: longest wait for the answer's head; past it the probe is bad.
        healthy_threshold, unhealthy_threshold: good or bad probes in a row after which the replica
            is HEALTHY or UNHEALTHY.
        initial_delay: time after the replica's start in which bad probes do not count.
        start_timeout: longest time from the replica's start to its first good probe; past it the
            replica has failed to start.
        evict_after: how long a replica may be UNHEALTHY before it is replaced.
    """

    side: ProbeSide = ProbeSide.AUTO
    kind: ProbeKind = ProbeKind.HTTP
    command: Command | None = None
    path: Annotated[str, StringConstraints(max_length=2048)] = "/"
    method: Annotated[str, StringConstraints(pattern="^(GET|HEAD|POST|OPTIONS)$")] = "GET"
    headers: Headers = Field(default_factory=dict)
    body: Annotated[str, StringConstraints(max_length=MAX_PROBE_BODY_BYTES)] = ""
    status: Statuses = ((200, 399),)
    interval: Annotated[PositiveDuration, Field(ge=0.1, le=3600)] = 5.0
    timeout: Annotated[PositiveDuration, Field(ge=0.05, le=300)] = 3.0
    healthy_threshold: Annotated[Whole, Field(ge=1, le=100)] = 1
    unhealthy_threshold: Annotated[Whole, Field(ge=1, le=100)] = 3
    initial_delay: Duration = 0.0
    start_timeout: PositiveDuration = 600.0
    evict_after: PositiveDuration = 60.0

    @model_validator(mode="before")
    @classmethod
    def _of_command(cls, keys: Any) -> Any:
        """The keys with what a command implies."""
        if not isinstance(keys, dict) or keys.get("command") is None:
            return keys
        return {"kind": ProbeKind.COMMAND, "side": ProbeSide.AGENT, **keys}

    @model_validator(mode="after")
    def _command_alone(self) -> "ProbeSpec":
        if (self.kind is ProbeKind.COMMAND) is (self.command is None):
            raise ValueError("command: expected the command with kind: command, and only then")
        if self.command is None:
            return self
        if self.side is not ProbeSide.AGENT:
            raise ValueError("side: a command runs on the replica's own machine: leave it out")
        asked = {"path", "method", "headers", "body", "status"} & self.model_fields_set
        if asked:
            raise ValueError(f"{min(asked)}: this is for a request, and not for a command")
        return self

    @field_validator("path")
    @classmethod
    def _path(cls, path: str) -> str:
        if _PATH.fullmatch(path) is None:
            raise ValueError("expected a path such as /health, without spaces and '#'")
        return path

    @field_validator("headers")
    @classmethod
    def _headers(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if _header_name(name).lower() in ("content-length", "transfer-encoding", "connection"):
                raise ValueError(f"{name} is set by Muster")
            if len(value.encode()) > MAX_HEADER_BYTES or _LINE.fullmatch(value) is None:
                raise ValueError(f"{name}: expected one line of at most {MAX_HEADER_BYTES} bytes")
        return headers

    def is_good(self, status: int) -> bool:
        """Whether an answer with this status is good."""
        return any(first <= status <= last for first, last in self.status)

    def stale_after_s(self) -> float:
        """The time without a completed probe after which nothing is known of a replica."""
        return max(3 * (self.interval + self.timeout), 10.0)


class ReplicaCount(Spec):
    """A number of replicas, or a share of them in percent."""

    count: int | None = None
    percent: int | None = None

    def of(self, replicas: int, *, up: bool) -> int:
        """The number for so many replicas.

        Args:
            up: whether a share is rounded up (surge) or down (unavailable).
        """
        if self.count is not None:
            return self.count
        part = replicas * (self.percent or 0) / 100
        return ceil(part) if up else floor(part)

    def __str__(self) -> str:
        return f"{self.percent}%" if self.count is None else str(self.count)


def _share(value: Any) -> Any:
    if isinstance(value, ReplicaCount | dict):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_REPLICAS:
        return {"count": value}
    if isinstance(value, str) and len(value) <= 10:
        if (match := _PERCENT.fullmatch(value.strip())) and int(match[1]) <= 100:
            return {"percent": int(match[1])}
        if value.strip().isdecimal():
            return {"count": min(int(value), MAX_REPLICAS)}
    raise ValueError("expected a number of replicas, or a share such as 25%")


def _write_share(share: ReplicaCount) -> int | str:
    return share.count if share.count is not None else f"{share.percent}%"


ShareOf = Annotated[ReplicaCount, BeforeValidator(_share), PlainSerializer(_write_share)]


class Strategy(StrEnum):
    """How a new revision takes the place of the former one."""

    ROLLING = "rolling"
    BLUE_GREEN = "blue-green"
    CANARY = "canary"


class CanaryStep(Spec):
    """A step of a canary: this much traffic for the new revision, watched for so long.

    Args:
        weight: percent of the requests.
        watch: how long the new revision must be good before the next step.
    """

    weight: Annotated[Whole, Field(ge=1, le=100)]
    watch: PositiveDuration = 60.0


class UpdateSpec(Spec):
    """How a new revision is rolled out.

    Args:
        strategy: ``rolling``: replica by replica; ``blue-green``: all new ones beside the old, then
            traffic changes over; ``canary``: traffic by steps.
        surge: replicas beyond ``replicas`` while rolling; a share is rounded up. 0 where all GPUs
            are in use: old replicas then make room first.
        unavailable: replicas that may be missing while rolling; a share is rounded down. One may
            be if ``surge`` is 0 too, because nothing could ever be replaced.
        steps: of a canary, ascending.
        max_error_rate: percent of failed requests of the new revision in a step, above which a
            canary, or a blue-green update within ``keep_old``, is rolled back.
        min_requests: requests in a step before ``max_error_rate`` is looked at.
        keep_old: blue-green: how long old replicas stay after the change, to go back to.
        min_healthy_time: how long a replica must have been healthy to count as available.
        progress_deadline: longest time without a further available replica; past it the update has
            failed. It stands still while the update is paused.
    """

    strategy: Strategy = Strategy.ROLLING
    surge: ShareOf = ReplicaCount(percent=25)
    unavailable: ShareOf = ReplicaCount(count=0)
    steps: Annotated[tuple[CanaryStep, ...], Field(min_length=1, max_length=MAX_STEPS)] = (
        CanaryStep(weight=10),
        CanaryStep(weight=50),
    )
    max_error_rate: Annotated[float, Field(ge=0, le=100)] = 5.0
    min_requests: Annotated[Whole, Field(ge=1, le=1_000_000)] = 20
    keep_old: Duration = 60.0
    min_healthy_time: Duration = 5.0
    progress_deadline: PositiveDuration = 600.0

    @model_validator(mode="after")
    def _ascending(self) -> "UpdateSpec":
        weights = [step.weight for step in self.steps]
        if any(later <= one for one, later in pairwise(weights)):
            raise ValueError(f"steps: expected ascending weights, not {weights}")
        return self

    def contradictions(self) -> Iterator[Problem]:
        if self.strategy is not Strategy.CANARY and "steps" in self.model_fields_set:
            yield Problem("update.steps", "", "this is for a canary: set strategy: canary")


class ScaleMetric(StrEnum):
    REQUESTS = "requests"  # requests under way at a replica, as the proxy sees them
    RATE = "requests-per-second"  # requests that a replica answers in a second, as it sees them
    PROMETHEUS = "prometheus"  # a metric that replicas tell by themselves


class ScaleSpec(Spec):
    """A number of replicas that follows load.

    Args:
        min, max: bounds of the number. With a ``min`` of 0 the proxy holds requests until a replica
            is up.
        metric: ``requests`` (those under way), ``requests-per-second``, or ``prometheus`` for
            ``name`` at ``path`` of each replica.
        name: the metric's name; of several series the sum is taken.
        path: where replicas tell their metrics.
        target: the metric's value per replica that is aimed at.
        cool_down_up, cool_down_down: time after a change before the next in that direction.
        window: time over which the mean is taken; a tenth of it, the panic window, counts alone
            when load is twice what the replicas are for, and then their number only goes up.
    """

    min: Annotated[Whole, Field(ge=0, le=MAX_REPLICAS)] = 1
    max: Annotated[Whole, Field(ge=1, le=MAX_REPLICAS)]
    metric: ScaleMetric = ScaleMetric.REQUESTS
    name: (
        Annotated[str, StringConstraints(max_length=200, pattern="^[a-zA-Z_:][a-zA-Z0-9_:]*$")]
        | None
    ) = None
    path: Annotated[str, StringConstraints(max_length=2048, pattern=r'^/[!-"$-~]*$')] = "/metrics"
    target: Annotated[float, Field(gt=0, le=1e12)] = 4.0
    cool_down_up: Duration = 0.0
    cool_down_down: Duration = 60.0
    window: Annotated[PositiveDuration, Field(ge=1.0, le=3600)] = 60.0

    @model_validator(mode="after")
    def _bounds(self) -> "ScaleSpec":
        if self.min > self.max:
            raise ValueError(f"expected min of at most max, which is {self.max}")
        if (self.metric is ScaleMetric.PROMETHEUS) is (self.name is None):
            raise ValueError(
                "name: expected the metric's name with metric: prometheus, and only then"
            )
        return self


class AccessSpec(Spec):
    """The people who may send requests, beside the owner and admins, with a token of theirs.

    Args:
        public: everybody, without a token.
        users, projects: of the owner's domain.
    """

    public: Flag = False
    users: Annotated[tuple[OwnerName, ...], Field(max_length=MAX_NAMED)] = ()
    projects: Annotated[tuple[OwnerName, ...], Field(max_length=MAX_NAMED)] = ()


def _access(value: Any) -> Any:
    if value == "public":
        return AccessSpec(public=True)
    if isinstance(value, str) and value != "owner":
        raise ValueError("expected owner, public, or users and projects, such as {users: [ada]}")
    return AccessSpec() if value == "owner" else value


Access = Annotated[AccessSpec, BeforeValidator(_access)]


def _host(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    host = check_text(value, 253).strip().lower()
    if _HOST.fullmatch(host) is None:
        raise ValueError("expected the name of a host, such as chat.example.org")
    return host


Host = Annotated[str, BeforeValidator(_host)]


def _is_no_address(host: str) -> str:
    if is_of_machine(host):
        raise ValueError("expected a name, such as team.example.org, and no address")
    return host


HostSuffix = Annotated[Host, AfterValidator(_is_no_address)]
"""The name of a host that stands for itself and for all names below it."""


def _header(value: Any) -> Any:
    return _header_name(check_text(value, 100)) if isinstance(value, str) else value


HeaderName = Annotated[str, BeforeValidator(_header)]


class AffinitySpec(Spec):
    """The part of a request whose value decides its replica: a header or a cookie.

    Args:
        header: the name of the header.
        cookie: the name of the cookie, which the service itself does not use: the proxy gives one
            to whoever sends none.
    """

    header: HeaderName | None = None
    cookie: (
        Annotated[str, StringConstraints(max_length=100, pattern="^[A-Za-z0-9._-]+$")] | None
    ) = None

    @model_validator(mode="after")
    def _one(self) -> "AffinitySpec":
        if (self.header is None) is (self.cookie is None):
            raise ValueError("expected one of header and cookie")
        return self


def _affinity(value: Any) -> Any:
    if isinstance(value, str):
        return AffinitySpec(header=_header(value))
    if isinstance(value, dict | AffinitySpec):
        return value
    raise ValueError("expected the name of a header, or a cookie, such as {cookie: replica}")


def _write_affinity(affinity: AffinitySpec) -> str | dict[str, str | None]:
    """A header as it has always been stored."""
    return affinity.header or {"cookie": affinity.cookie}


Affinity = Annotated[AffinitySpec, BeforeValidator(_affinity), PlainSerializer(_write_affinity)]
