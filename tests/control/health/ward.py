"""A world of machines that fall ill: what their services tell, and how they boot anew."""

import math
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from proving.hollow.supervisor import Run
from tests.control.conftest import cpus
from tests.control.driven_agent import DrivenAgent
from tests.control.world import World

from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.health.entity import INCIDENTS, Incident, incidents
from muster.control.health.incidents import Incidents
from muster.control.health.lifecycle import IncidentLifecycle
from muster.core.health.remedy import Remedy
from muster.core.health.service import Service, ServiceName, dump
from muster.core.health.verdict import CheckResult, Finding, Severity, unknown, verdict_of
from muster.core.ids import JobId
from muster.core.reasons import Reason
from muster.core.reasons.of_health import HealthAsked
from muster.core.specs import ScalingGroup
from muster.core.states.health import HealthStatus
from muster.wire.messages import Start

WELL = Run(10.0)
"""A service that does what it should."""
FAULTY = Run(
    10.0,
    result=dump(verdict_of("nvml", [Finding("nvml", Severity.FAULT, "it is broken", device=0)])),
)
WORN_OUT = Run(
    10.0,
    result=dump(
        verdict_of(
            "nvml", [Finding("nvml", Severity.FAULT, "no row is left", remedy=Remedy.OPERATOR)]
        )
    ),
)
UNKNOWN = Run(10.0, result=dump(unknown("nvml", "the library is missing")))
FAILS = Run(5.0, exit_code=1, result=dump(unknown("reset", "nvidia-smi says no")))
HANGS = Run(1e9, stubborn=True, outlives_kill_s=math.inf)
WHY = HealthAsked(by="eve")
BY_ADA = HealthAsked(by="ada")
COMMAND = "reboot_command: [reboot-it]\n"
"""The settings of a controller that can reboot machines from outside."""


