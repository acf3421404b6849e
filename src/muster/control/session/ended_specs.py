"""The specs of ended work: each owner's newest are kept whole within a share, so that the work can
be handed in again; the long values of older ones are removed (design: Shares).

Whoever hands work in or ends it pays for the removal of as much as it brings, so an owner can never
be far above the share, however fast it goes. What is left is removed by the sweep, some at a time.
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from muster.control.engine.work import Work
from muster.control.session.cluster.state import ClusterState
from muster.core.owner import Owner
from muster.core.reasons.of_files import SpecNotKept
from muster.core.resources import AmountUnit
from muster.scheduling.accounting.holdings import LARGE_SPEC_BYTES, EndedSpec
from muster.scheduling.accounting.usage import scopes
from muster.store.ended_specs import Texts, cut, storing

log = logging.getLogger(__name__)

STEP_BYTES = 4 * 2**20
"""Bytes of specs that are cut in one wake of the sweep; one spec at least is."""


class EndedSpecs:
    """Cuts the specs of ended work that are above their owner's share.

    Args:
        cluster: the quotas of owners.
        read: the stored texts of a spec; None if its row is gone.
    """

    def __init__(self, cluster: ClusterState, read: Callable[[EndedSpec], Texts | None]) -> None:
        self._cluster = cluster
        self._read = read

    def pay(self, work: Work, owner: Owner, spec_bytes: int) -> None:
        """Remove as much as work with a spec of this size brings, if the owner is above its
        share."""
        if spec_bytes > LARGE_SPEC_BYTES:
            self._cut_of(work, owner, 2 * spec_bytes)

    def sweep(self, work: Work) -> None:
        """Remove a part of what is above the shares of all owners."""
        left_bytes = STEP_BYTES
        for owner in work.live.holdings.owners_of_ended():
            if left_bytes <= 0:
                return
            left_bytes -= self._cut_of(work, owner, left_bytes)

    def _cut_of(self, work: Work, owner: Owner, most_bytes: int) -> int:
        """Cut an owner's oldest specs above its share; the answer is how many bytes they had,
        which is at least ``most_bytes`` if so much is above it."""
        holdings = work.live.holdings
        share_bytes = self._cluster.accounting.quotas.stored(scopes(owner)[0]).ended_specs_bytes
        assert share_bytes is not None, "users have a default"
        done_bytes, specs = 0, []
        for spec in holdings.oldest_ended(owner, share_bytes):
            if done_bytes >= most_bytes:
                break
            specs.append(spec)
            done_bytes += spec.spec_bytes
        for spec in specs:
            self._cut(work, spec, share_bytes)
            holdings.cut(owner, spec)
        return done_bytes

    def _cut(self, work: Work, spec: EndedSpec, share_bytes: int) -> None:
        texts = self._read(spec)
        if texts is None:
            return
        try:
            texts = cut(texts)
        except ValueError as error:
            log.warning("the spec of %s is damaged, and is left as it is: %s", spec.id, error)
            return
        at = datetime.fromtimestamp(work.now, UTC).isoformat(timespec="seconds")
        why = SpecNotKept(at=at, size=spec.spec_bytes, limit=share_bytes, unit=AmountUnit.BYTES)
        work.unit.also(*storing(spec, texts, why.to_json()))
