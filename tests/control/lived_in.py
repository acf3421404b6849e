"""A database such as a cluster leaves: work waits, runs, has ended and has failed."""

from pathlib import Path

from proving.hollow.supervisor import Run
from tests.control.pool_scenarios import pool
from tests.control.world import World

from muster.control.group.requests import GroupRequests
from muster.core.resources import Resources
from muster.core.specs import JobSpec, ScalingGroup, SessionSpec

GIB = 1 << 30


def make_lived_in(path: Path) -> Path:
    """The file of such a database, in this directory."""
    has = Resources(cpu_milli=8000, memory_bytes=32 * GIB)
    world = World(path, {"a": has, "b": has}, gpus={"a": 2}, behaviour=behaviour)
    for spec in (
        {"name": "done", "tasks": 3},
        {"name": "failing", "max_retries_failure": 1, "notify": ["https://example.org/hook"]},
        {"name": "running", "resources": {"cpu": 2, "gpu": 0.5}, "recovery": True},
        {"name": "gang", "tasks": 2, "coscheduled": True},
    ):
        world.submit(JobSpec.model_validate({"command": ["x"], **spec}))
    kernel = {"command": ["x"], "env": {"LONG": "1"}, "replicas": 2}
    world.submit_session(SessionSpec.model_validate({"name": "alone", "kernels": [kernel]}))
    world.ask(lambda work, parts: parts[GroupRequests].put_group(work, ScalingGroup(name="made")))
    world.apply(pool(group="made", min_slices=1, idle_timeout=100_000))
    world.apply(pool("other", group="made", idle_timeout=100_000))
    world.run(400.0, step_s=2.0)
    waiting = {"name": "waiting", "command": ["x"], "resources": {"cpu": 8}}
    world.submit(JobSpec.model_validate(waiting))
    world.close()
    return path / "muster.db"


def behaviour(start: object) -> Run:
    env = {**start.template.env, **start.env}  # type: ignore[attr-defined]
    name = env.get("MUSTER_JOB_NAME")
    if name == "failing":
        return Run(exit_code=3)
    return Run(seconds=1e6 if name in ("running", "gang") or "LONG" in env else 1.0)
