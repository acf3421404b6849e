"""Stragglers of gangs: what agents tell of their GPUs, up to what people see."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from proving.hollow.supervisor import Run
from tests.control.health.ward import Ward
from tests.control.world import ROOT

from muster.api.live_views import agent_view
from muster.control.agent.gpu_counters import KEPT_S, GpuCounterBook
from muster.control.health.stragglers import (
    MOST_TOLD,
    PHASE,
    SETTLE_S,
    StragglerWatch,
    with_stragglers,
)
from muster.control.job.explanation import explain_job
from muster.core.health.counters import GpuMeans
from muster.core.health.stragglers import IN_A_ROW
from muster.core.ids import AgentId
from muster.core.reasons import ReasonCode
from muster.core.specs import JobSpec
from muster.store.queries.history import read_history
from muster.store.records import Job

USUAL = GpuMeans(0, 95.0, 1700.0, 600.0)
SLOW = GpuMeans(0, 99.0, 1005.0, 590.0)
EVER_S = 1e9
MINUTE_S = 60.0
NAMES = tuple("abcdefgh")


class Gangs(Ward):
    """Machines of two GPUs each, whose agents tell of them once a minute."""

    def __init__(self, path: Path, machines: int = 4) -> None:
        super().__init__(path, NAMES[:machines], work=Run(EVER_S))

    def gang(self, name: str = "train", tasks: int = 4, gpus: float = 2) -> Job:
        job = self.world.submit(
            JobSpec.model_validate(
                {
                    "name": name,
                    "command": ["x"],
                    "tasks": tasks,
                    "coscheduled": True,
                    "resources": {"cpu": 1, "gpu": gpus},
                }
            )
        )
        self.world.run(5.0)
        return job

    def minutes(self, number: int, told: Mapping[str, GpuMeans] | None = None) -> None:
        """Let time pass; all GPUs are alike but for both of the machines in ``told``."""
        for _ in range(number):
            for agent in self.world.agents.values():
                means = (told or {}).get(agent.name, USUAL)
                agent.gpus = replace(means, device=0), replace(means, device=1)
            self.world.run(MINUTE_S, MINUTE_S / 4)

    def settled(self) -> None:
        self.minutes(int(SETTLE_S / MINUTE_S) + 1)

    @property
    def watch(self) -> StragglerWatch:
        return self.world.plane.parts[StragglerWatch]

    def on(self, name: str) -> tuple[str, ...]:
        return self.watch.on(self.world.agent(name).id)

    def told(self, job: Job) -> list[str]:
        """The sentences on stragglers in the job's history."""
        with self.world.store.engine.connect() as connection:
            rows = read_history(connection, self.world.plane.live.entities, ROOT, job.id, 100).items
        return [why.sentence for row in rows if row.phase == PHASE for why in row.reasons]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[int], Gangs]]:
    made: list[Gangs] = []

    def gangs(machines: int) -> Gangs:
        made.append(Gangs(tmp_path / f"world-{len(made)}", machines))
        return made[-1]

    yield gangs
    for each in made:
        each.close()


@pytest.fixture
def gangs(make: Callable[[int], Gangs]) -> Gangs:
    return make(4)


def test_straggler_is_shown_and_told_once_and_nothing_else_happens(gangs: Gangs) -> None:
    job = gangs.gang()
    gangs.settled()
    gangs.minutes(IN_A_ROW - 1, {"c": SLOW})
    assert (gangs.watch.of_job(job.id), gangs.on("c"), gangs.told(job)) == ([], (), [])
    gangs.minutes(2, {"c": SLOW})
    [why] = gangs.watch.of_job(job.id)
    assert why.code is ReasonCode.STRAGGLER
    assert "GPU 0 of agent c is unlike the others, its processors are clocked" in why.sentence()
    assert gangs.on("c") == (
        "GPU 0: its processors are clocked at 1,005 MHz, the others' at 1,700 MHz",
    )
    assert job.name is not None
    assert job.name not in gangs.on("c")[0]
    assert gangs.on("a") == ()
    assert gangs.told(job) == [why.sentence()]
    session = gangs.world.only_session()
    assert gangs.watch.of_session(session.id) == [why]
    live, parts = gangs.world.plane.live, gangs.world.plane.parts
    view = agent_view(live.agents[gangs.world.agent("c").id], live, parts)
    assert view.stragglers == gangs.on("c")
    gangs.minutes(10, {"c": SLOW})
    gangs.minutes(2)
    assert (gangs.watch.of_job(job.id), gangs.on("c")) == ([], ())
    gangs.minutes(IN_A_ROW + 1, {"c": SLOW})
    assert len(gangs.watch.of_job(job.id)) == 1
    assert len(gangs.told(job)) == 1
    assert all(gangs.is_well(each) for each in "abcd")


