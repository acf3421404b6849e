"""Pools as operators write them."""

from typing import Any

import pytest
from tests.autoscaling.fleets import pool

from muster.core.errors import Problem


def problems(**fields: Any) -> list[Problem]:
    return list(pool("a", **fields).spec.contradictions())


def test_plain_pool_contradicts_itself_nowhere() -> None:
    assert problems(gpus=8, min_slices=1, max_slices=1, buffer_slices=1) == []


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("min_slices", {"min_slices": 3, "max_slices": 2}),
        ("buffer_slices", {"buffer_slices": 3, "max_slices": 2}),
        ("attributes.slice", {"attributes": {"slice": "mine"}}),
        ("machine.gpu_model", {"gpus": 8, "model": ""}),
        ("machine.gpus", {"machine": {"cpu": 1, "memory": "1GiB", "gpu_model": "H100"}}),
        ("machine.gpus", {"machine": {"cpu": 1, "memory": "1GiB", "gpu_memory": "80GiB"}}),
    ],
)
def test_combination_that_nobody_can_mean_is_told_with_its_field(
    field: str, fields: dict[str, Any]
) -> None:
    assert [problem.field for problem in problems(**fields)] == [field]


def test_slice_of_no_machines_is_refused() -> None:
    with pytest.raises(ValueError, match="slice_size"):
        pool("a", slice_size=0)
