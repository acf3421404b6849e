"""The effect that has an address be probed, or no longer."""

from dataclasses import dataclass

from muster.core.serving.probes import Watched


@dataclass(frozen=True, slots=True)
class Watch:
    """Have a route's address be probed as ``watched`` says, until another effect of the route; None
    has it be probed no more.

    The key is (route, generation): an effect of an older generation than the route's last one
    changes nothing. What is probed follows from state, so that a prober that begins anew is told
    all of it again.
    """

    route: str
    generation: int
    watched: Watched | None = None

    @classmethod
    def of(cls, watched: Watched) -> "Watch":
        """The effect that has this be probed."""
        return cls(watched.route, watched.generation, watched)
