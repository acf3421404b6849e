"""Bugs that the invariants of pools find."""

from collections.abc import Sequence

import pytest
from proving.hollow.performers.providers import Farm
from proving.swarm import runner
from proving.swarm.invariants import pools
from tests.proving.swarm.bugs.registry import finds

from muster.autoscaling import slice_plan
from muster.autoscaling.pool_state import PoolState
from muster.autoscaling.slice_plan import SlicePlan, SliceState
from muster.control.pool import autoscaler, slices
from muster.control.pool.deleting import DeleteSlices
from muster.control.pool.fleet import Fleet
from muster.control.pool.slices import SliceLifecycle
from muster.scheduling.cluster import constraints


@finds(pools.SlicesEndWithTheirMachines, first=3)
def providers_say_that_machines_are_gone_which_are_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Farm, "delete", lambda self, slice_: None)


@finds(pools.OnlyReadySlicesTakeWork, first=3)
def agents_of_any_slice_take_work(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(slices, "withheld", lambda slice_: "")


@finds(pools.LimitsOfPoolsHold, first=3)
def pools_have_no_limits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PoolState, "headroom", property(lambda self: 9))


@finds(pools.DoomedForCause, first=23)
def slices_with_work_count_as_idle(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fleet, "is_used", lambda self, slice_: False)


@finds(pools.TrippedPoolsStandStill, first=91)
def pools_that_stand_still_are_emptied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(autoscaler, "_stands_still", lambda state: False)
    patch.setattr(DeleteSlices, "_is_held_back", lambda self, slice_, result: False)


@finds(pools.TokensEnd, first=3)
def secrets_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SliceLifecycle, "_forget_secret", lambda self, slice_: None)


@finds(pools.AgentsGoWithTheirSlice, first=3)
def agents_outlive_their_slice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SliceLifecycle, "_bury", lambda self, work, slice_: None)


@finds(pools.PoolsSettle, first=7)
def idle_slices_are_made_and_deleted_in_turn(patch: pytest.MonkeyPatch) -> None:
    def one_more(
        pool: PoolState, of_pool: Sequence[SliceState], plan: SlicePlan, launches: int
    ) -> int:
        return 0 if any(each.id not in plan.delete for each in of_pool) else 1

    patch.setattr(slice_plan, "_missing", one_more)
    patch.setattr(runner, "REST_S", 1.0)  # it never comes


@finds(pools.PlacedAsAsked, first=3)
def hard_constraints_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(constraints, "is_met", lambda constraint, value: True)
