"""Steps are drawn from a seed, each topic by itself."""

import random

from proving.swarm.runner import draw_steps
from proving.swarm.scene import Scene
from proving.swarm.steps import Kinds, Lot, Params, Step


def _numbered(lot: Lot) -> Params:
    return {"number": lot.rng.randrange(100)}


def _kinds(*, others: bool) -> Kinds:
    kinds = Kinds()

    @kinds.add(1, _numbered)
    def wave(scene: Scene, number: int) -> None:
        """Somebody waves."""

    if others:

        @kinds.add(50, _numbered, apart=True)
        def shout(scene: Scene, number: int) -> None:
            """Somebody shouts."""

    return kinds


def _draw(kinds: Kinds) -> list[Step]:
    lot = Lot(random.Random(7), 7)
    return [step for _ in range(100) for step in kinds.draw(lot)]


def test_kind_that_is_drawn_apart_comes_in_between_and_leaves_all_other_steps_as_they_were() -> (
    None
):
    alone, together = _draw(_kinds(others=False)), _draw(_kinds(others=True))
    assert [step for step in together if step.name == "wave"] == alone
    shouts = [step.params["number"] for step in together if step.name == "shout"]
    assert 30 < len(shouts) < 70
    assert len(set(shouts)) > 20


def test_what_is_drawn_of_a_topic_leaves_all_else_as_it_was() -> None:
    lot, other = Lot(random.Random(7), 7), Lot(random.Random(7), 7)
    first = [lot.topic("memory").random() for _ in range(3)]
    assert lot.rng.random() == other.rng.random()
    assert lot.topic("tries").random() == other.topic("tries").random()
    assert [other.topic("memory").random() for _ in range(3)] == first


def test_steps_of_a_seed_are_the_same_each_time() -> None:
    assert draw_steps(5) == draw_steps(5)
