"""The cost at which machines are watched for their health: on an agent, and on the controller."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil
from benchmarks.results import Figure, MeaninglessFigures, Results
from tests.control.driven_agent import DrivenAgent
from tests.control.world import World
from tests.patience import until_awaited

from muster.agent.boot import Boot
from muster.agent.health.watch import HealthWatch
from muster.control.agent.desk import HEALTH_AGAIN_S
from muster.core.health.remedy import Remedy
from muster.core.resources import Device, Resources
from muster.core.specs import ScalingGroup
from muster.wire.messages import HealthSeen, Sighting

TITLE = "Health: what passive checks cost"
GPUS = 8
BETWEEN_SIGHTINGS_S = 3600.0
"""Each agent is taken to see something so often, which is far more than real ones do."""
FLOOD_PER_S = 1_000
ROOM = Resources(cpu_milli=8_000, memory_bytes=64 << 30)
PYNVML = f"""
import time
class NVMLError(Exception): pass
def _none(*_): raise NVMLError(3)
class _Pci:
    def __init__(self, index): self.busId = "00000000:%02X:00.0" % (index + 16)
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return {GPUS}
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetIndex(handle): return handle
def nvmlDeviceGetUUID(handle): return "GPU-%d" % handle
nvmlDeviceGetPciInfo = _Pci
def nvmlDeviceGetTotalEccErrors(*_): return 0
def nvmlDeviceGetRemappedRows(_): return (0, 0, 0, 0)
nvmlDeviceGetRetiredPagesPendingStatus = nvmlDeviceGetFieldValues = _none
def nvmlDeviceGetCurrPcieLinkWidth(_): return 16
nvmlDeviceGetMaxPcieLinkWidth = nvmlDeviceGetCurrPcieLinkWidth
def nvmlDeviceGetCurrPcieLinkGeneration(_): return 5
nvmlDeviceGetMaxPcieLinkGeneration = nvmlDeviceGetCurrPcieLinkGeneration
def nvmlDeviceGetCurrentClocksThrottleReasons(_): return 0
def nvmlDeviceGetTemperature(*_): return 40
def nvmlDeviceGetTemperatureThreshold(*_): return 89
class _Rates: gpu = 95
def nvmlDeviceGetHandleByUUID(uuid): return int(uuid[4:])
nvmlDeviceGetUtilizationRates = lambda _: _Rates
def nvmlDeviceGetClockInfo(*_): return 1700
def nvmlDeviceGetTotalEnergyConsumption(_): return int(600_000 * time.time())
def nvmlDeviceGetSupportedEventTypes(_): return 8
def nvmlDeviceRegisterEvents(*_): pass
def nvmlDeviceGetMigMode(_): raise NVMLError(3)
def nvmlEventSetCreate(): return 1
def nvmlEventSetFree(_): pass
def nvmlEventSetWait_v2(_, timeoutms):
    time.sleep(timeoutms / 1000)
    raise NVMLError(10)
"""
"""A library in place of NVML's, which costs next to nothing: a real one's cost is bounded by the
process itself (``MOST_CPU``)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """``runs`` windows of ``window_s`` on an agent, and as many rounds with ``agents``."""

    window_s: float
    agents: int
    runs: int = 3


FULL = Plan(window_s=60.0, agents=1_000)
SHORT = Plan(window_s=15.0, agents=200)


def measure(plan: Plan) -> Results:
    """
    Raises:
        MeaninglessFigures: something did not happen that was to be measured.
    """
    quiet = [_on_agent(plan.window_s, 0) for _ in range(plan.runs)]
    flooded = [_on_agent(plan.window_s, FLOOD_PER_S) for _ in range(plan.runs)]
    return Results(plan.runs, [*_of_agent(plan, quiet, flooded), *_of_controller(plan)])


def _of_agent(
    plan: Plan, quiet: Sequence[tuple[float, float]], flooded: Sequence[tuple[float, float]]
) -> Iterator[Figure]:
    yield Figure(
        "agent_cpu_percent",
        median(sum(each) for each in quiet),
        f"of a core, by an agent's watch and its watching process, {GPUS} GPUs of a library that "
        f"costs next to nothing; {plan.runs} windows of {plan.window_s:g} s",
        "≤ 0.2",
    )
    yield Figure(
        "gpu_process_cpu_percent", median(each[1] for each in quiet), "the watching process alone"
    )
    yield Figure(
        "flooded_agent_cpu_percent",
        median(each[0] for each in flooded),
        f"by the agent's watch while others write {FLOOD_PER_S:,} records a second to the log",
    )


