"""Pools, slices and the autoscaler: methods of both clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from muster.client.calls import body_of
from muster.client.encoding import Ref, quoted
from muster.client.exchange import Exchange, exchange
from muster.client.resource import ClientResource, ListingQuery, RecordViews, ResourceCalls
from muster.core import views
from muster.core.ids import IdKind
from muster.core.verbs.pools import HOLD_SLICE, PAUSE_POOL, RELEASE_SLICE, RESUME_POOL

if TYPE_CHECKING:
    from muster.core.specs import PoolSpec
    from muster.core.views.pools import (
        AutoscalerView,
        PoolView,
        SliceView,
    )

CHECK_S = 15.0
"""How long a provider may take to check a pool (``api.provider_checks``)."""


def newest_pools(
    state: str = "live", *, name: str | None = None, group: str | None = None, limit: int = 100
) -> ListingQuery:
    """Pools, newest first.

    Args:
        state: ``live``, ``ended``, ``all``, or one state.
        name: only the pool of this name, or with ``gpu*`` those whose names begin with ``gpu``.
        group: only those of this scaling group.
        limit: how many at most.
    """
    return ListingQuery({"state": state, "name": name, "group": group}, limit)


def newest_slices(
    state: str = "live", *, pool: str | None = None, group: str | None = None, limit: int = 100
) -> ListingQuery:
    """Slices, newest first.

    Args:
        state: ``live``, ``ended``, ``all``, or one state.
        pool: only those of this pool.
        group: only those of this scaling group.
        limit: how many at most.
    """
    return ListingQuery({"state": state, "pool": pool, "group": group}, limit)


POOLS = ClientResource(
    name="pool",
    prefix=IdKind.POOL,
    path="/v1/pools",
    views=lambda: RecordViews(views.pools.PoolView, views.pools.PoolView, views.pools.PoolPage),
    listing=newest_pools,
)

SLICES = ClientResource(
    name="slice",
    prefix=IdKind.SLICE,
    path="/v1/slices",
    views=lambda: RecordViews(views.pools.SliceView, views.pools.SliceView, views.pools.SlicePage),
    listing=newest_slices,
)


class Pools(ResourceCalls):
    """Pools of machines, their slices, and what was decided about them. Changes are for admins."""

    pools = POOLS
    slices = SLICES

    @exchange
    def apply_pool(
        self, spec: PoolSpec | Mapping[str, Any], *, check: bool = True
    ) -> Exchange[PoolView]:
        """Make a pool, or change it. Slices that were made with another shape stay, outdated, until
        ``replace_slices``.

        Args:
            check: whether the provider is asked first if it could make such machines.

        Raises:
            InvalidSpec: with every problem found, the provider's objection among them.
            NotFound: there is no such group.
            Conflict: it is being deleted, or its group or provider would change while it has
                slices.
        """
        name = str(spec.get("name", "")) if isinstance(spec, Mapping) else spec.name
        _, body = body_of(spec)
        asked = self._send(
            "PUT",
            f"{POOLS.path}/{quoted(name)}",
            body=body,
            params={"check": check},
            extra_s=CHECK_S,
        )
        return self._read(views.pools.PoolView, asked)

    pause_pool = POOLS.verb(PAUSE_POOL)
    resume_pool = POOLS.verb(RESUME_POOL)

    @exchange
    def replace_slices(self, ref: Ref, *, at_a_time: int = 1) -> Exchange[PoolView]:
        """Have the outdated slices of a pool replaced, ``at_a_time``, each once its work has ended;
        0 ends that. It stops by itself when new slices fail.

        Raises:
            NotFound: there is no such pool.
        """
        return self._change(POOLS, ref, "replace", at_a_time=at_a_time)

    @exchange
    def delete_pool(self, ref: Ref) -> Exchange[PoolView]:
        """Delete a pool with all its slices, whatever runs on them.

        Raises:
            NotFound: there is no such pool.
        """
        return self._read(views.pools.PoolView, self._send("DELETE", POOLS.of(ref), repeat=False))

    hold_slice = SLICES.verb(HOLD_SLICE)
    release_slice = SLICES.verb(RELEASE_SLICE)

    @exchange
    def drain_slice(self, ref: Ref, *, deadline: float | str | None = None) -> Exchange[SliceView]:
        """Delete a slice once its work has ended; it takes no more.

        Args:
            deadline: work that still runs after so long (seconds, or as ``"1h"``) has to leave;
                without one it runs to its end.

        Raises:
            NotFound: there is no such slice.
        """
        return self._change(SLICES, ref, "drain", deadline=deadline)

    @exchange
    def delete_slice(self, ref: Ref, *, gone: bool = False) -> Exchange[SliceView]:
        """Delete a slice; work on it has to leave at once. With ``gone`` you vouch that its
        machines are off for good: it ends though its provider cannot delete them.

        Raises:
            NotFound: there is no such slice.
            Conflict: an agent of a slice that is ``gone`` is alive, or may still run kernels.
        """
        send = self._send("DELETE", SLICES.of(ref), params={"gone": gone}, repeat=False)
        return self._read(views.pools.SliceView, send)

    @exchange
    def autoscaler(self, group: str | None = None) -> Exchange[list[AutoscalerView]]:
        """The scaling groups that have pools, by name, or one of them: what they have, what was
        decided about their demand, and what it costs.

        Raises:
            NotFound: there is no such group.
        """
        page = yield from self._get(views.pools.AutoscalerPage, "/v1/autoscaler", group=group)
        return list(page.items)