def test_answer_about_the_job_names_the_member_beside_all_else(gangs: Gangs) -> None:
    job = gangs.gang()
    plane, now = gangs.world.plane, gangs.world.clock.now()
    of_job = explain_job(plane.live, gangs.world.cluster, job.id, now)
    assert with_stragglers(of_job, gangs.watch.of_job(job.id)) is of_job
    gangs.minutes(IN_A_ROW + 4, {"c": SLOW})
    told = with_stragglers(of_job, gangs.watch.of_job(job.id))
    *others, last = told.reasons
    assert (tuple(others), told.verdict) == (of_job.reasons, of_job.verdict)
    assert "may hold up its gang: GPU 0 of agent c" in last.sentence
    assert "`muster agents check c`" in last.remedy


def test_gang_that_has_just_begun_is_not_judged(gangs: Gangs) -> None:
    job = gangs.gang()
    gangs.minutes(IN_A_ROW, {"c": SLOW})
    assert gangs.watch.of_job(job.id) == []
    gangs.minutes(3, {"c": SLOW})
    assert len(gangs.watch.of_job(job.id)) == 1


def test_end_of_the_gang_ends_what_is_shown(gangs: Gangs) -> None:
    job = gangs.gang()
    gangs.minutes(IN_A_ROW + 4, {"c": SLOW})
    assert gangs.on("c")
    session = gangs.world.only_session()
    for agent in gangs.world.agents.values():
        for key in agent.running:
            agent.supervisor.end_process(key)
    gangs.minutes(2, {"c": SLOW})
    assert (gangs.on("c"), gangs.watch.of_session(session.id)) == ((), [])
    assert gangs.watch.of_job(job.id) == []


def test_parts_of_gpus_small_gangs_and_gpus_that_nobody_holds_are_not_judged(
    gangs: Gangs,
) -> None:
    halves, pair = gangs.gang("halves", 4, 0.5), gangs.gang("pair", 2, 1)
    gangs.minutes(IN_A_ROW + 4, {"c": SLOW, "a": SLOW})
    for job in (halves, pair):
        assert (gangs.watch.of_job(job.id), gangs.told(job)) == ([], [])


def test_controller_that_starts_anew_loses_the_intervals_alone(gangs: Gangs) -> None:
    job = gangs.gang()
    gangs.settled()
    gangs.minutes(IN_A_ROW - 1, {"c": SLOW})
    gangs.world.restart_controller()
    gangs.minutes(2, {"c": SLOW})
    assert gangs.watch.of_job(job.id) == []
    gangs.minutes(IN_A_ROW, {"c": SLOW})
    assert len(gangs.watch.of_job(job.id)) == 1


def test_agent_that_says_much_or_of_foreign_gpus_changes_nothing(gangs: Gangs) -> None:
    job = gangs.gang()
    gangs.settled()
    liar = gangs.world.agent("c")
    for _ in range(3 * IN_A_ROW):  # within less than one interval
        liar.gpus = (SLOW, *(replace(SLOW, device=gpu) for gpu in range(2, 60)))
        gangs.world.run(1.0)
    assert gangs.watch.of_job(job.id) == []
    for _ in range(2 * IN_A_ROW):
        liar.gpus = tuple(replace(SLOW, device=gpu) for gpu in range(2, 60))
        gangs.world.run(MINUTE_S, MINUTE_S)
    assert gangs.watch.of_job(job.id) == []


def test_number_of_members_told_is_bounded(make: Callable[[int], Gangs]) -> None:
    gangs = make(8)
    job = gangs.gang(tasks=8)
    gangs.settled()
    for slow in ("abc", "de", "fgh"):
        gangs.minutes(IN_A_ROW + 1, dict.fromkeys(slow, SLOW))
        assert len(gangs.watch.of_job(job.id)) == len(slow)
    assert len(gangs.told(job)) == MOST_TOLD


def test_book_keeps_the_newest_and_forgets_the_old() -> None:
    book, one = GpuCounterBook(), AgentId("agt-1")
    book.put(one, (USUAL,), 10.0)
    book.put(one, (SLOW,), 20.0)
    assert book.newest(20.0) == {one: (20.0, (SLOW,))}
    assert book.newest(20.0 + KEPT_S) == {}
    assert book.newest(20.0) == {}
