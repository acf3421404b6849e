"""Plug-ins of strangers, as their packages bring them: some fail, each in its own way."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from muster.core.ids import AgentId, SessionId
from muster.core.owner import Owner
from muster.core.reasons import Reason
from muster.core.reasons.of_groups import NoAgents
from muster.core.reasons.of_sessions import RoomTakenMeanwhile
from muster.core.resources import Resources
from muster.scheduling.cluster.columns import Floats, Ints, Shares
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.policy.plugins import AllocationContext, AllocationResult, PassContext
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import KernelPlacement, SessionWorkload, WorkloadClass

ENTRY_POINTS = """
[muster.validators]
raising_validator = {module}:RaisingValidator
looping_validator = {module}:LoopingValidator
babbling_validator = {module}:BabblingValidator
sober_validator = {module}:SoberValidator
[muster.sequencers]
raising_sequencer = {module}:RaisingSequencer
looping_sequencer = {module}:LoopingSequencer
babbling_sequencer = {module}:BabblingSequencer
[muster.selectors]
raising_selector = {module}:RaisingSelector
looping_selector = {module}:LoopingSelector
babbling_selector = {module}:BabblingSelector
greedy_selector = {module}:GreedySelector
dull_selector = {module}:DullSelector
curious_selector = {module}:CuriousSelector
[muster.allocators]
raising_allocator = {module}:RaisingAllocator
looping_allocator = {module}:LoopingAllocator
babbling_allocator = {module}:BabblingAllocator
moving_allocator = {module}:MovingAllocator
wordless_allocator = {module}:WordlessAllocator
last_device = {module}:LastDevice
[muster.hooks]
raising_hook = {module}:RaisingHook
looping_hook = {module}:LoopingHook
stealing_hook = {module}:StealingHook
late_hook = {module}:LateHook
babbling_hook = {module}:BabblingHook
badge_hook = {module}:BadgeHook
fickle_hook = {module}:FickleHook
growing_hook = {module}:GrowingHook
"""


def install(packages: Path) -> Path:
    """Have these plug-ins found where ``packages`` is on the path, as by an installer; the answer
    is the folder that names them."""
    metadata = packages / "stranger-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS.format(module=__name__))
    return metadata


class RaisingAllocator:
    def allocate(self, *arguments: Any) -> AllocationResult:
        raise BlockingIOError("licences")


class LoopingAllocator:
    def allocate(self, *arguments: Any) -> AllocationResult:
        return loop()  # type: ignore[no-any-return]


class BabblingAllocator:
    def allocate(self, *arguments: Any) -> Any:
        return "why not"


class WordlessAllocator:
    def allocate(self, *arguments: Any) -> AllocationResult:
        return AllocationResult(None)


class MovingAllocator:
    """Allocates on agents that were not chosen."""

    def allocate(
        self, session: SessionWorkload, kernels: Sequence[KernelPlacement], context: Any
    ) -> AllocationResult:
        moved = tuple(replace(kernel, agent_id=AgentId("agt-other")) for kernel in kernels)
        return AllocationResult(moved)


class LastDevice:
    """Allocates the last device of an agent to whoever asks for one, and to one user alone."""

    def __init__(self, user: str = "ada") -> None:
        self._user = user

    def allocate(
        self,
        session: SessionWorkload,
        kernels: Sequence[KernelPlacement],
        context: AllocationContext,
    ) -> AllocationResult:
        if session.workload.owner.user != self._user:
            return AllocationResult(None, (NoAgents(group="default"),))
        last = max(context.snapshot.columns.device_count.tolist()) - 1
        (kernel,) = kernels
        shares = tuple(replace(share, index=last) for share in kernel.shares)
        return AllocationResult((replace(kernel, shares=shares),))


def loop() -> Any:
    count = 0
    while True:
        count += 1


class RaisingValidator:
    def validate(self, workload: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        raise KeyError("weather")


class LoopingValidator:
    def validate(self, workload: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        return loop()  # type: ignore[no-any-return]


class BabblingValidator:
    def validate(self, workload: WorkloadClass, context: PassContext) -> Any:
        return ["not today"]


class SoberValidator:
    """Nothing of priority 13 starts."""

    def validate(self, workload: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        return [RoomTakenMeanwhile()] if workload.priority == 13 else []


class RaisingSequencer:
    dynamic = False

    def key(self, session: SessionWorkload, context: PassContext) -> tuple[float, ...]:
        raise ZeroDivisionError


class LoopingSequencer(RaisingSequencer):
    def key(self, session: SessionWorkload, context: PassContext) -> tuple[float, ...]:
        return loop()  # type: ignore[no-any-return]


class BabblingSequencer(RaisingSequencer):
    def key(self, session: SessionWorkload, context: PassContext) -> tuple[float, ...]:
        return (float("nan"),)


class RaisingSelector(Concentrated):
    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        raise RuntimeError("no opinion")


class LoopingSelector(Concentrated):
    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        return loop()  # type: ignore[no-any-return]


class BabblingSelector(Concentrated):
    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        return np.full(candidates.shape, np.nan)


class GreedySelector(Concentrated):
    """Answers every device, whatever is asked for."""

    def devices(self, request: Resources, snapshot: Snapshot, slot: int) -> Shares:
        every = Resources(gpu_milli=1000 * int(snapshot.columns.device_count[slot]))
        return super().devices(every, snapshot, slot)


class DullSelector(Concentrated):
    """Wants to know what comes, and does not take it in."""

    def arrived(self, request: Resources, kernels: int) -> None:
        raise MemoryError("too much")


class CuriousSelector(Concentrated):
    """Counts what comes."""

    heard: ClassVar[list[tuple[int, int]]] = []

    def arrived(self, request: Resources, kernels: int) -> None:
        self.heard.append((request.cpu_milli // 1000, kernels))


class Hook:
    """Changes nothing; counts what it is told of."""

    ended: ClassVar[list[tuple[SessionId, bool]]] = []

    def on_schedule(self, workload: WorkloadClass) -> WorkloadClass:
        return workload

    def before_start(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        return environment

    def after_end(self, session: SessionId, succeeded: bool) -> None:
        self.ended.append((session, succeeded))


class RaisingHook(Hook):
    def on_schedule(self, workload: WorkloadClass) -> WorkloadClass:
        raise LookupError("nobody told me")


class LoopingHook(Hook):
    def before_start(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        return loop()  # type: ignore[no-any-return]


class StealingHook(Hook):
    def on_schedule(self, workload: WorkloadClass) -> WorkloadClass:
        return replace(workload, owner=Owner("mine", "mine", "mine"))


class LateHook(Hook):
    def after_end(self, session: SessionId, succeeded: bool) -> None:
        raise OSError("too late")


class BabblingHook(Hook):
    def before_start(self, environment: Mapping[str, str]) -> Any:
        return {"ANSWER": 42}


class BadgeHook(Hook):
    """Puts a badge on, takes a secret away, and has the session wait for its turn."""

    def on_schedule(self, workload: WorkloadClass) -> WorkloadClass:
        return replace(workload, priority=99)

    def before_start(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        kept = {name: value for name, value in environment.items() if name != "SECRET"}
        return kept | {"BADGE": environment["MUSTER_SESSION_ID"][:3]}


class FickleHook(Hook):
    """Answers something else each time, and its options say when it has had enough."""

    def __init__(self, answers: int = 1000) -> None:
        self.asked = 0
        self._answers = answers

    def on_schedule(self, workload: WorkloadClass) -> WorkloadClass:
        self.asked += 1
        if self.asked > self._answers:
            raise LookupError("not again")
        return replace(workload, priority=self.asked)


class GrowingHook(Hook):
    def on_schedule(self, workload: WorkloadClass) -> WorkloadClass:
        more = [replace(each, cpu_milli=each.cpu_milli + 2000) for each in workload.kernels]
        return replace(workload, kernels=tuple(more))
