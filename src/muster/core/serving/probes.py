"""The words between control and probers (design: Effects)."""

from dataclasses import dataclass, field

from muster.core.specs.serving import ProbeSpec, ScaleSpec

MAX_DETAIL = 200
"""Characters of what a probe found."""
TOLD_AT_ONCE = 100
"""Results in a row of one kind that are told at once; later ones of that kind may be told together,
once a second. No threshold of a ``ProbeSpec`` is larger."""
MAX_OF_AGENT = 1_000
"""Routes that an agent probes on its own machine, at most."""


@dataclass(frozen=True, slots=True)
class Watched:
    """An address that is to be probed until it is unwatched.

    Args:
        route: the id of the route; with ``generation`` the key of all results.
        host, port: where the replica listens.
        probe: how.
        metric: the metric that is to be read as well, where replicas follow one.
        kernel, kernel_generation: the replica's, where it is probed by command.
        secret: that of the deployment, which requests carry; empty for none.
    """

    route: str
    generation: int
    host: str
    port: int
    probe: ProbeSpec
    metric: ScaleSpec | None = None
    kernel: str = ""
    kernel_generation: int = 0
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """An address and how it is probed, as a prober needs to know.

    Args:
        host: empty in orders to agents, which probe at their own.
        request: of HTTP; empty where a connection is all.
        good: first and last of the statuses that are good.
        metric_request, metric: of the metric that is read as well; empty without.
        kernel, kernel_generation: of the replica beside whose program a command is run; empty where
            the port is probed.
    """

    host: str
    port: int
    interval_s: float
    timeout_s: float
    request: bytes = field(default=b"", repr=False)  # it may carry a secret
    good: tuple[tuple[int, int], ...] = ()
    metric_request: bytes = field(default=b"", repr=False)
    metric: str = ""
    kernel: str = ""
    kernel_generation: int = 0


@dataclass(frozen=True, slots=True)
class ProbeOrder:
    """The probes of a route from now on; none without a target. An order of an older generation
    than the route's last one changes nothing."""

    route: str
    generation: int
    target: ProbeTarget | None = None


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The last completed probe of a route. A time-out is completed, and bad.

    Args:
        route, generation: the key.
        good: whether the probe was good.
        streak: probes in a row, this one included, that were as good or bad.
        age_s: seconds since its completion.
        detail: what was found, at most ``MAX_DETAIL`` characters in one line: ``HTTP 503``.
        value: of the metric, where one was read.
        reached: False where the probe is bad because there was no way to the replica's machine, as
            for a fault of the network at either side.
    """

    route: str
    generation: int
    good: bool
    streak: int
    age_s: float = 0.0
    detail: str = ""
    value: float | None = None
    reached: bool = True