class Ward:
    """Machines of which each has two GPUs.

    Attributes:
        script: what the next services of a name do on a machine, by both; afterwards they do what
            they should.
        bricks: machines that do not come back from a reboot.
        sleepers: machines that come back from a reboot in the same boot.
        services: those that machines were given, by the machine's name.

    Args:
        outside: whether machines can be rebooted from outside.
        health: the settings of the group.
    """

    def __init__(
        self,
        path: Path,
        machines: Sequence[str] = ("a",),
        *,
        outside: bool = False,
        work: Run | None = None,
        boot_s: float = 60.0,
        group: dict[str, Any] | None = None,
        **health: Any,
    ) -> None:
        path.mkdir(exist_ok=True)
        if outside:
            (path / "health.yaml").write_text(COMMAND)
        keys = {"name": "default", "kernel_lease": 60.0, **(group or {}), "health": health}
        self.world = World(path, {}, group=ScalingGroup.model_validate(keys))
        self.script: dict[tuple[str, ServiceName], list[Run]] = {}
        self.services: dict[str, list[Service]] = {}
        self.bricks: set[str] = set()
        self.sleepers: set[str] = set()
        self._work = work or Run(5.0)
        self._boot_s = boot_s
        self._back: dict[str, float] = {}
        for name in machines:
            self.join(name)

    def join(self, name: str, gpus: int = 2) -> DrivenAgent:
        """Have another machine join."""
        agent = self.world.add_agent(name, cpus(8), gpus)
        self.adopt(agent)
        return agent

    def adopt(self, agent: DrivenAgent) -> None:
        """Have a machine's services follow the script."""
        self.services[agent.name] = []
        agent.behaviour = lambda start: self._behave(agent.name, start)

    def close(self) -> None:
        self.world.close()

    def _behave(self, name: str, start: Start) -> Run:
        service = start.template.service
        if service is None:
            return self._work
        self.services[name].append(service)
        runs = self.script.get((name, service.name))
        return runs.pop(0) if runs else WELL

    def plan(self, name: str, service: ServiceName, *runs: Run) -> None:
        """Have the next services of a machine do this."""
        self.script.setdefault((name, service), []).extend(runs)

    # -- what happens ----------------------------------------------------------------------------

    def ask(self, action: Callable[[Work, IncidentLifecycle], Any]) -> Any:
        return self.world.ask(lambda work, parts: action(work, parts[IncidentLifecycle]))

    def suspect(
        self,
        name: str = "a",
        why: Reason = WHY,
        *,
        devices: Collection[int] = (),
        remedy: Remedy = Remedy.CHECK,
        confirmed: bool = False,
        job: JobId | None = None,
    ) -> Incident | None:
        """Put a machine under suspicion."""

        def suspect(work: Work, parts: Parts) -> Incident | None:
            agent = work.live.agents[self.world.agent(name).id]
            return parts[IncidentLifecycle].suspect(
                work,
                agent,
                "Test",
                why,
                devices=devices,
                remedy=remedy,
                confirmed=confirmed,
                job=job,
            )

        incident: Incident | None = self.world.ask(suspect)
        return incident

    def decide(self, verb: str, name: str = "a", why: Reason = BY_ADA) -> Incident | None:
        """An operator has a machine isolated, returned, checked or healed."""

        def decide(work: Work, parts: Parts) -> Incident | None:
            agent, lifecycle = work.live.agents[self.world.agent(name).id], parts[IncidentLifecycle]
            verbs = {
                "isolate": lifecycle.isolate,
                "return": lifecycle.return_,
                "check": lifecycle.check,
                "heal": lifecycle.heal,
            }
            return verbs[verb](work, agent, "Request", why)

        incident: Incident | None = self.world.ask(decide)
        return incident

    def run(self, seconds: float, step_s: float = 1.0) -> None:
        """Let time pass; machines that are to reboot do."""
        end = self.world.clock.now() + seconds
        while self.world.clock.now() < end:
            self._boot()
            self.world.run(min(step_s, end - self.world.clock.now()), step_s)
        self._boot()

    def _boot(self) -> None:
        now = self.world.clock.now()
        for agent in list(self.world.agents.values()):
            if agent.asked_to_reboot:
                agent.asked_to_reboot = False
                self.world.disconnect(agent)
                if agent.name not in self.sleepers:
                    agent.reboot()
                self._back[agent.name] = now + self._boot_s
            back_at = self._back.get(agent.name)
            if back_at is not None and now >= back_at and agent.name not in self.bricks:
                del self._back[agent.name]
                self.world.connect(agent)

    def until(self, status: HealthStatus, name: str = "a", limit_s: float = 20_000.0) -> Incident:
        """Let time pass until a machine's incident has this status."""
        end = self.world.clock.now() + limit_s
        while True:
            incident = self.last(name)
            if incident is not None and incident.status is status:
                return incident
            assert self.world.clock.now() < end, f"{name} is {incident and incident.status}"
            self.run(1.0)

    # -- looks ---------------------------------------------------------------------------------

    @property
    def incidents(self) -> Incidents:
        return self.world.plane.parts[Incidents]

    def of(self, name: str = "a") -> Incident:
        """The incident of a machine that is not healthy."""
        incident = self.incidents.of(self.world.agent(name).id)
        assert incident is not None, f"{name} is healthy"
        return incident

    def last(self, name: str = "a") -> Incident | None:
        """The newest incident of a machine, as it is stored."""
        c = incidents.c
        newest = incidents.select().where(c.agent == name).order_by(c.id.desc()).limit(1)
        with self.world.store.engine.connect() as connection:
            row = connection.execute(newest).first()
        return None if row is None else INCIDENTS.load(row)

    def is_well(self, name: str = "a") -> bool:
        """Whether the machine takes work, as far as its health goes."""
        agent = self.world.plane.live.agents[self.world.agent(name).id]
        return not agent.ill and self.incidents.of(agent.id) is None

    def ill(self, name: str = "a") -> str:
        return self.world.plane.live.agents[self.world.agent(name).id].ill

    def done(self, name: str = "a") -> list[ServiceName]:
        """The services that a machine was given."""
        return [each.name for each in self.services[name]]

    def results(self, name: str = "a") -> list[CheckResult]:
        """The results of the checks of its newest incident."""
        incident = self.last(name)
        return [] if incident is None else [each.result for each in incident.checks]
