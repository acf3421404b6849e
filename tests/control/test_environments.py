"""The environment that kernels are started with."""

from typing import Any

import pytest
from proving.hollow.supervisor import Run
from tests.control.conftest import MakeWorld
from tests.control.served_cluster import Cluster
from tests.control.world import World

from muster.core.resources import Resources
from muster.core.specs import JobSpec
from muster.core.specs.variables import OF_GANGS
from muster.core.states import JOB_TABLE
from muster.wire.messages import Start

LIBRARIES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "POLARS_MAX_THREADS",
)
BIG = Resources(cpu_milli=16_000, memory_bytes=64 * 2**30)


class Started:
    """The whole environment of each kernel that starts."""

    def __init__(self) -> None:
        self.environments: list[dict[str, str]] = []

    def __call__(self, start: Start) -> Run:
        self.environments.append({**start.template.env, **start.env})
        return Run(0.2)


def environments(worlds: MakeWorld, **keys: Any) -> list[dict[str, str]]:
    """The environments of a job's kernels on the two agents ``node-1`` and ``node-2``."""
    started = Started()
    agents = {"node-1": BIG, "node-2": BIG}
    world: World = worlds(agents, gpus=dict.fromkeys(agents, 4), behaviour=started)
    job = world.submit(JobSpec.model_validate({"command": "x", **keys}))
    world.run_until(lambda: job.status in JOB_TABLE.terminal)
    return started.environments


def environment(worlds: MakeWorld, **keys: Any) -> dict[str, str]:
    (found,) = environments(worlds, **keys)
    return found


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        ({}, {"MUSTER_CPUS": "1", "MUSTER_GPUS": "0"}),
        (
            {"cpu": 4, "gpu": 2, "memory": "3GiB"},
            {"MUSTER_CPUS": "4", "MUSTER_GPUS": "2", "MUSTER_MEMORY_BYTES": str(3 * 2**30)},
        ),
        ({"cpu": "500m", "gpu": 0.5}, {"MUSTER_CPUS": "0.5", "MUSTER_GPUS": "1"}),
    ],
)
def test_kernel_is_told_what_it_asked_for(
    worlds: MakeWorld, resources: dict[str, Any], told: dict[str, str]
) -> None:
    found = environment(worlds, resources=resources)
    names = ("MUSTER_CPUS", "MUSTER_GPUS", "MUSTER_MEMORY_BYTES")
    assert {name: found[name] for name in names if name in found} == told


def test_kernel_is_told_the_name_of_its_agent(worlds: MakeWorld) -> None:
    keys = {"tasks": 2, "resources": {"cpu": 16}}
    found = environments(worlds, **keys)
    assert {each["MUSTER_AGENT"] for each in found} == {"node-1", "node-2"}


@pytest.mark.parametrize(("cpu", "threads"), [(8, "8"), (2.5, "2"), (0.5, "1"), (0, "1")])
def test_libraries_begin_as_many_threads_as_processors_are_asked_for(
    worlds: MakeWorld, cpu: float, threads: str
) -> None:
    found = environment(worlds, resources={"cpu": cpu})
    assert {name: found.get(name) for name in LIBRARIES} == dict.fromkeys(LIBRARIES, threads)


def test_libraries_begin_what_they_like_where_no_processors_are_asked_for(
    worlds: MakeWorld,
) -> None:
    assert not environment(worlds).keys() & {*LIBRARIES}


def test_number_of_threads_of_the_spec_stands_for_what_follows_it_too(worlds: MakeWorld) -> None:
    own = {"OMP_NUM_THREADS": "3", "RAYON_NUM_THREADS": "5"}
    found = environment(worlds, resources={"cpu": 8}, env=own)
    assert {name: found[name] for name in LIBRARIES if name in found} == {
        **own,
        "NUMBA_NUM_THREADS": "8",
        "POLARS_MAX_THREADS": "8",
    }
    found = environment(worlds, resources={"cpu": 8}, env={"MKL_NUM_THREADS": "2"})
    assert (found["MKL_NUM_THREADS"], found["OMP_NUM_THREADS"]) == ("2", "8")


def test_variables_of_a_gang_are_musters_and_all_of_them_are_known_as_such(
    worlds: MakeWorld,
) -> None:
    wrong = dict.fromkeys(OF_GANGS, "mine")
    found = environments(worlds, tasks=2, coscheduled=True, env=wrong, resources={"cpu": 1})
    assert not any("mine" in each.values() for each in found)
    lone = environment(worlds, resources={"cpu": 1})
    of_gang = found[0].keys() - lone.keys()
    assert {name for name in of_gang if not name.startswith(("MUSTER_", "PET_"))} == OF_GANGS


def test_torchrun_finds_the_gang_in_its_variables(worlds: MakeWorld) -> None:
    keys = {"tasks": 2, "coscheduled": True, "resources": {"cpu": 9, "gpu": 4}}
    first, second = sorted(environments(worlds, **keys), key=lambda each: each["RANK"])
    meets = f"{first['MASTER_ADDR']}:{first['MASTER_PORT']}"
    for rank, each in enumerate((first, second)):
        assert {name: value for name, value in each.items() if name.startswith("PET_")} == {
            "PET_NNODES": "2",
            "PET_NODE_RANK": str(rank),
            "PET_NPROC_PER_NODE": "4",
            "PET_RDZV_ENDPOINT": meets,
        }
        assert each["OMP_NUM_THREADS"] == "2", "four programs share nine processors"


def test_what_torchrun_is_told_by_the_spec_stands(worlds: MakeWorld) -> None:
    own = {"PET_NNODES": "1:2", "PET_NODE_RANK": "7", "PET_RDZV_ENDPOINT": "head:29400"}
    keys = {"tasks": 2, "coscheduled": True, "resources": {"cpu": 9}, "env": own}
    for each in environments(worlds, **keys):
        assert {name: value for name, value in each.items() if name.startswith("PET_")} == own
        assert each["OMP_NUM_THREADS"] == "9"
    lone = environment(worlds, resources={"cpu": 1, "gpu": 2})
    assert not any(name.startswith("PET_") for name in lone)


@pytest.mark.parametrize("keys", [{"port": 9777}, {}, {"ports": 2}])
def test_replica_is_told_the_port_of_its_requests_whatever_its_spec_says(
    worlds: MakeWorld, keys: dict[str, Any]
) -> None:
    cluster = Cluster(worlds)
    cluster.deploy(env={"PORT": "1"}, **keys)
    (start,) = [
        kernel.start for agent in cluster.world.agents.values() for kernel in agent.running.values()
    ]
    told = {**start.template.env, **start.env}["PORT"]
    assert told == str(keys["port"]) if "port" in keys else int(told) > 1
