"""How a scaling group places work: its parts, found by the names that its spec gives."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from muster.core.specs import ScalingGroup
from muster.scheduling.plugins import AgentSelector, SessionSequencer, SessionValidator, find
from muster.scheduling.selectors import Concentrated
from muster.scheduling.sequencers import Fifo

VALIDATORS: Mapping[str, Callable[[], SessionValidator]] = {}
SEQUENCERS: Mapping[str, Callable[[], SessionSequencer]] = {"fifo": Fifo}
SELECTORS: Mapping[str, Callable[[], AgentSelector]] = {"concentrated": Concentrated}


@dataclass(frozen=True, slots=True)
class Policy:
    """The parts of one group's placement.

    Args:
        starvation_after_s: a session that waited so long is not overtaken any more.
    """

    sequencer: SessionSequencer
    selector: AgentSelector
    validators: tuple[SessionValidator, ...] = ()
    starvation_after_s: float = 300.0

    @staticmethod
    def of(group: ScalingGroup, validators: Iterable[str] = ()) -> "Policy":
        """The policy that ``group`` names.

        Raises:
            MusterError: a part of that name is not known, or cannot be loaded.
        """
        return Policy(
            sequencer=find("sequencers", group.sequencer, SEQUENCERS),
            selector=find("selectors", group.selector, SELECTORS),
            validators=tuple(find("validators", name, VALIDATORS) for name in validators),
            starvation_after_s=group.starvation_after,
        )
