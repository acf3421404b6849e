"""The replicas of deployments as probes find them, and the balancer in front of them: both outlive
controllers."""

from collections.abc import Callable, Mapping, Sequence

from muster.control.deployment.probes import ProbesTold
from muster.control.deployment.publishing.effects import PublishServices
from muster.control.engine.inputs import Input
from muster.core.serving.probes import ProbeResult
from muster.core.serving.traffic import TrafficService
from proving.hollow.performers.probing import NO_PROBE_FAULTS, HollowProber, ProbeFaults
from proving.hollow.performers.publishing import (
    NO_PUBLISH_FAULTS,
    HollowPublisher,
    PublishFaults,
)
from proving.hollow.virtual_clock import VirtualClock

SERVES = "SERVES"
"""The variable in a replica's environment that says how it answers: always unless told."""
_FLAP_S = 9.0
_FAST_S = 1.0
_LATE_S = 0.01


class HollowServing:
    """How replicas answer, and what the balancer has.

    Attributes:
        probe_faults, publish_faults: of the probers and publishers of this and later controllers.
        blind_until: the time until which no probe comes to its end.
        told: the last result of each route that the newest prober told, unless it was told so late
            that it may be older than another.
        services: what the balancer has, as of ``version``.

    Args:
        replica: the agent on which the process runs that a route's address leads to, and the
            process' environment; None if none runs.
        seed: of the faults.
    """

    def __init__(
        self,
        clock: VirtualClock,
        replica: Callable[[str], tuple[str, Mapping[str, str]] | None],
        seed: int,
    ) -> None:
        self._clock = clock
        self._replica = replica
        self._seed = seed
        self._ill_until: dict[str, float] = {}
        self._walled_until: dict[str, float] = {}
        self.probe_faults: ProbeFaults = NO_PROBE_FAULTS
        self.publish_faults: PublishFaults = NO_PUBLISH_FAULTS
        self.blind_until = 0.0
        self.told: dict[str, ProbeResult] = {}
        self.version = -1
        self.services: tuple[TrafficService, ...] = ()

    def prober(self, report: Callable[[Input], None]) -> HollowProber:
        """The prober of a new controller, which knows nothing of what the former one heard."""
        heard: dict[str, ProbeResult] = {}
        self.told = heard

        def told(results: Sequence[ProbeResult]) -> None:
            for each in results:
                if each.age_s < _LATE_S and each.reached:
                    heard[each.route] = each
                else:
                    heard.pop(each.route, None)
            report(ProbesTold(results))

        return HollowProber(
            self._clock, self.answers, told, self._seed, self.probe_faults, reaches=self._reaches
        )

    def publisher(self) -> HollowPublisher:
        """The publisher of a new controller."""
        return HollowPublisher(self._clock, self._take, self._seed, self.publish_faults)

    def be_ill(self, route: str, seconds: float) -> None:
        """Have a replica answer no probe well for so long."""
        self._ill_until[route] = self._clock.now() + seconds

    def be_walled(self, agent: str, seconds: float) -> None:
        """Have no probe of the controller's reach an agent's machine for so long."""
        self._walled_until[agent] = self._clock.now() + seconds

    def be_well(self) -> None:
        """Have no fault from now on; a replica that is not made to serve still does not."""
        self._ill_until.clear()
        self._walled_until.clear()
        self.blind_until = 0.0
        self.probe_faults, self.publish_faults = NO_PROBE_FAULTS, NO_PUBLISH_FAULTS

    def _reaches(self, route: str) -> bool:
        found = self._replica(route)
        return found is None or self._clock.now() >= self._walled_until.get(found[0], 0.0)

    def answers(self, route: str, generation: int) -> bool | None:
        """Whether a route is well; None if nobody finds that out."""
        now = self._clock.now()
        if now < self.blind_until:
            return None
        found = self._replica(route)
        if found is None or now < self._ill_until.get(route, 0.0):
            return False
        match found[1].get(SERVES):
            case "never":
                return False
            case "flaps":
                return int(now / _FLAP_S) % 3 > 0
            case "flaps fast":
                return int(now / _FAST_S) % 2 > 0
            case _:
                return True

    def _take(self, effect: PublishServices) -> None:
        if effect.version >= self.version:
            self.version, self.services = effect.version, effect.services
