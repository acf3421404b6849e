"""Traces and pools as data: when sessions start, which slices are made for them, what they cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulate.worlds import codes, comes, machine, policy, replayed, starts

from muster.core.errors import InvalidSpec, MusterError
from muster.core.specs.pool import PoolSpec
from muster.simulate.policy_file import NamedPolicy, read_policy
from muster.simulate.recording import Recording
from muster.simulate.report import PoolFigures, report
from muster.simulate.trace import TraceSession

BOOT_S = 120.0


def pool(name: str = "a", gpus: int = 1, **fields: Any) -> PoolSpec:
    """A pool of machines of 32 processors at a price of 3.6 an hour: a thousandth for a second."""
    shape = {"cpu": 32, "memory": "64GiB", "gpus": gpus, "gpu_model": "H100" if gpus else ""}
    spec = {"name": name, "group": "pool", "provider": "local", "machine": shape, "price": 3.6}
    return PoolSpec.model_validate(spec | {"max_slices": 9, "idle_timeout": 600} | fields)


def under(*pools: PoolSpec, **fields: Any) -> NamedPolicy:
    plain = policy(**fields)
    return NamedPolicy(plain.name, plain.group, plain.quotas, pools)


def run(*trace: TraceSession, pools: Sequence[PoolSpec], **how: Any) -> Recording:
    """The replay on machines of the pools alone, unless ``on`` names others."""
    where: dict[str, Any] = {"on": (), "boot_s": BOOT_S, **how}
    return replayed(*trace, under=under(*pools), **where)


def figures(recording: Recording) -> PoolFigures:
    (found,) = report(recording).pools
    return found


def test_session_waits_for_a_slice_to_boot_which_is_deleted_when_it_was_idle() -> None:
    found = run(comes("a", runs=100), pools=[pool()])
    assert starts(found) == {"a": 120}
    its = figures(found)
    assert (its.slices_made, its.slices_deleted, its.slices_peak) == (1, 1, 1)
    assert found.moments[-1].at == 120 + 100 + 600
    assert its.cost == 0.82
    assert its.machine_hours == round(820 / 3600, 3)


def test_cost_counts_all_machines_of_a_slice() -> None:
    found = run(comes("a", runs=100, kernels=2), pools=[pool(slice_size=3)])
    assert starts(found) == {"a": 120}
    assert report(found).cost == 3 * 0.82


def test_machines_that_are_there_are_used_before_slices_are_made() -> None:
    found = run(comes("a", runs=50), comes("b", runs=50), pools=[pool()], on=(machine(),))
    # A slice is wished for at once, but the machine is free before it has booted.
    assert starts(found) == {"a": 0, "b": 50}
    assert (figures(found).slices_made, found.moments[-1].at) == (1, 650)


def test_pool_makes_no_more_than_it_may_and_the_rest_waits_for_its_turn() -> None:
    trace = [comes(name, runs=100) for name in "abc"]
    found = run(*trace, pools=[pool(max_slices=2)])
    assert starts(found) == {"a": 120, "b": 120, "c": 220}
    assert figures(found).slices_peak == 2
    assert figures(found).cost == 0.92 + 0.82  # idle from 320 on, and from 220 on


def test_ceiling_of_the_group_holds() -> None:
    trace = [comes(name, runs=100) for name in "abc"]
    found = replayed(*trace, on=(), under=under(pool(), max_gpus=1), boot_s=BOOT_S)
    assert starts(found) == {"a": 120, "b": 220, "c": 320}


def test_idle_slice_serves_the_next_session_within_its_timeout() -> None:
    trace = [comes("a", runs=100), comes("b", at=700, runs=100), comes("c", at=1500, runs=100)]
    found = run(*trace, pools=[pool()])
    assert starts(found) == {"a": 120, "b": 700, "c": 1620}  # idle since 800, deleted at 1400
    assert figures(found).slices_made == 2


def test_least_number_of_slices_stays_until_the_end() -> None:
    found = run(comes("a", runs=100), comes("b", at=9000), pools=[pool(min_slices=1)])
    assert starts(found) == {"a": 120, "b": 9000}
    its = figures(found)
    assert (its.slices_made, its.slices_deleted, its.cost) == (1, 0, 9.01)


def test_buffer_is_ready_for_the_next_session_and_filled_up_again() -> None:
    trace = [comes("a", runs=1000), comes("b", at=500, runs=1000)]
    found = run(*trace, pools=[pool(buffer_slices=1)])
    assert starts(found) == {"a": 120, "b": 500}
    assert [each.slices for each in found.moments if each.at == 500] == [(3,)]


def test_dearer_pool_is_used_where_the_first_has_no_such_machine() -> None:
    pools = [pool("cpu", gpus=0, price=1), pool("gpu", priority=200)]
    found = run(comes("plain", gpu=0), comes("gpu"), pools=pools)
    assert [each.slices_made for each in report(found).pools] == [1, 1]
    assert starts(found) == {"plain": 120, "gpu": 120}


def test_sessions_that_come_within_the_time_between_two_routings_are_routed_together() -> None:
    found = run(comes("a"), comes("b", at=0.1), comes("c", at=0.2), pools=[pool()])
    assert starts(found) == {"a": 120, "b": 120.25, "c": 120.25}


def test_session_that_no_pool_can_hold_is_refused_and_others_run() -> None:
    found = run(comes("huge", gpu=4), comes("a"), pools=[pool(gpus=2)])
    assert starts(found) == {"huge": None, "a": 120}
    assert codes(found, "huge") == ["POOL_TOO_SMALL"]
    found = run(comes("huge", gpu=4), comes("a"), pools=[pool(gpus=0)], on=(machine(),))
    assert codes(found, "huge") == ["NEVER_FITS", "POOL_NO_DEVICE"]


def test_gang_that_pools_may_not_make_enough_for_waits_to_the_end() -> None:
    found = run(comes("gang", kernels=4), comes("a", at=1), pools=[pool(max_slices=3)])
    assert starts(found) == {"gang": None, "a": 121}


def test_shares_are_of_the_machines_that_are_there() -> None:
    found = report(run(comes("a", runs=100), comes("b", at=400), pools=[pool(gpus=2)]))
    # One of two GPUs for 100 of the 280 s in which they are there, in a window of 400 s.
    assert found.gpu_percent == round(100 * 100 / (2 * 280), 2)
    assert found.gpu_peak_percent == 50
    assert found.pools[0].slices_mean == 1


def test_replay_without_pools_has_no_cost_and_no_slices() -> None:
    found = report(replayed(comes("a")))
    assert (found.pools, found.cost, found.course.slices) == ((), None, ())


# -- wrong input ---------------------------------------------------------------------------------


def test_policy_without_machines_and_pools_is_refused() -> None:
    with pytest.raises(MusterError, match="policy the policy has no machines: name a cluster"):
        replayed(comes("a"), on=())


POOL = "kind: pool\nname: a\ngroup: {group}\nprovider: local\nmax_slices: 1\nmachine: {machine}\n"
MACHINE = "{cpu: 1, memory: 1GiB}"


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (["a", "a"], "another pool has this name"),
        (["a", "other"], "pool a is of another group than the policy's, a"),
        (["a", "a", "a"], "another pool has this name"),
    ],
)
def test_wrong_pools_of_a_policy_are_refused(
    documents: list[str], message: str, tmp_path: Path
) -> None:
    parts = ["kind: group\nname: a\n", *(_pool_text(group) for group in documents)]
    file = tmp_path / "policy.yaml"
    file.write_text("---\n".join(parts))
    with pytest.raises(InvalidSpec, match=message):
        read_policy(str(file))


def test_pools_are_read_beside_the_group(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"kind: group\nname: a\n---\n{_pool_text('a')}")
    (found,) = read_policy(str(file)).pools
    assert (found.name, found.max_slices) == ("a", 1)


def _pool_text(group: str) -> str:
    return POOL.replace("{group}", group).replace("{machine}", MACHINE)


# -- what must never happen ----------------------------------------------------------------------

SESSIONS = st.builds(
    comes,
    st.just("session"),
    at=st.integers(0, 2000),
    runs=st.integers(0, 500),
    gpu=st.sampled_from([0, 0.5, 1, 2]),
    cpu=st.integers(1, 32),
    kernels=st.integers(1, 3),
)
POOLS = st.builds(
    pool,
    gpus=st.integers(0, 2),
    slice_size=st.integers(1, 2),
    max_slices=st.integers(3, 5),
    min_slices=st.integers(0, 1),
    buffer_slices=st.integers(0, 1),
    idle_timeout=st.sampled_from([0, 60, 600]),
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(SESSIONS, max_size=15),
    POOLS,
    st.sampled_from(["strict", "best_effort", "backfill"]),
)
def test_all_that_pools_can_hold_runs_and_only_wanted_slices_are_left(
    trace: list[TraceSession], one: PoolSpec, queue: str
) -> None:
    whole = [comes("fits", gpu=0), *trace]
    large = pool("large", gpus=2, max_slices=3, priority=200)
    found = replayed(*whole, on=(), under=under(one, large, queue=queue), boot_s=BOOT_S)
    assert all(each.ended_at is not None for each in found.fates)
    for use, left in zip(found.pools, found.moments[-1].slices, strict=True):
        assert max(each.slices[0] for each in found.moments) <= one.max_slices
        assert left <= max(use.pool.min_slices, use.pool.buffer_slices)
    last = found.moments[-1]
    assert (last.gpu_milli, last.cpu_milli, last.waiting) == (0, 0, 0)
    assert all(each.gpu_milli <= each.gpu_capacity for each in found.moments)
    assert all(each.cpu_milli <= each.cpu_capacity for each in found.moments)


@settings(max_examples=10, deadline=None)
@given(st.lists(SESSIONS, max_size=15), POOLS)
def test_equal_input_gives_equal_reports(trace: list[TraceSession], one: PoolSpec) -> None:
    whole = [comes("fits", gpu=0), *trace]
    first, second = (report(run(*whole, pools=[one])).as_dict() for _ in range(2))
    assert first == second