def _on_agent(window_s: float, records_per_s: int) -> tuple[float, float]:
    """Percent of a core that an agent's watch takes, and its watching process."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        return asyncio.run(_watched(Path(directory), window_s, records_per_s))


async def _watched(directory: Path, window_s: float, records_per_s: int) -> tuple[float, float]:
    (directory / "pynvml.py").write_text(PYNVML)
    log = directory / "kmsg"
    log.write_bytes(b"")
    devices = tuple(Device(index, "H100", f"GPU-{index}") for index in range(GPUS))
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "from muster.agent.health.gpu_watch import main; main()"
    )
    watch = HealthWatch(
        directory,
        Boot("boot"),
        devices,
        lambda: None,
        kernel_log=log,
        command=(sys.executable, "-c", program, str(directory)),
    )
    running = asyncio.create_task(watch.run())
    try:
        await until_awaited(lambda: watch.judge.knows_addresses)
        children = psutil.Process().children()
        [child] = [each for each in children if str(directory) in each.cmdline()]
        before = time.process_time(), sum(child.cpu_times()[:2])
        began_s = time.monotonic()
        written_s = 0.0
        while (passed_s := time.monotonic() - began_s) < window_s:
            await asyncio.sleep(min(1.0, window_s))
            if records_per_s:
                at_s = time.process_time()
                _write(log, records_per_s)
                written_s += time.process_time() - at_s
        own_s = time.process_time() - before[0] - written_s
        child_s = sum(child.cpu_times()[:2]) - before[1]
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    return 100 * own_s / passed_s, 100 * child_s / passed_s


def _write(log: Path, records: int) -> None:
    line = b"6,%d,%d,-;some driver tells something that is of no interest here\n"
    with log.open("ab") as file:
        file.write(b"".join(line % (nth, 1000 * nth) for nth in range(1, records + 1)))


def _of_controller(plan: Plan) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        world = _world(Path(directory), plan.agents)
        try:
            heard_s = [_hear(world, seq) for seq in range(1, plan.runs + 1)]
            flood = [_flood(world) for _ in range(plan.runs)]
        finally:
            world.close()
    each_s = median(heard_s) / plan.agents
    yield Figure(
        "controller_cpu_percent",
        100 * each_s * 1_000 / BETWEEN_SIGHTINGS_S,
        f"of a core, by a controller of 1,000 agents that each tell something every "
        f"{BETWEEN_SIGHTINGS_S / 60:g} min, by what one costs with {plan.agents}",
        "≤ 0.5",
    )
    yield Figure(
        "sighting_ms", 1000 * each_s, "for one sighting in a wake of its own, its commit included"
    )
    yield Figure(
        "flooding_agent_cpu_percent",
        median(flood),
        f"of a core, by a controller with one agent that tells {FLOOD_PER_S:,} a second",
    )


def _world(directory: Path, agents: int) -> World:
    names = [f"agent-{number}" for number in range(agents)]
    return World(directory, dict.fromkeys(names, ROOM), group=ScalingGroup(name="default"))


def _said(agent: DrivenAgent, seq: int) -> HealthSeen:
    boot_id = agent.machine.boot_id
    sighting = Sighting(seq, Remedy.CHECK, "Xid 74, error of an NVLink", boot_id=boot_id)
    return HealthSeen((sighting,))


def _hear(world: World, seq: int) -> float:
    """Processor time in which each agent's sighting is heard, each in a wake of its own. The first
    one of an agent begins an incident."""
    world.clock.advance(HEALTH_AGAIN_S)
    used_s = 0.0
    for agent in list(world.agents.values()):
        began_s = time.process_time()
        world.desk.agent_said(agent.id, _said(agent, seq))
        world.wake()
        used_s += time.process_time() - began_s
        for id_, message in world.outgoing:
            world.agents[id_].hear(message)
        world.outgoing.clear()
    if any(agent.noted != seq for agent in world.agents.values()):
        raise MeaninglessFigures("not every sighting was noted")
    return used_s


def _flood(world: World) -> float:
    """Percent of a core for one second of an agent that never stops."""
    world.clock.advance(1.0)
    agent = next(iter(world.agents.values()))
    began_s = time.process_time()
    for nth in range(FLOOD_PER_S):
        world.desk.agent_said(agent.id, _said(agent, 10**6 + nth))
        if world.inbox:
            world.wake()
    used_s = time.process_time() - began_s
    world.outgoing.clear()
    return 100 * used_s
