"""Commands to agents: no needless command is sent."""

from collections import Counter
from dataclasses import dataclass, field

from muster.control.session.lifecycle import STOP_AGAIN_AFTER_S, is_asked_back
from muster.core.ids import AgentId
from muster.core.states import KERNEL_TABLE, KernelStatus, SessionStatus
from muster.store.records import LedgerKey
from muster.store.unit import Unit
from muster.wire.messages import (
    Acknowledge,
    AgentMessage,
    Command,
    Commands,
    ControllerMessage,
    Go,
    HeldStatus,
    Hello,
    KernelReport,
    Prepare,
    Recall,
    ReportKind,
    Reports,
    Start,
    Stop,
)
from proving.swarm.judge import Invariant, Judge

_WANTED = KERNEL_TABLE.live - {KernelStatus.TERMINATING}
_TRIED_AGAIN = {ReportKind.PREPARE_FAILED: "Prepare", ReportKind.CREATE_FAILED: "Start"}


@dataclass(slots=True)
class _Told:
    """The commands that an agent was sent since its last Hello, or since it reported their failure.

    ``commands`` are the names of commands by kernel; ``ready`` counts how often the agent said that
    it has a kernel ready, and was not told yet to let it go; ``stopped_at`` says when a Stop was
    decided last, and how long after that another one may be of use; ``killed`` are the kernels that
    were told to end at once because somebody asked for that.
    """

    commands: dict[LedgerKey, set[str]] = field(default_factory=dict)
    ready: Counter[LedgerKey] = field(default_factory=Counter)
    stopped_at: dict[LedgerKey, tuple[float, float]] = field(default_factory=dict)
    killed: set[LedgerKey] = field(default_factory=set)

    def first(self, key: LedgerKey, name: str) -> bool:
        """Whether the agent was not told so yet. From now on it counts as told."""
        said = self.commands.setdefault(key, set())
        if name in said:
            return False
        said.add(name)
        return True

    def forget(self, key: LedgerKey, name: str) -> None:
        said = self.commands.get(key, set())
        said -= {each for each in said if each.startswith(name)}


class CommandsAreNeeded(Invariant):
    """No second Start of a generation that the agent has, no Stop of a kernel that is wanted or is
    known to be gone, no command twice without a reason. A Hello that does not tell of a kernel, a
    failed try, and the end of a kernel's grace are reasons."""

    says = "no command is sent that was not needed"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._told: dict[AgentId, _Told] = {}
        self._ending: dict[AgentId, dict[LedgerKey, int]] = {}  # with the report's number
        self._ended: set[LedgerKey] = set()
        self._mirror: object = None
        self._decided_at = 0.0  # a commit may take a while

    def controller_died(self) -> None:
        self._told.clear()
        self._ending.clear()
        self._ended.clear()

    def committed(self, unit: Unit) -> None:
        self._decided_at = unit.now
        if unit.live is not self._mirror:  # it was read again: Stops and Recalls are forgotten
            self._mirror = unit.live
            for told in self._told.values():
                told.stopped_at.clear()
                for said in told.commands.values():
                    said.discard("Recall")

    def heard(self, agent: AgentId, message: AgentMessage) -> None:
        match message:
            case Hello():
                told = self._told[agent] = _Told()
                for held in message.kernels:
                    if held.status in (HeldStatus.CREATED, HeldStatus.RUNNING):
                        key = held.kernel, held.generation
                        told.commands[key] = {"Start", "Start into the backlog"}
                        told.ready[key] += held.status is HeldStatus.CREATED
            case Reports():
                for report in message.reports:
                    self._reported(self._told.setdefault(agent, _Told()), report)
                    if report.kind is ReportKind.ENDED:
                        key = report.kernel, report.generation
                        self._ending.setdefault(agent, {})[key] = message.last_seq

    def _reported(self, told: _Told, report: KernelReport) -> None:
        key = report.kernel, report.generation
        match report.kind:
            case ReportKind.PREPARE_FAILED | ReportKind.CREATE_FAILED:
                told.forget(key, _TRIED_AGAIN[report.kind])
            case ReportKind.CREATED:
                told.ready[key] += 1

    def sent(self, agent: AgentId, message: ControllerMessage) -> None:
        match message:
            case Acknowledge(seq):
                ending = self._ending.setdefault(agent, {})
                known = {key for key, last_seq in ending.items() if last_seq <= seq}
                self._ended |= known
                self._ending[agent] = {key: ending[key] for key in ending.keys() - known}
            case Commands(commands):
                for command in commands:
                    needless = self._needless(self._told.setdefault(agent, _Told()), command)
                    self.expect(needless is None, f"{_named(command)}: {needless}")

    def _needless(self, told: _Told, command: Command) -> str | None:
        """Why the command is of no use; None if it is of some."""
        key = command.kernel, command.generation
        if key in self._ended:
            return "it is known to have ended"
        match command:
            case Stop():
                return self._needless_stop(told, command)
            case Go():
                told.ready[key] -= 1
                return "it is not ready, or was told already" if told.ready[key] < 0 else None
            case Start(queued=True):
                name = "Start into the backlog"
            case Prepare() | Start() | Recall():
                name = type(command).__name__
        if not isinstance(command, Recall) and not self._is_wanted(key):
            return "it is not wanted"
        return None if told.first(key, name) else f"the agent was told to {name} already"

    def _needless_stop(self, told: _Told, command: Stop) -> str | None:
        key = command.kernel, command.generation
        if self._is_wanted(key):
            return "it is wanted"
        at, wait_s = told.stopped_at.get(key, (0.0, 0.0))
        if self._is_kill(command) and key not in told.killed:
            told.killed.add(key)
            at, wait_s = 0.0, 0.0
        told.stopped_at[key] = self._decided_at, max(wait_s, command.grace_s + STOP_AGAIN_AFTER_S)
        if self._decided_at >= at + wait_s:
            return None
        return "the last Stop is not over"

    def _is_kill(self, command: Stop) -> bool:
        """Whether somebody had the kernel killed. Of one whose session is over by now, which had
        waited long enough, the command itself tells."""
        if command.grace_s:
            return False
        if command.kernel in self.world.store.live.kernels:
            return self.scene.is_to_be_killed(command.kernel)
        return command.reason.endswith("with force")

    def _is_wanted(self, key: LedgerKey) -> bool:
        live = self.world.store.live
        kernel = live.kernels.get(key[0])
        return (
            kernel is not None
            and kernel.generation == key[1]
            and kernel.status in _WANTED
            and kernel.session.status is not SessionStatus.TERMINATING
            and not is_asked_back(kernel.session)
        )


def _named(command: Command) -> str:
    return f"{type(command).__name__} of {command.kernel} ({command.generation})"
