"""Nobody inherits room that one of higher priority waits for."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from proving.hollow.supervisor import Kernel, Run
from tests.control.conftest import cpus
from tests.control.driven_agent import DrivenAgent
from tests.control.world import World

from muster.core.specs import JobSpec, ScalingGroup
from muster.core.states import SessionStatus

SHORT_S = 0.1
JOBS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.1, 0.5]),
        st.sampled_from([10, 50, 90]),
        st.integers(1, 40),
        st.sampled_from(["0", "1MiB", "2MiB"]),
    ),
    min_size=2,
    max_size=6,
)


class Watched(DrivenAgent):
    """Fails when a kernel inherits room that one of higher priority lacks."""

    world: World
    heirs = 0

    def begun(self, kernel: Kernel) -> None:
        start = kernel.start
        if kernel.predecessor is not None:
            type(self).heirs += 1
            live = self.world.plane.live
            heir = live.kernels.get(start.kernel)
            above = [
                session.id
                for session in live.sessions.values()
                if session.status is SessionStatus.PENDING
                and heir is not None
                and session.priority > heir.session.priority
            ]
            assert not above, f"{start.kernel} got room that {above} wait for"
        super().begun(kernel)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=set(Phase) - {Phase.shrink, Phase.explain},
)
@given(JOBS)
def test_no_kernel_inherits_room_while_one_of_higher_priority_lacks_it(
    jobs: Sequence[tuple[float, int, int, str]],
) -> None:
    with tempfile.TemporaryDirectory() as path:
        group = ScalingGroup(name="default", backlog_window=1.0)
        world = World(Path(path), {}, group=group, behaviour=lambda start: Run(SHORT_S))
        for name in ("a", "b"):
            agent = world.add_agent(name, cpus(2))
            agent.__class__ = Watched
            agent.world = world  # type: ignore[attr-defined]
        for gap_s, priority, tasks, memory in jobs:
            world.run(gap_s, 0.05)
            spec = {"command": ["x"], "tasks": tasks, "priority": priority}
            world.submit(JobSpec.model_validate(spec | {"resources": {"memory": memory}}))
        world.run_until(lambda: not world.plane.live.jobs)
        world.close()
