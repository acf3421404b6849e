"""Shrinking: a run that violates an invariant is reduced to the fewest steps that still violate
it."""

from collections.abc import Callable, Sequence

from proving.swarm.steps import Step


def shrink(
    steps: Sequence[Step], fails: Callable[[Sequence[Step]], bool], most_tries: int = 400
) -> list[Step]:
    """Take out steps as long as ``fails`` is true of the rest: halves first, then smaller parts,
    down to single steps: delta debugging (source: Zeller and Hildebrandt 2002).

    The answer fails, and would not without any one of its steps, unless ``most_tries`` were spent.
    """
    left, parts, tries = list(steps), 2, 0
    while len(left) > 1:
        size = -(-len(left) // parts)
        for begin in range(0, len(left), size):
            without = left[:begin] + left[begin + size :]
            tries += 1
            if tries > most_tries:
                return left
            if fails(without):
                left, parts = without, max(parts - 1, 2)
                break
        else:
            if size == 1:
                return left
            parts = min(parts * 2, len(left))
    return left
