"""The weights of replicas, by which each revision gets its part of the requests (design:
Deployments and routes)."""

from collections.abc import Mapping
from math import gcd, lcm

MAX_WEIGHT = 10_000


def of_replicas(percent: Mapping[int, int], in_traffic: Mapping[int, int]) -> dict[int, int]:
    """The weight of each replica, by its revision. The shares are exact, unless a weight would be
    above MAX_WEIGHT: then they are as near as whole numbers up to it allow.

    What a revision without replicas would get, the others take in proportion; where no replica
    would get anything, all are alike.

    Args:
        percent: of the requests, by revision; revisions that are not named share the rest, all
            their replicas alike.
        in_traffic: how many replicas may get requests, by revision.

    Raises:
        ValueError: the parts do not add up to 100 at most, or one is negative.
    """
    rest = 100 - sum(percent.values())
    if rest < 0 or min(percent.values(), default=0) < 0:
        raise ValueError(f"expected parts of 100 % in all, not {dict(percent)}")
    there = {revision: count for revision, count in in_traffic.items() if count > 0}
    unnamed = sum(count for revision, count in there.items() if revision not in percent)
    parts = {
        revision: (percent[revision], count) if revision in percent else (rest, unnamed)
        for revision, count in there.items()
    }
    if not any(part for part, _ in parts.values()):
        return dict.fromkeys(there, 1)
    whole = lcm(*(count for _, count in parts.values()))
    weights = {revision: part * whole // count for revision, (part, count) in parts.items()}
    common = gcd(*weights.values())
    weights = {revision: weight // common for revision, weight in weights.items()}
    most = max(weights.values())
    if most <= MAX_WEIGHT:
        return weights
    return {
        revision: max(1, round(weight * MAX_WEIGHT / most)) if weight else 0
        for revision, weight in weights.items()
    }
