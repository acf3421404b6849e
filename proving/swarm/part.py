"""The seam of a simulation: the steps and invariants that an entity, or a corner of the world, adds
to every run. The control plane's ``Parts`` (``control.engine.module``) are something else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proving.swarm.judge import Invariant
from proving.swarm.scene import Scene
from proving.swarm.steps import Kinds


def leave_alone(scene: Scene) -> None:
    """The ``calm`` of a part whose steps never keep work from ending: it does nothing."""


@dataclass(frozen=True, slots=True)
class Part:
    """Steps and invariants that belong together.

    Args:
        kinds: of its steps.
        invariants: judged in every run.
        calm: ends all that its steps have made of the world, so that all work can end.
        place: among the parts. One that does not say it comes last, so that the steps of known
            seeds stay as they are.
    """

    kinds: Kinds
    invariants: Sequence[type[Invariant]] = ()
    calm: Callable[[Scene], None] = leave_alone
    place: int = 100
