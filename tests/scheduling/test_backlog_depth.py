"""How many kernels are prefilled on an agent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.scheduling.fitting.backlog_depth import backlog_depth


@pytest.mark.parametrize(
    ("mean_duration_s", "running", "depth"),
    [
        (None, 4, 0),
        (0.5, 4, 0),
        (0.25, 4, 4),
        (0.1, 4, 10),
        (0.01, 2, 50),
        (0.001, 2, 256),
        (0.0, 2, 256),
        (0.01, 0, 0),
        (-1.0, 4, 0),
        (float("nan"), 4, 0),
    ],
)
def test_depth_covers_the_window_for_what_runs(
    mean_duration_s: float | None, running: int, depth: int
) -> None:
    assert backlog_depth(0.25, mean_duration_s, running) == depth


@pytest.mark.parametrize("mean_duration_s", [0.0, 0.001, None])
def test_group_without_a_window_holds_nothing_ahead(mean_duration_s: float | None) -> None:
    assert backlog_depth(0, mean_duration_s, running=8) == 0


@given(
    window_s=st.floats(0.01, 10),
    mean_duration_s=st.floats(0, 10),
    running=st.integers(0, 1000),
    limit=st.integers(1, 300),
)
def test_depth_is_bounded_and_no_more_than_the_window_needs(
    window_s: float, mean_duration_s: float, running: int, limit: int
) -> None:
    depth = backlog_depth(window_s, mean_duration_s, running, limit)
    assert 0 <= depth <= limit
    if depth and mean_duration_s:
        assert (depth - 1) * mean_duration_s <= running * window_s * (1 + 1e-9)
    if running and mean_duration_s <= window_s:
        assert depth == limit or depth * mean_duration_s >= running * window_s * (1 - 1e-9)
