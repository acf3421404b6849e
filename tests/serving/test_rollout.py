"""Roll-outs, step by step."""

import pytest
from tests.serving.replicas_of import World, replicas, written

from muster.core.specs.serving import UpdateSpec
from muster.serving.rollout import Rollout, Verdict, advance


def update(**keys: object) -> UpdateSpec:
    return UpdateSpec.model_validate({"min_healthy_time": 1.0, **keys})


@pytest.mark.parametrize(
    ("surge", "unavailable", "expected"),
    [
        (
            1,
            0,
            [
                "1:aaaa 2:s",
                "1:aaaa 2:h",
                "1:aaax 2:a",
                "1:aaa 2:as",
                "1:aaa 2:ah",
                "1:aax 2:aa",
                "1:aa 2:aas",
                "1:aa 2:aah",
                "1:ax 2:aaa",
                "1:a 2:aaas",
                "1:a 2:aaah",
                "1:x 2:aaaa",
            ],
        ),
    ],
)
def test_rolling_update(surge: int | str, unavailable: int, expected: list[str]) -> None:
    world = World(replicas("1:aaaa"))
    spec = update(surge=surge, unavailable=unavailable)
    rollout = Rollout(2, 1, 0.0)
    seen = []
    for _ in range(100):
        step = advance(rollout, spec, 4, world.all, {}, world.now)
        rollout = step.rollout
        world.obey(step.create, step.remove)
        seen.append(written(world.all))
        if step.verdict is not Verdict.GOES_ON:
            break
        world.pass_time()
    assert seen == expected
    assert step.verdict is Verdict.DONE
