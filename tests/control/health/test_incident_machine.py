"""Machines, whatever befalls them: no more than their share is out of work, none is checked while
work holds its devices, and every incident ends, or waits for an operator."""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from proving.hollow.supervisor import Run
from tests.control.health.ward import FAILS, FAULTY, HANGS, UNKNOWN, WELL, WORN_OUT, Ward

from muster.control.health.ladder import most_out
from muster.core.health.remedy import Remedy
from muster.core.health.service import ServiceName
from muster.core.ids import JobId
from muster.core.specs import JobSpec
from muster.core.states.health import HealthStatus

NAMES = [*"abcdef"]
SHARE = 0.4
ROUNDS = 2
SERVICES = st.sampled_from(list(ServiceName))
RUNS = st.sampled_from([WELL, FAULTY, WORN_OUT, UNKNOWN, FAILS, HANGS, Run(1e9)])
MACHINES = st.sampled_from(NAMES)
WORK = JobSpec.model_validate(
    {"command": ["x"], "resources": {"cpu": 1, "gpu": 1}, "max_retries_preemption": 1000}
)


class Machines(RuleBasedStateMachine):
    """Machines that fall ill, reboot, fall silent and return, under a controller that restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.has_begun = False

    @initialize(outside=st.booleans())
    def begin(self, outside: bool) -> None:
        self.ward = Ward(
            Path(self.folder.name) / "ward",
            NAMES,
            outside=outside,
            work=Run(200.0),
            max_unhealthy=SHARE,
            rounds=ROUNDS,
            leave=60,
            check_timeout=60,
            reboot_timeout=300,
        )
        self.away: set[str] = set()
        self.has_begun = True

    @rule(name=MACHINES, remedy=st.sampled_from(list(Remedy)), confirmed=st.booleans())
    def suspect(self, name: str, remedy: Remedy, confirmed: bool) -> None:
        self.ward.suspect(name, remedy=remedy, confirmed=confirmed)

    @rule(name=MACHINES, device=st.integers(0, 1))
    def job_suspects(self, name: str, device: int) -> None:
        self.ward.suspect(name, devices=[device], job=JobId("job-1"))

    @rule(name=MACHINES, service=SERVICES, run=RUNS)
    def plan(self, name: str, service: ServiceName, run: Run) -> None:
        self.ward.plan(name, service, run)

    @rule()
    def submit(self) -> None:
        self.ward.world.submit(WORK)

    @rule(name=MACHINES)
    def brick(self, name: str) -> None:
        self.ward.bricks ^= {name}

    @rule(name=MACHINES)
    def sleep(self, name: str) -> None:
        self.ward.sleepers ^= {name}

    @rule(name=MACHINES)
    def crash(self, name: str) -> None:
        """The machine boots anew though nobody asked it to."""
        self.ward.world.agent(name).asked_to_reboot = True

    @rule(name=MACHINES)
    def fall_silent_or_return(self, name: str) -> None:
        agent = self.ward.world.agent(name)
        if agent.online:
            self.ward.world.disconnect(agent)
            self.away.add(name)
        elif name in self.away:
            self.away.discard(name)
            self.ward.world.connect(agent)

    @rule(name=MACHINES)
    def an_operator_returns(self, name: str) -> None:
        self.ward.decide("return", name)

    @rule(away_s=st.sampled_from([0.01, 100.0]))
    def restart(self, away_s: float) -> None:
        self.ward.world.restart_controller(away_s)

    @rule(seconds=st.sampled_from([1.0, 15.0, 120.0, 900.0]))
    def run_on(self, seconds: float) -> None:
        self.ward.run(seconds, min(seconds, 5.0))

    @invariant()
    def no_more_than_a_share_is_out(self) -> None:
        turns = [each for each in self.ward.incidents if each.has_turn]
        assert len(turns) <= most_out(len(NAMES), SHARE)

    @invariant()
    def who_is_out_takes_no_work(self) -> None:
        for agent in self.ward.world.plane.live.agents.values():
            incident = self.ward.incidents.of(agent.id)
            assert bool(agent.ill) == (incident is not None and incident.is_out)

    @invariant()
    def rounds_are_bounded(self) -> None:
        assert all(each.progress.rounds <= ROUNDS for each in self.ward.incidents)

    @invariant()
    def no_service_runs_beside_work_on_its_devices(self) -> None:
        for agent in self.ward.world.agents.values():
            running = [kernel.start for kernel in agent.running.values()]
            for start in running:
                if start.template.service is None:
                    continue
                its = {share.index for share in start.shares}
                for other in running:
                    shared = its & {share.index for share in other.shares}
                    assert other is start or not shared

    def teardown(self) -> None:
        try:
            if self.has_begun:
                self._end()
                self.ward.close()
        finally:
            self.folder.cleanup()

    def _end(self) -> None:
        """Everything works again: each incident ends, is isolated, or waits for a turn that
        isolated machines have."""
        w = self.ward
        w.script.clear()
        w.bricks.clear()
        w.sleepers.clear()
        for agent in w.world.agents.values():
            if agent.name in self.away and not agent.online:
                w.world.connect(agent)
            if any(kernel.run.stubborn for kernel in agent.running.values()):
                agent.asked_to_reboot = True
        w.run(12_000, 10.0)
        isolated = sum(each.status is HealthStatus.ISOLATED for each in w.incidents)
        for incident in w.incidents:
            waits = incident.status is HealthStatus.SUSPECT and not incident.has_turn
            assert incident.status is HealthStatus.ISOLATED or (
                waits and isolated == most_out(len(NAMES), SHARE)
            )
        assert not any(each.service for each in w.world.plane.live.sessions.values())


TestMachines = Machines.TestCase
TestMachines.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
