"""Tasks with parameters: what each is told of its values, and how many of them run at a time."""

from collections.abc import Mapping

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import select
from tests.control.conftest import MakeWorld
from tests.control.driven_agent import task_index
from tests.databases import ON_BOTH

from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.states import JOB_TABLE, JobState
from muster.store import schema
from muster.wire.messages import Start

pytestmark = ON_BOTH

AGENTS = {"a": Resources(cpu_milli=4000, memory_bytes=2**30)}


class Told:
    """The commands and variables with which tasks were started, by their indexes."""

    def __init__(self, exit_code: int = 0) -> None:
        self.commands: dict[int, list[str]] = {}
        self.variables: dict[int, Mapping[str, str]] = {}
        self._exit_code = exit_code

    def __call__(self, start: Start) -> Run:
        index = task_index(start)
        self.commands[index] = list(start.template.command)
        self.variables[index] = {**start.template.env, **start.env}
        return Run(1.0, exit_code=self._exit_code)


def test_each_task_is_told_its_values(worlds: MakeWorld) -> None:
    told = Told()
    world = worlds(AGENTS, behaviour=told)
    matrix = {"lr": ["0.1", "0.01"], "seed": "1-3", "exclude": [{"lr": "0.1", "seed": "2"}]}
    spec = {"command": ["train", "--lr={lr}"], "env": {"RUN": "{lr}-{seed}"}, "matrix": matrix}
    job = world.submit(JobSpec.model_validate(spec))
    world.run_until(lambda: job.status in JOB_TABLE.terminal)
    assert job.status is JobState.SUCCEEDED
    assert sorted(told.commands) == [0, 2, 3, 4, 5]
    for index, command in told.commands.items():
        lr, seed = ("0.1", "0.01")[index // 3], str(index % 3 + 1)
        assert command == ["train", f"--lr={lr}"]
        expected = {"RUN": f"{lr}-{seed}", "MUSTER_PARAM_LR": lr, "MUSTER_PARAM_SEED": seed}
        assert expected.items() <= told.variables[index].items()


def test_tasks_whose_command_is_the_same_share_it(worlds: MakeWorld) -> None:
    templates = set()

    def behaviour(start: Start) -> Run:
        templates.add(id(start.template))
        return Run(1.0)

    world = worlds({"a": Resources(cpu_milli=40_000, memory_bytes=2**30)}, behaviour=behaviour)
    spec = {"command": ["train", "{other}"], "matrix": {"seed": "1-20"}}
    job = world.submit(JobSpec.model_validate(spec))
    world.run_until(lambda: job.status in JOB_TABLE.terminal)
    assert len(templates) < 20


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_tasks_hold_room_than_may(worlds: MakeWorld, most: int) -> None:
    highest = 0
    world = worlds(AGENTS, behaviour=Told(exit_code=1))
    spec = {"command": ["x"], "tasks": 12, "max_running": most, "max_retries_failure": 1,
            "retry_backoff": 0, "keep_going": True}  # fmt: skip
    job = world.submit(JobSpec.model_validate(spec))

    def over() -> bool:
        nonlocal highest
        highest = max(highest, len(world.store.live.ledger))
        return job.status in JOB_TABLE.terminal

    world.run_until(over)
    assert job.status is JobState.FAILED
    assert highest == most


def test_what_a_task_with_parameters_left_is_kept_with_its_attempt(worlds: MakeWorld) -> None:
    world = worlds(AGENTS, behaviour=lambda start: Run(1.0, result='{"loss": 1}'))
    kept = world.submit(JobSpec.model_validate({"command": ["x"], "matrix": {"a": "1-2"}}))
    plain = world.submit(JobSpec(command=["x"]))
    world.run_until(lambda: {kept.status, plain.status} <= JOB_TABLE.terminal)
    with world.store.engine.connect() as connection:
        kernels = schema.kernels.c
        rows = connection.execute(select(kernels.job_id, kernels.result)).all()
    assert [row.result for row in rows if row.job_id == kept.id] == ['{"loss": 1}'] * 2
    assert [row.result for row in rows if row.job_id == plain.id] == [None]
