"""Invariants of the attempts that run on machines, of gangs and of devices."""

from collections import Counter, defaultdict, deque

from muster.core.resources import GPU_WHOLE
from muster.store.records import LedgerKey
from muster.wire.messages import KernelReport, ReportKind
from proving.hollow.agent import HollowAgent
from proving.hollow.stages import WITH_PROCESSES
from proving.hollow.supervisor import Kernel
from proving.swarm.chance import attempt_of
from proving.swarm.judge import Invariant, Judge

MOST_BEGUN = 8
CHURN_S = 2.0


class OneLiveAttempt(Invariant):
    says = "a task has one live attempt at most"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._running: dict[tuple[str, int], set[tuple[str, str, int]]] = defaultdict(set)

    def begun(self, agent: HollowAgent, kernel: Kernel) -> None:
        attempt = attempt_of(kernel.start)
        if attempt is None:
            return
        job, task, _ = attempt
        who, running = (agent.name, *kernel.key), self._running[job, task]
        self.expect(not running, f"live attempts of task {task} of {job}: {running}, {who}")
        running.add(who)

    def gone(self, agent: HollowAgent, kernel: Kernel) -> None:
        attempt = attempt_of(kernel.start)
        if attempt is not None:
            self._running[attempt[0], attempt[1]].discard((agent.name, *kernel.key))


class NoAttemptTwice(Invariant):
    says = "no attempt runs twice"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._begun: dict[tuple[str, int, int], str] = {}

    def begun(self, agent: HollowAgent, kernel: Kernel) -> None:
        attempt = attempt_of(kernel.start)
        if attempt is None:
            return
        who = f"{kernel.key} on {agent.name}"
        before = self._begun.setdefault(attempt, who)
        self.expect(before is who, f"attempt {attempt} ran twice: {before}, and {who}")


class Pauses(Invariant):
    """Else somebody takes the room of a task each time that it begins."""

    says = "no task begins again and again without a pause"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._begun_lately: dict[tuple[str, int], deque[float]] = {}

    def begun(self, agent: HollowAgent, kernel: Kernel) -> None:
        attempt = attempt_of(kernel.start)
        if attempt is None:
            return
        job, task, _ = attempt
        lately = self._begun_lately.setdefault((job, task), deque(maxlen=MOST_BEGUN))
        self.expect(
            len(lately) < MOST_BEGUN or self.now - lately[0] >= CHURN_S,
            f"task {task} of {job} began {MOST_BEGUN} times in {CHURN_S:g} s",
        )
        lately.append(self.now)


class Capacity(Invariant):
    says = "no machine is used beyond its capacity"

    def begun(self, agent: HollowAgent, kernel: Kernel) -> None:
        running = [
            each for each in agent.supervisor.kernels.values() if each.stage in WITH_PROCESSES
        ]
        asked = [each.start.template for each in running]
        sums = sum(each.cpu_milli for each in asked), sum(each.memory_bytes for each in asked)
        has = agent.offer.capacity.cpu_milli, agent.offer.capacity.memory_bytes
        fits = all(amount <= most for amount, most in zip(sums, has, strict=True))
        self.expect(fits, f"{agent.name} has {has} thousandths and bytes, and runs {sums}")
        used: Counter[int] = Counter()
        for each in running:
            used.update({share.index: share.milli for share in each.shares})
        most = max(used.values(), default=0)
        self.expect(most <= GPU_WHOLE, f"devices of {agent.name} are used so: {dict(used)}")


class Barrier(Invariant):
    """The barrier is open, and it was opened once agents had told that each kernel is ready."""

    says = "no kernel of a gang runs before each of them is ready"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._ready: set[LedgerKey] = set()

    def journalled(self, agent: HollowAgent, report: KernelReport) -> None:
        if report.kind is ReportKind.CREATED:
            self._ready.add((report.kernel, report.generation))

    def begun(self, agent: HollowAgent, kernel: Kernel) -> None:
        if self.world.controller is None:
            return
        record = self.world.store.live.kernels.get(kernel.start.kernel)
        if record is None or len(record.session.kernels) == 1:
            return
        gang = {(each.id, kernel.start.generation) for each in record.session.kernels}
        unready = gang - self._ready
        self.expect(not unready, f"{kernel.key} of a gang ran, and {unready} were not ready")
        self.expect(
            record.session.barrier_opened_at is not None,
            f"kernel {kernel.key} of a gang ran before its barrier opened",
        )
