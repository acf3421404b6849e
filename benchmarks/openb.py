"""The openb trace (Alibaba cluster-trace-gpu-v2023) under its published protocol (source: Weng
2023), and under load that comes and goes."""

import csv
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.core.ids import AgentId
from muster.core.resources import GPU_WHOLE, Resources
from muster.scheduling.cluster.snapshot import Snapshot
from muster.simulate.trace import TraceNode, TraceSession, read_nodes, read_trace

WORKLOADS = ("default", "cpu100", "multigpu20", "gpuspec10")
VARIABLE = "MUSTER_OPENB"
ARRIVE_UNTIL = 1.3  # GPUs asked for, of all that there are
_NODES = "openb_node_list_gpu_node.csv"
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Stay:
    """A task that comes and goes, in seconds from the start."""

    from_s: float
    until_s: float
    request: Resources


def found(directory: Path | None = None) -> Path | None:
    """The folder with the trace: ``directory``, or what the environment says; None if it is not
    there."""
    if directory is None and os.environ.get(VARIABLE):
        directory = Path(os.environ[VARIABLE])
    return directory if directory is not None and (directory / _NODES).is_file() else None


def nodes(directory: Path) -> tuple[TraceNode, ...]:
    return read_nodes(directory / _NODES)


def snapshot_of(machines: Sequence[TraceNode]) -> Snapshot:
    snapshot = Snapshot("openb")
    for machine in machines:
        snapshot.upsert_agent(
            AgentId(f"agt-{machine.name}"),
            machine.name,
            machine.capacity,
            machine.devices,
            accepting=True,
            status="ALIVE",
        )
    return snapshot


def gpu_milli(machines: Sequence[TraceNode]) -> int:
    return sum(len(machine.devices) for machine in machines) * GPU_WHOLE


def requests(directory: Path, workload: str) -> list[Resources]:
    """The requests of the tasks, in the order of their names. Not all workloads have times, so
    ``read_trace`` does not read them."""
    with _tasks(directory, workload).open(newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["name"])
    made: dict[Resources, Resources] = {}  # one object of each
    return [made.setdefault(each, each) for each in map(_request, rows)]


def arrivals(tasks: Sequence[Resources], capacity_milli: int, seed: int) -> list[Resources]:
    """The paper's inflation: the tasks in random order, then random ones of them again until enough
    GPUs are asked for."""
    rng = random.Random(seed)
    inflated = list(tasks)
    rng.shuffle(inflated)
    asked = sum(task.gpu_milli for task in inflated)
    while asked < ARRIVE_UNTIL * capacity_milli:
        inflated.append(rng.choice(tasks))
        asked += inflated[-1].gpu_milli
    return inflated


def stays(
    directory: Path, workload: str, capacity_milli: int, load: float, seed: int
) -> tuple[list[Stay], float]:
    """Tasks with the trace's own times, and the seconds that they go on for.

    At no time do the tasks of the trace use more than a hundredth of its cluster. So its busy part,
    the last nine tenths of the tasks, is laid over itself with random shifts until the GPU time
    asked for is ``load`` of what there is.
    """
    tasks = read_trace(_tasks(directory, workload))
    by_time = sorted(tasks, key=lambda task: task.submit_at_s)
    busy = by_time[len(by_time) // 10 :]
    start_s = busy[0].submit_at_s
    span_s = busy[-1].submit_at_s - start_s
    work = sum(_milli(task) * min(task.duration_s, span_s) for task in busy)
    rng = random.Random(seed)
    shifted = []
    for _ in range(max(1, round(load * capacity_milli * span_s / work))):
        shift_s = rng.uniform(0, span_s)
        for task in busy:
            from_s = (task.submit_at_s - start_s + shift_s) % span_s
            shifted.append(Stay(from_s, from_s + task.duration_s, task.kernels[0]))
    shifted.sort(key=lambda stay: stay.from_s)
    return shifted, span_s


def _tasks(directory: Path, workload: str) -> Path:
    return directory / f"openb_pod_list_{workload}.csv"


def _milli(task: TraceSession) -> int:
    return sum(kernel.gpu_milli for kernel in task.kernels)


def _request(row: dict[str, str]) -> Resources:
    gpus = int(row["num_gpu"])
    models = {each for each in (row.get("gpu_spec") or "").split("|") if each}
    return Resources(
        int(row["cpu_milli"]),
        int(row["memory_mib"]) * _MIB,
        gpu_milli=gpus * int(row["gpu_milli"]),
        gpu_models=tuple(sorted(models)) if gpus else (),
    )
