"""The limits of a quota that concern the sessions of a class, and what is used of them.

A limit on GPUs of a model counts what may be of that model: a session that names no model, or
others as well, counts where its group has such GPUs.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from muster.core.resources import is_model
from muster.core.specs import QuotaLimits, QuotaSpec
from muster.scheduling.accounting.usage import ScopeUsage
from muster.scheduling.workload import InGroup, OfModels, WorkloadClass

Models = Mapping[str, Collection[str]]
"""By group, the models of the GPUs that its agents have."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit on a resource, and the amount for which one session of the class asks.

    Args:
        group: the only group in which it counts; None is all.
        model: the only model of GPUs that it counts; None is any.
        is_certain: whether what the session gets counts for sure; it may get another model if not.
    """

    resource: str
    limit: int
    requested: int
    group: str | None = None
    model: str | None = None
    is_certain: bool = True

    def used(self, held: ScopeUsage, models: Models) -> int:
        """The amount that is in use of it."""
        if self.model is None:
            if self.group is None:
                return held.amounts.get(self.resource, 0)
            return held.parts.get(InGroup(self.group, self.resource), 0)
        return sum(
            amount
            for part, amount in held.parts.items()
            if isinstance(part, OfModels)
            and self.group in (None, part.group)
            and may_be(part.models, self.model, models.get(part.group, ()))
        )


def limits_on(quota: QuotaSpec, workload: WorkloadClass, models: Models) -> Iterator[Limit]:
    """The limits that concern a class, on what its owner's placed sessions hold together."""
    yield from _of(quota.limits, workload, models, None)
    if quota.groups and workload.group in quota.groups:
        yield from _of(quota.groups[workload.group], workload, models, workload.group)


def limits_of_one(quota: QuotaSpec, workload: WorkloadClass) -> Iterator[Limit]:
    """The limits that one session of the class exceeds by itself for sure, whatever it gets: on the
    sum that its owner may hold."""
    for limit in limits_on(quota, workload, {}):
        if limit.requested > limit.limit:
            yield limit


def largest_of_one(quota: QuotaSpec, workload: WorkloadClass) -> Iterator[Limit]:
    """The limits on one session that a session of the class exceeds."""
    for limit in _of(quota.largest, workload, {}, None):
        if limit.requested > limit.limit:
            yield limit


def _of(
    limits: QuotaLimits, workload: WorkloadClass, models: Models, group: str | None
) -> Iterator[Limit]:
    for resource, limit in limits.amounts.items():
        yield Limit(resource, limit, workload.total.get(resource, 0), group)
    for model, limit in limits.models.items():
        sure, perhaps = _requested(workload, model, models.get(workload.group, ()))
        if perhaps:
            yield Limit("gpu", limit, perhaps, group, model, is_certain=sure == perhaps)


def _requested(workload: WorkloadClass, model: str, known: Collection[str]) -> tuple[int, int]:
    """Thousandths of GPUs that a session of the class gets of the model for sure, and perhaps."""
    sure = perhaps = 0
    for part, amount in workload.parts.items():
        if isinstance(part, OfModels):
            if is_surely(part.models, model):
                sure += amount
                perhaps += amount
            elif may_be(part.models, model, known):
                perhaps += amount
    return sure, perhaps


def is_surely(asked: Iterable[str], model: str) -> bool:
    """Whether a GPU of any model that is asked for is one of ``model``, whatever GPUs there are."""
    names = [*asked]
    return bool(names) and all(is_model(each, model) for each in names)


def may_be(asked: Collection[str], model: str, known: Iterable[str]) -> bool:
    """Whether a GPU that is given to who asks for these models, or for any, may be one of
    ``model``, where GPUs of the ``known`` models exist."""
    if is_surely(asked, model):
        return True
    return any(
        is_model(each, model) and (not asked or any(is_model(each, name) for name in asked))
        for each in known
    )
