"""The steps by which a new revision takes the place of the former one (design: Deployments and
routes).

A canary and a blue-green update pass through stages, in which both revisions stand side by side;
then, and where there is no stage, replicas are exchanged until only new ones are left.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil

from muster.core.specs.serving import Strategy, UpdateSpec
from muster.serving.replicas import Change, Replica, Standing, exchange, worst_first
from muster.serving.why import Why, why

MOST_FAILED_STARTS = 20
FAILED_STARTS_EACH = 3
"""New replicas that may fail to start, for each that is wanted; MOST_FAILED_STARTS in all."""


class RolloutVerdict(StrEnum):
    """The verdict on a roll-out."""

    GOES_ON = "goes on"
    DONE = "done"
    FAILED = "failed"


class RolloutCode(StrEnum):
    """The whys of verdicts, with their numbers."""

    PAUSED = "paused"
    REPLACING = "replacing"  # available, wanted: new replicas that are waited for
    WATCHING = "watching"  # weight
    COMPLETE = "complete"  # replicas
    FAILED_STARTS = "failed starts"  # failed, budget
    NO_PROGRESS = "no progress"  # available, wanted, deadline_s
    ERRORS = "errors"  # requests, failures, max_error_rate


@dataclass(frozen=True, slots=True)
class Rollout:
    """A roll-out as it is stored, while it lasts. Moments are seconds since the epoch.

    Args:
        to_revision: the new revision.
        from_revision: the former one; None for the first of a deployment.
        progress_at: since when the progress deadline runs; anew with each controller.
        step: the number of its stages that are over.
        step_since: since when the stage has had all of its new replicas available; None if some
            are missing.
        best: most new replicas that were available at a time.
        paused_at: since when it is paused.
        failed_starts: new replicas that failed to start; control counts them, and notes ``how`` the
            last of them did.
        requests, failures: of the new revision, up to the beginning of the stage, less those of its
            replicas that have ended since.
        counted: the counters by which these were counted; others began anew.
    """

    to_revision: int
    from_revision: int | None
    progress_at: float
    step: int = 0
    step_since: float | None = None
    best: int = 0
    paused_at: float | None = None
    failed_starts: int = 0
    how: str = ""
    requests: int = 0
    failures: int = 0
    counted: str = ""

    def without(self, requests: int, failures: int) -> "Rollout":
        """The roll-out once a replica of the new revision has ended that had so many: they count in
        the stage, though nobody tells of them any more."""
        return replace(self, requests=self.requests - requests, failures=self.failures - failures)

    def paused(self, now: float) -> "Rollout":
        """The roll-out once somebody has paused it."""
        return self if self.paused_at is not None else replace(self, paused_at=now)

    def resumed(self, now: float) -> "Rollout":
        """The roll-out once it goes on; the pause counts for no deadline and no watch."""
        if self.paused_at is None:
            return self
        pause_s = now - self.paused_at
        since = None if self.step_since is None else self.step_since + pause_s
        progress_at = self.progress_at + pause_s
        return replace(self, paused_at=None, step_since=since, progress_at=progress_at)


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """The next step of a roll-out.

    Args:
        rollout: what is stored in place of the former.
        verdict: DONE and FAILED are the last.
        create: how many replicas are to be made, by revision.
        remove: the routes to be taken away.
        weights: percent of the requests, by revision; other revisions share the rest, all their
            replicas alike (``weights.of_replicas``).
        wake_at: when the next step may be due if nothing else happens.
    """

    rollout: Rollout
    verdict: RolloutVerdict
    why: Why[RolloutCode]
    create: Mapping[int, int] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    weights: Mapping[int, int] = field(default_factory=dict)
    wake_at: float | None = None


@dataclass(frozen=True, slots=True)
class _Stage:
    """A time with two revisions side by side: so many new replicas, in percent of those wanted, get
    this percent of the requests, until they were all available for so long."""

    share: int
    weight: int
    watch_s: float

    def needed(self, wanted: int) -> int:
        return ceil(wanted * self.share / 100)


def advance(
    rollout: Rollout,
    update: UpdateSpec,
    wanted: int,
    replicas: Sequence[Replica],
    seen: Mapping[int, tuple[int, int]],
    now: float,
    counters: str = "",
) -> RolloutStep:
    """The next step of a roll-out.

    Args:
        wanted: how many replicas the deployment shall have; it may change meanwhile.
        replicas: of all revisions.
        seen: requests, and those of them that failed, by revision, of all replicas that have not
            ended.
        counters: tells these counters from others, which began anew.
    """
    to = rollout.to_revision
    stages = _stages(update) if wanted and rollout.from_revision not in (None, to) else ()
    if rollout.paused_at is not None:
        lost = _lost(rollout, update, stages, wanted, replicas)
        weights = _weights(rollout, stages)
        needless = _needless(rollout, update, stages, wanted, replicas)
        paused = why(RolloutCode.PAUSED)
        return RolloutStep(rollout, RolloutVerdict.GOES_ON, paused, lost, needless, weights)
    told = seen.get(to, (0, 0))
    available = sum(each.available for each in replicas if each.revision == to)
    rollout = _with_best(rollout, available, wanted, now)
    rollout = _with_counters(rollout, told, counters, now)
    failure = _too_many_failed(rollout, wanted)
    if failure is None and rollout.step < len(stages):
        failure = _too_many_errors(rollout, update, told)
    if failure is None:
        rollout, needed = _through_stages(rollout, stages, wanted, available, told, now)
        failure = _too_slow(rollout, update, available, needed, now)
    if failure is not None:
        return _given_up(rollout, update, wanted, replicas, failure)
    create, remove = _changes(rollout, update, stages, wanted, needed, replicas)
    weights = _weights(rollout, stages)
    if available < needed:
        because = why(RolloutCode.REPLACING, available=available, wanted=needed)
        moment = rollout.progress_at + update.progress_deadline
    elif rollout.step < len(stages) and rollout.step_since is not None:
        stage = stages[rollout.step]
        because = why(RolloutCode.WATCHING, weight=stage.weight)
        moment = rollout.step_since + stage.watch_s
    else:
        complete = why(RolloutCode.COMPLETE, replicas=wanted)
        return RolloutStep(rollout, RolloutVerdict.DONE, complete, create, remove, weights)
    wake_at = min([moment, *_available_at(rollout, update, replicas, now)])
    return RolloutStep(rollout, RolloutVerdict.GOES_ON, because, create, remove, weights, wake_at)


def weights_of(rollout: Rollout, update: UpdateSpec, wanted: int) -> Mapping[int, int]:
    """Percent of the requests, by revision, until the next step (``RolloutStep.weights``)."""
    stages = _stages(update) if rollout.from_revision is not None and wanted else ()
    return _weights(rollout, stages)


def _stages(update: UpdateSpec) -> Sequence[_Stage]:
    """The stages of an update. Before requests go to a larger part of new replicas these are made,
    which is a stage of its own."""
    parts: Sequence[tuple[int, float]] = ()
    if update.strategy is Strategy.BLUE_GREEN:
        parts = [(100, update.keep_old)]
    elif update.strategy is Strategy.CANARY:
        parts = [(step.weight, step.watch) for step in update.steps]
    stages, before = [], 0
    for weight, watch_s in parts:
        stages += [_Stage(weight, before, 0.0), _Stage(weight, weight, watch_s)]
        before = weight
    return stages


def _weights(rollout: Rollout, stages: Sequence[_Stage]) -> Mapping[int, int]:
    """The new revision's part of the requests. After the last stage all replicas are alike, unless
    the new ones got everything already."""
    if rollout.step < len(stages):
        return {rollout.to_revision: stages[rollout.step].weight}
    return {rollout.to_revision: 100} if stages and stages[-1].weight == 100 else {}


def _with_best(rollout: Rollout, available: int, wanted: int, now: float) -> Rollout:
    """The roll-out with its best, which is progress. Where fewer are wanted than before, the best
    is no more than these, so that it is progress again when more are."""
    best, reached = min(rollout.best, wanted), min(available, wanted)
    if reached > best:
        return replace(rollout, best=reached, progress_at=now)
    return rollout if best == rollout.best else replace(rollout, best=best)


def _with_counters(rollout: Rollout, told: tuple[int, int], counters: str, now: float) -> Rollout:
    """The roll-out, whose stage is watched anew where the counters were lost: nobody knows the
    errors of before. Where another controller counts, the progress deadline begins anew as well:
    without one, no replica could be found healthy."""
    is_other = counters != rollout.counted
    lost = told[0] < rollout.requests or told[1] < rollout.failures
    if not is_other and not lost:
        return rollout
    since = None if rollout.step_since is None else now
    progress_at = now if is_other else rollout.progress_at
    return replace(
        rollout,
        counted=counters,
        step_since=since,
        progress_at=progress_at,
        requests=0,
        failures=0,
    )


def _too_many_failed(rollout: Rollout, wanted: int) -> Why[RolloutCode] | None:
    budget = min(FAILED_STARTS_EACH * wanted, MOST_FAILED_STARTS)
    if not wanted or rollout.failed_starts < budget:
        return None
    return why(RolloutCode.FAILED_STARTS, failed=rollout.failed_starts, budget=budget)


def _too_many_errors(
    rollout: Rollout, update: UpdateSpec, told: tuple[int, int]
) -> Why[RolloutCode] | None:
    """The failure of a stage by the answers of the new revision in it."""
    requests, failures = told[0] - rollout.requests, told[1] - rollout.failures
    limit = update.max_error_rate
    if requests < update.min_requests or 100 * failures <= limit * requests:
        return None
    return why(RolloutCode.ERRORS, requests=requests, failures=failures, max_error_rate=limit)


def _too_slow(
    rollout: Rollout, update: UpdateSpec, available: int, needed: int, now: float
) -> Why[RolloutCode] | None:
    limit = update.progress_deadline
    if available >= needed or now < rollout.progress_at + limit:
        return None
    return why(RolloutCode.NO_PROGRESS, available=available, wanted=needed, deadline_s=limit)


def _through_stages(
    rollout: Rollout,
    stages: Sequence[_Stage],
    wanted: int,
    available: int,
    told: tuple[int, int],
    now: float,
) -> tuple[Rollout, int]:
    """The roll-out in the stage that it has come to, and the new replicas that are needed there.
    The progress deadline runs while some of these are missing, and stands still otherwise."""
    while rollout.step < len(stages):
        stage = stages[rollout.step]
        needed = stage.needed(wanted)
        if available < needed:
            if rollout.step_since is not None:
                progress_at = rollout.progress_at + (now - rollout.step_since)
                rollout = replace(rollout, step_since=None, progress_at=progress_at)
            return rollout, needed
        if rollout.step_since is None:
            rollout = replace(rollout, step_since=now)
        assert rollout.step_since is not None
        if now < rollout.step_since + stage.watch_s:
            return rollout, needed
        rollout = replace(
            rollout,
            step=rollout.step + 1,
            step_since=None,
            progress_at=now,
            requests=told[0],
            failures=told[1],
        )
    return rollout, wanted


def _changes(
    rollout: Rollout,
    update: UpdateSpec,
    stages: Sequence[_Stage],
    wanted: int,
    needed: int,
    replicas: Sequence[Replica],
) -> tuple[Mapping[int, int], tuple[str, ...]]:
    """The replicas to be made and taken away. In a stage all old ones stay, or are made again,
    beside the new ones; of these, one that is healthy does not go while old ones are missing."""
    to, former = rollout.to_revision, rollout.from_revision
    if rollout.step >= len(stages) or former is None:
        change = _exchange(update, wanted, replicas, to)
        return _of(to, change), change.remove
    old = [each for each in replicas if each.revision != to]
    new = [each for each in replicas if each.revision == to]
    of_old = _exchange(update, wanted, old, former)
    of_new = _exchange(update, needed, new, to)
    complete = wanted <= sum(each.available for each in old if each.route not in of_old.remove)
    needless = {each.route for each in new if complete or not each.is_up}
    remove = (*of_old.remove, *(route for route in of_new.remove if route in needless))
    return {**_of(former, of_old), **_of(to, of_new)}, remove


def _lost(
    rollout: Rollout,
    update: UpdateSpec,
    stages: Sequence[_Stage],
    wanted: int,
    replicas: Sequence[Replica],
) -> Mapping[int, int]:
    """The replicas that are made while a roll-out is paused: of the former revision, in place of
    those that were lost, so that a long pause costs nothing of the service."""
    former = rollout.from_revision
    if former is None:
        return {}
    if rollout.step < len(stages):
        replicas = [each for each in replicas if each.revision != rollout.to_revision]
    live = sum(each.live for each in replicas)
    surge, _ = _limits(update, wanted)
    missing = min(wanted - live, wanted + surge - len(replicas))
    return {former: missing} if missing > 0 else {}


def _needless(
    rollout: Rollout,
    update: UpdateSpec,
    stages: Sequence[_Stage],
    wanted: int,
    replicas: Sequence[Replica],
) -> tuple[str, ...]:
    """The routes that are taken away while a roll-out is paused, because fewer replicas are wanted:
    those that do not serve, then of both revisions, so that each keeps its share."""
    to = rollout.to_revision
    live = worst_first([each for each in replicas if each.live], to)
    new = [each for each in live if each.revision == to]
    old = [each for each in live if each.revision != to]
    if rollout.step < len(stages):
        needed = stages[rollout.step].needed(wanted)
        spare = max(0, min(len(new) - needed, len(live) - wanted))
        going = [*new[:spare], *old[: max(0, len(old) - wanted)]]
    else:
        surge, _ = _limits(update, wanted)
        excess = max(0, len(live) - (wanted + surge if wanted else 0))
        going = [each for each in live if not each.serves][:excess]
        rest = excess - len(going)
        serving_new = [each for each in new if each.serves]
        serving_old = [each for each in old if each.serves]
        of_new = rest * len(serving_new) // max(1, len(serving_new) + len(serving_old))
        going += [*serving_new[:of_new], *serving_old[: rest - of_new]]
    return tuple(each.route for each in going)


def _available_at(
    rollout: Rollout, update: UpdateSpec, replicas: Sequence[Replica], now: float
) -> Iterator[float]:
    """The moments at which new replicas that are healthy become available."""
    for each in replicas:
        if each.revision == rollout.to_revision and each.standing is Standing.HEALTHY:
            moment = each.since + update.min_healthy_time
            if moment > now:  # past for one that is not probed now
                yield moment


def _given_up(
    rollout: Rollout,
    update: UpdateSpec,
    wanted: int,
    replicas: Sequence[Replica],
    failure: Why[RolloutCode],
) -> RolloutStep:
    """The last step of a roll-out that has failed: the way back. New replicas that serve stay as
    long as old ones are missing, but not if the new revision answers with errors. Where there is no
    former revision, those that are healthy are kept for good."""
    to, former = rollout.to_revision, rollout.from_revision
    if former is None:
        useless = [each for each in replicas if each.live and not each.is_up]
        return RolloutStep(
            rollout, RolloutVerdict.FAILED, failure, remove=tuple(e.route for e in useless)
        )
    if failure.code is RolloutCode.ERRORS:
        replicas = [
            replace(each, standing=Standing.UNHEALTHY)
            if each.live and each.revision == to
            else each
            for each in replicas
        ]
    change = _exchange(update, wanted, replicas, former)
    weights = {to: 0} if failure.code is RolloutCode.ERRORS else {}
    return RolloutStep(
        rollout, RolloutVerdict.FAILED, failure, _of(former, change), change.remove, weights
    )


def _exchange(
    update: UpdateSpec, wanted: int, replicas: Sequence[Replica], revision: int
) -> Change:
    """An exchange within the limits of an update."""
    surge, unavailable = _limits(update, wanted)
    return exchange(wanted, replicas, revision, surge=surge, unavailable=unavailable)


def _limits(update: UpdateSpec, wanted: int) -> tuple[int, int]:
    """Surge and unavailable, of which one is above 0."""
    surge = update.surge.of(wanted, up=True)
    unavailable = update.unavailable.of(wanted, up=False)
    return surge, unavailable if surge or unavailable else 1


def _of(revision: int, change: Change) -> Mapping[int, int]:
    return {revision: change.create} if change.create else {}
