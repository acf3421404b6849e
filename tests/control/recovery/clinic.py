"""A cluster of machines with one GPU each, whose checks find what a test says, and whose reboots
take a while."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld, under
from tests.control.world import ADA, World

from muster.control.health.entity import Incident
from muster.control.recovery.entity import Recovery
from muster.core.health.service import Service, ServiceName, dump
from muster.core.health.verdict import Finding, Severity, verdict_of
from muster.core.owner import Principal
from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, JobState
from muster.core.states.recovery import RecoveryStatus
from muster.store.records import Job
from muster.wire.messages import Start

NODE = Resources(cpu_milli=8000, memory_bytes=64 * 2**30, gpu_milli=1000)
CHECK_S = 10.0
REBOOT_S = 20.0

Course = Callable[[int, int], Run]
"""The course of a task's attempt, by the task's index and the attempt's number."""


def found(severity: Severity | None) -> str:
    """The result of a check that found nothing, or one thing of this severity."""
    findings = [] if severity is None else [Finding("planted", severity, "a planted fault", 0)]
    return dump(verdict_of("planted", findings))


HEALTHY, FAULTY, UNKNOWN = found(None), found(Severity.FAULT), found(Severity.UNKNOWN)


@dataclass
class Clinic:
    """The course of checks and reboots in a world.

    Args:
        course: of the tasks' attempts.
        checks: the next results of checks, by the agent's name; HEALTHY once they are used up.
        never_return: machines that do not come back from a reboot.
    """

    course: Course = lambda index, attempt: Run(50.0)
    checks: dict[str, list[str]] = field(default_factory=dict)
    never_return: set[str] = field(default_factory=set)
    check_s: float = CHECK_S
    world: World = field(init=False)
    served: list[tuple[str, ServiceName]] = field(default_factory=list)
    ran_on: dict[tuple[int, int], str] = field(default_factory=dict)
    down: dict[str, float] = field(default_factory=dict)

    def behaviour(self, start: Start) -> Run:
        name = self._agent_of(start)
        service = start.template.service
        if service is not None:
            return self._serve(name, service)
        index, attempt = int(start.env["MUSTER_TASK_INDEX"]), int(start.env["MUSTER_ATTEMPT"])
        self.ran_on[index, attempt] = name
        return self.course(index, attempt)

    def _agent_of(self, start: Start) -> str:
        kernel = self.world.plane.live.kernels[start.kernel]
        assert kernel.agent_id is not None
        return self.world.plane.live.agents[kernel.agent_id].name

    def _serve(self, name: str, service: Service) -> Run:
        self.served.append((name, service.name))
        if service.name is not ServiceName.CHECK:
            return Run(1.0)
        left = self.checks.get(name, [])
        return Run(self.check_s, result=left.pop(0) if left else HEALTHY)

    # -- time ------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Let time pass; machines that were asked to reboot go down, and come back."""
        end = self.world.clock.now() + seconds
        while self.world.clock.now() < end:
            self.world.run(0.5)
            self._reboot()

    def run_until(self, condition: Callable[[], bool], limit_s: float = 10_000.0) -> None:
        end = self.world.clock.now() + limit_s
        while not condition():
            assert self.world.clock.now() < end, "it did not happen in time"
            self.run(0.5)

    def _reboot(self) -> None:
        now = self.world.clock.now()
        for agent in self.world.agents.values():
            if agent.asked_to_reboot:
                agent.asked_to_reboot = False
                self.world.disconnect(agent)
                self.down[agent.name] = now + REBOOT_S
            elif self.down.get(agent.name, now + 1) <= now and agent.name not in self.never_return:
                del self.down[agent.name]
                agent.reboot()
                self.world.connect(agent)

    # -- looking ---------------------------------------------------------------------------------

    def recovery(self, job: Job) -> Recovery:
        """The live recovery of a job; after a restart of the controller another object."""
        live = self.world.plane.live.of(Recovery).values()
        return next(each for each in live if each.job.id == job.id)

    def incidents(self) -> list[Incident]:
        return [*self.world.plane.live.of(Incident).values()]

    def until(self, recovery: Recovery, *statuses: RecoveryStatus) -> None:
        """Run until the recovery has one of the statuses."""
        self.run_until(lambda: recovery.status in statuses)

    def ended(self, job: Job) -> JobState:
        """Run until the job has ended; how it did."""
        self.run_until(lambda: job.status in JOB_TABLE.terminal)
        return job.status

    def job(self, principal: Principal = ADA, **keys: Any) -> Job:
        """A job that is handed in, of tasks that take a GPU each; one task and ``recovery: true``
        unless given."""
        spec: dict[str, Any] = {
            "command": ["train"],
            "resources": {"gpu": 1},
            "recovery": True,
            **keys,
        }
        return self.world.submit(JobSpec.model_validate(spec), principal)

    def gang(self, tasks: int = 2, **keys: Any) -> Job:
        return self.job(tasks=tasks, coscheduled=True, **keys)


def clinic(
    worlds: MakeWorld,
    names: Iterable[str] = ("a", "b", "c"),
    course: Course = lambda index, attempt: Run(50.0),
    checks: Mapping[str, list[str]] | None = None,
    health: Mapping[str, Any] | None = None,
    **more: Any,
) -> Clinic:
    """A clinic with machines of these names, and with more in its group's policy."""
    made = Clinic(course, dict(checks or {}))
    policy = {"health": {"max_unhealthy": 1.0, "passive": False, **(health or {})}, **more}
    made.world = worlds(
        dict.fromkeys(names, NODE),
        gpus=dict.fromkeys(names, 1),
        group=under(**policy),
        behaviour=made.behaviour,
    )
    return made


def fails(*which: tuple[int, int], code: int = 1, after_s: float = 5.0) -> Course:
    """A course in which these attempts, as (index, attempt), fail."""

    def course(index: int, attempt: int) -> Run:
        return Run(after_s, exit_code=code) if (index, attempt) in which else Run(50.0)

    return course


def always_fails(index: int, attempt: int) -> Run:
    return Run(5.0, exit_code=1)
