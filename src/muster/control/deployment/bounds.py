"""How much a user's deployments may be together."""

from muster.control.deployment.entity import Deployment
from muster.control.engine.work import Work
from muster.core.errors import Conflict
from muster.core.owner import Owner

MAX_OF_USER = 1_000
"""Live deployments of a user."""
MAX_REPLICAS_OF_USER = 20_000
"""Replicas that a user's live deployments may wish together; one that follows load counts as its
largest number."""


def _most(deployment: Deployment) -> int:
    """The largest number of replicas that a deployment may wish by itself."""
    scale = deployment.spec.scale
    return deployment.replicas if scale is None else scale.max


def must_be_bounded(work: Work, owner: Owner, changed: Deployment | None, replicas: int) -> None:
    """Refuse what would be more than a user may have.

    Args:
        changed: the deployment that is to wish so many replicas; None is a new one.

    Raises:
        Conflict: it would be one deployment too many, or too many replicas together.
    """
    same = (owner.domain, owner.user)
    of = work.live.of(Deployment).values()
    others = [d for d in of if (d.owner.domain, d.owner.user) == same and d is not changed]
    if changed is None and len(others) >= MAX_OF_USER:
        raise Conflict(f"{owner.user} has {MAX_OF_USER:,} deployments, and may have no more")
    wished = replicas + sum(map(_most, others))
    fewer = changed is not None and replicas <= _most(changed)
    if wished > MAX_REPLICAS_OF_USER and not fewer:
        raise Conflict(
            f"the deployments of {owner.user} would wish {wished:,} replicas together; at most "
            f"{MAX_REPLICAS_OF_USER:,} are made"
        )
