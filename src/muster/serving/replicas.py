"""The replicas that are made and taken away (design: Deployments and routes).

``exchange`` has the arithmetic for all cases: a steady number, a new revision in place of the
former, the former in place of one that was given up, machines that are to be left.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Standing(StrEnum):
    """The standing of a replica with its deployment."""

    STARTING = "starting"  # it was never healthy
    WITHDRAWN = "withdrawn"  # healthy; its last probe was bad, so that it gets no requests
    HEALTHY = "healthy"  # it gets requests, for less than ``min_healthy_time``
    AVAILABLE = "available"
    UNHEALTHY = "unhealthy"
    HELD = "held"  # drained or ended; its room is not free yet


SERVING = frozenset({Standing.HEALTHY, Standing.AVAILABLE})
"""The standings of replicas that get requests."""
UP = SERVING | {Standing.WITHDRAWN}
"""The standings of replicas that are healthy, whether or not their last probe was bad."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica, live or HELD.

    Args:
        route: the id of its route.
        since: since when it is STARTING, UNHEALTHY, or healthy without a bad probe, in seconds
            since the epoch.
        misplaced: whether its machine is to be left.
    """

    route: str
    revision: int
    standing: Standing
    since: float
    misplaced: bool = False

    @property
    def live(self) -> bool:
        return self.standing is not Standing.HELD

    @property
    def available(self) -> bool:
        return self.standing is Standing.AVAILABLE

    @property
    def serves(self) -> bool:
        """Whether it gets requests."""
        return self.standing in SERVING

    @property
    def is_up(self) -> bool:
        """Whether it is healthy, though its last probe may have been bad."""
        return self.standing in UP


@dataclass(frozen=True, slots=True)
class Change:
    """The replicas to be made, all of one revision, and the routes to be taken away."""

    create: int = 0
    remove: tuple[str, ...] = ()


def level(
    wanted: int,
    replicas: Iterable[Replica],
    revision: int,
    disruptable: int,
    spared: int = 0,
) -> Change:
    """The next change toward ``wanted`` replicas of a revision, and none of others.

    A replica that serves on a machine that is to be left goes once one more is available, at most
    ``disruptable`` of them at a time. Replicas of other revisions go as far as no more than
    ``disruptable`` are missing then, so that they make room even where there is none for one more.

    Args:
        spared: how many replicas may be missing so that machines are left for which no replacement
            finds room.
    """
    live = [each for each in replicas if each.live]
    lingers = any(each.revision != revision for each in live)
    missing = disruptable if lingers else spared
    return exchange(wanted, live, revision, surge=disruptable, unavailable=missing)


def exchange(
    wanted: int, replicas: Iterable[Replica], revision: int, *, surge: int, unavailable: int
) -> Change:
    """The next change by which ``wanted`` well-placed replicas of a revision take the place of all
    others (source: Kubernetes).

    Replicas to be left that are not healthy go at once. The others go while ``wanted`` less
    ``unavailable`` are left that count: available ones of the revision, and those to be left. The
    WITHDRAWN ones go first, and in place of one that serves none of them counts, so that no fewer
    replicas serve. What is HELD, or is taken away here, still has its room, and counts against the
    surge.
    """
    live: list[Replica] = []
    staying: list[Replica] = []
    leaving: list[Replica] = []
    held = 0
    for each in replicas:
        if not each.live:
            held += 1
            continue
        live.append(each)
        stays = each.revision == revision and not each.misplaced
        (staying if stays else leaving).append(each)
    staying, leaving = worst_first(staying, revision), worst_first(leaving, revision)
    excess = max(0, len(staying) - wanted)
    kept = staying[excess:]
    idle = [each for each in leaving if not each.is_up]
    withdrawn = [each for each in leaving if each.is_up and not each.serves]
    serving = [each for each in leaving if each.serves]
    counted = sum(each.available for each in kept) + len(serving)
    spare_serving = max(0, counted - (wanted - unavailable))
    spare = max(0, counted + len(withdrawn) - (wanted - unavailable))
    going = [*staying[:excess], *idle, *withdrawn[:spare]]
    going += serving[: min(spare_serving, max(0, spare - len(withdrawn)))]
    create = min(wanted + surge - len(live) - held, wanted - len(kept))
    return Change(max(0, create), tuple(each.route for each in going))


_WORTH = (
    Standing.UNHEALTHY,
    Standing.STARTING,
    Standing.WITHDRAWN,
    Standing.HEALTHY,
    Standing.AVAILABLE,
)


def worst_first(replicas: Sequence[Replica], revision: int) -> list[Replica]:
    """The order in which replicas go: of equal standing those of other revisions, those on machines
    to be left, then the youngest, first."""
    return sorted(
        replicas,
        key=lambda each: (
            _WORTH.index(each.standing),
            each.revision == revision,
            not each.misplaced,
            -each.since,
            each.route,
        ),
    )
