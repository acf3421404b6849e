"""The kernels of this agent, between the controller's orders and the supervisor's events."""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from muster.agent.account_errors import NoAccount
from muster.agent.accounts import Account, MachineAccounts
from muster.agent.inventory import KernelInventory
from muster.agent.logs import LogFiles
from muster.agent.outbox import Outbox
from muster.agent.ports import NoPorts, PortInUse, PreparedPorts
from muster.agent.removed_outputs import RemovedOutputs
from muster.agent.services import RESETS, OwnServices
from muster.agent.supervisor.process_tree import user_of
from muster.agent.supervisor_link import AccountsOf, SupervisorLink, SupervisorState, Terms
from muster.core.clock import Clock
from muster.core.health.service import ServiceName
from muster.core.ids import KernelId
from muster.core.reasons import ReasonCode
from muster.core.resources import DeviceShare
from muster.core.uids import ClusterUid
from muster.wire.messages import (
    Command,
    Go,
    HeldKernel,
    HeldStatus,
    KernelKey,
    KernelReport,
    Prepare,
    Recall,
    Renew,
    ReportKind,
    Start,
    Stop,
)

if TYPE_CHECKING:
    from muster.agent.supervisor.kernel import Event

log = logging.getLogger(__name__)


_OVER = (ReportKind.ENDED, ReportKind.CREATE_FAILED)
MAX_WITH_GPUS = 10_000
"""Kernels of which it is remembered which GPUs they have."""
ABANDON_AGAIN_S = 5.0
"""Seconds after which a kernel that has to end at once is told so again."""


class Kernels:
    """Commands go through here to the supervisor; its events become reports in ``outbox``.

    ``news`` is set when there is something to send. While there is no supervisor, commands are
    dropped: after the next Hello, which tells the kernels that the agent holds, the controller
    repeats the commands that are still needed.

    Args:
        ports: of prepared kernels.
        logs_directory: where the supervisor writes output.
        removed: the outputs that are no longer kept.
        accounts: as which kernels run.
        services: what this agent carries out as itself.
        terms: the agent's own limits, which are added to the controller's orders.
        clock: for the times in reports.
    """

    def __init__(
        self,
        ports: PreparedPorts,
        logs_directory: Path,
        removed: RemovedOutputs,
        accounts: MachineAccounts,
        services: OwnServices,
        terms: Terms,
        clock: Clock,
    ) -> None:
        self.outbox = Outbox()
        self.news = asyncio.Event()
        self.logs = LogFiles(logs_directory, self.is_live, removed)
        self.limits = "none"  # how the supervisor limits kernels
        self._inventory = KernelInventory(terms.device_names)
        self._ports = ports
        self._clock = clock
        self._accounts = accounts
        self._services = services
        self._terms = terms
        self._link: SupervisorLink | None = None
        self.renewed_s = 0.0  # the moment on the boot clock that the renewal in force answered
        self.resetting: Callable[[bool], None] = lambda begins: None
        """Called when services begin to reset GPUs, and once they have ended, or a supervisor told
        that none is under way."""
        self._resets: set[KernelKey] = set()
        self.errors_of: Callable[[Collection[int]], str] = lambda gpus: ""
        """The errors of GPUs a moment ago, by their indexes, in words; empty if there were none."""
        self.ports_changed: Callable[[], None] = lambda: None
        """Called when ports are given back, or the accounts of their kernels are known."""
        self._users: dict[KernelKey, int] = {}  # of kernels with ports
        self._has_unowned = False  # kernels with ports of which it is not known
        self._gpus: dict[KernelKey, tuple[int, ...]] = {}
        self._found: set[KernelKey] = set()  # at the start: nobody tells which GPUs they have

    def held_gpus(self) -> Collection[int] | None:
        """The indexes of the GPUs that kernels hold; None while some run of which it is not known
        which they have."""
        is_live = self._inventory.is_live
        self._found = {key for key in self._found if is_live(key)}
        if self._found:
            return None
        return {gpu for key, gpus in self._gpus.items() if is_live(key) for gpu in gpus}

    def use(self, link: SupervisorLink | None) -> None:
        """Send commands to this supervisor from now on."""
        self._link = link
        self.renewed_s = 0.0

    def is_live(self, key: KernelKey) -> bool:
        """Whether the kernel may still write output, now or later."""
        held = key in self._inventory
        return self._inventory.is_live(key) if held else key in self._ports.reserved()

    def main_process(self, key: KernelKey) -> int | None:
        """The process id of a kernel's main process; None unless it runs."""
        return self._inventory.main_process(key)

    def port_owners(self) -> Mapping[int, int]:
        """The uids as which the kernels run that have ports, as far as they are known: from the
        order to start them on, or once a kernel runs that an earlier agent had started."""
        locked = self._ports.locked()
        self._users = {key: uid for key, uid in self._users.items() if key in locked}
        owners: dict[int, int] = {}
        for key, ports in locked.items():
            pid = self._inventory.main_process(key)
            if key not in self._users and pid is not None and (uid := user_of(pid)) is not None:
                self._users[key] = uid
            if key in self._users:
                owners |= dict.fromkeys(ports, self._users[key])
        self._has_unowned = len(self._users) < len(locked)
        return owners

    # Told to the controller

    def inventory(self) -> tuple[HeldKernel, ...]:
        """All kernels that this agent holds (design: Agents)."""
        held = [HeldKernel(*key, status) for key, status in self._inventory]
        held += [HeldKernel(*key, HeldStatus.PREPARED) for key in self._prepared_only()]
        return tuple(held)

    def repeat_reports(self) -> None:
        """Tell unacknowledged reports again, on a new stream."""
        self.outbox.rewind([self._prepared(key) for key in self._prepared_only()])
        self.news.set()

    def _prepared_only(self) -> list[KernelKey]:
        return [key for key in self._ports.reserved() if key not in self._inventory]

    def _prepared(self, key: KernelKey) -> KernelReport:
        ports = self._ports.reserved()[key]
        return KernelReport(*key, ReportKind.PREPARED, self._clock.now(), ports=ports)

    # Heard from the controller

    async def find_accounts(self, commands: Iterable[Command]) -> None:
        """Look up the accounts of kernels that are to start, beside the event loop: a home may have
        to be handed over first."""
        templates = (each.template for each in commands if isinstance(each, Start))
        owners = {(each.owner, each.uid) for each in templates if each.service is None}
        unknown = [each for each in owners if not self._accounts.knows(*each)]
        if unknown:
            await asyncio.to_thread(self._look_up, unknown)

    def _look_up(self, owners: Iterable[tuple[str, ClusterUid | None]]) -> None:
        for owner, uid in owners:
            with suppress(NoAccount):  # it is told when the kernel is to start
                self._accounts.of(owner, uid)

    def obey(self, commands: Sequence[Command]) -> None:
        """Carry out commands, in order; runs of one kind go to the supervisor together."""
        if self._link is None:
            return
        if log.isEnabledFor(logging.DEBUG):
            kinds = Counter(type(each).__name__ for each in commands)
            log.debug("commands of the controller: %s", dict(kinds))
        for _, alike in groupby(commands, key=type):
            run = list(alike)
            match run[0]:
                case Start():
                    self._start([command for command in run if isinstance(command, Start)])
                case Stop():
                    self._link.stop(command for command in run if isinstance(command, Stop))
                case Go():
                    self._link.go(command for command in run if isinstance(command, Go))
                case Recall():
                    self._link.recall(command for command in run if isinstance(command, Recall))
                case Prepare():
                    self._prepare(command for command in run if isinstance(command, Prepare))
                case unknown:
                    assert_never(unknown)

    async def obeyed(self) -> None:
        """Wait until the supervisor has taken most of its commands."""
        if self._link is not None:
            await self._link.drained()

    def acknowledge(self, seq: int) -> None:
        """Take note that the controller has all reports up to number ``seq``."""
        ended: list[KernelKey] = []
        for report in self.outbox.acknowledge(seq):
            if report.kind is not ReportKind.STARTED:
                self._inventory.acknowledged(report)
            if report.kind is ReportKind.ENDED:
                ended.append((report.kernel, report.generation))
        if ended:
            self._ports.release(ended)
            self.ports_changed()
        if self._link is not None and seq > 0:
            self._link.acknowledge(seq)

    def renew_lease(self, renewal: Renew, boot_began_s: float) -> None:
        """Let kernels run until the end of the renewed lease. It is a moment of the boot clock, so
        that a delay on the way to the supervisor does not move it. The machine's boot clock began
        at ``boot_began_s`` of the operating system's, by which the supervisor goes."""
        if self._link is not None and renewal.sent_s >= self.renewed_s:
            self.renewed_s = renewal.sent_s
            self._link.renew_lease(boot_began_s + renewal.sent_s + renewal.lease_s)

    def _start(self, starts: list[Start]) -> None:
        work = [start for start in starts if start.template.service is None]
        if len(work) < len(starts):
            self._start_services(starts)
        if work:
            self._start_work(work)

    def _start_services(self, starts: Iterable[Start]) -> None:
        """Start those that are services, as this agent itself. They go to the supervisor apart from
        others: no kernel may get their account by their owner's name."""
        for start in starts:
            service = start.template.service
            if service is None:
                continue
            key = (start.kernel, start.generation)
            if service.name is ServiceName.RESET and key not in self._inventory:
                self._resets.add(key)
                self.resetting(True)
            own = self._services.order(start, service)
            self._hand_over([own], {own.template.owner: None})

    def _start_work(self, starts: list[Start]) -> None:
        accounts: dict[str, Account | None] = {}
        uids = {start.template.owner: start.template.uid for start in starts}
        for owner, uid in uids.items():
            try:
                accounts[owner] = self._accounts.of(owner, uid)
            except NoAccount as lack:
                without = [start for start in starts if start.template.owner == owner]
                starts = [start for start in starts if start.template.owner != owner]
                for start in without:
                    self._failed(start, ReportKind.CREATE_FAILED, lack.code, str(lack))
        self._note_users(starts, accounts)
        self._hand_over(starts, accounts)

    def _note_users(self, starts: Iterable[Start], accounts: AccountsOf) -> None:
        """Take note of the accounts of kernels with ports, before they can listen there."""
        locked, own = self._ports.locked(), os.geteuid()
        for start in starts:
            key = (start.kernel, start.generation)
            if key in locked:
                account = accounts[start.template.owner]
                self._users[key] = own if account is None else account.uid
        if locked:
            self.ports_changed()

    def _hand_over(self, starts: Sequence[Start], accounts: AccountsOf) -> None:
        assert self._link is not None
        for start in starts:  # live before its first file is there, which another thread may see
            self._inventory.ordered(start)
            if start.shares:
                self._note_gpus((start.kernel, start.generation), start.shares)
        for start in self._link.start(starts, self._terms, accounts):
            self._inventory.refused(start)
            self._failed(
                start,
                ReportKind.CREATE_FAILED,
                ReasonCode.CREATE_FAILED,
                "its command, environment and files are too large to be started",
            )

    def _prepare(self, commands: Iterable[Prepare]) -> None:
        reserved = [command for command in commands if self._has_reserved(command)]
        why = ""
        try:
            self._ports.save()
        except OSError as error:
            why = f"its ports cannot be written down: {error.strerror}"
        for command in reserved:
            key = (command.kernel, command.generation)
            if key in self._ports.reserved():
                self.outbox.add_unnumbered(self._prepared(key))
            else:
                self._failed(command, ReportKind.PREPARE_FAILED, ReasonCode.DISK_FULL, why)
        self._has_unowned |= bool(reserved)
        self.news.set()

    def _has_reserved(self, command: Prepare) -> bool:
        """Whether the ports of a kernel could be reserved; the controller is told if not."""
        key = (command.kernel, command.generation)
        try:
            self._ports.reserve(key, command.ports, command.port)
        except PortInUse as taken:
            self._failed(command, ReportKind.PREPARE_FAILED, ReasonCode.PORT_IN_USE, str(taken))
        except NoPorts as lack:
            self._failed(command, ReportKind.PREPARE_FAILED, ReasonCode.NO_PORTS, str(lack))
        except OSError as error:
            why = f"its ports cannot be reserved: {error.strerror}"
            self._failed(command, ReportKind.PREPARE_FAILED, ReasonCode.DISK_FULL, why)
        else:
            return True
        return False

    def _failed(
        self, command: Prepare | Start, kind: ReportKind, why: ReasonCode, detail: str
    ) -> None:
        now = self._clock.now()
        report = KernelReport(
            command.kernel, command.generation, kind, now, reason=why, detail=detail
        )
        self.outbox.add_unnumbered(report)
        self.news.set()

    async def abandon(self) -> None:
        """End all held kernels and wait until none is left; the controller is told nothing of
        it."""
        self._ports.release(list(self._ports.reserved()))
        while True:
            self.news.clear()
            self.outbox.rewind()
            while self.outbox:
                self.acknowledge(self.outbox.take(len(self.outbox)).last_seq)
            held = [key for key, _ in self._inventory]
            if not held:
                return
            if self._link is not None:
                self._link.stop(Stop(*key, 0.0, "this agent is no more") for key in held)
            with suppress(TimeoutError):
                async with asyncio.timeout(ABANDON_AGAIN_S):
                    await self.news.wait()

    # Heard from the supervisor

    def attached(self, state: SupervisorState) -> None:
        self.limits = state["limits"]
        self._inventory.reset(state["kernels"])
        self._found = {key for key, _ in self._inventory if key not in self._gpus}
        self.outbox.clear()
        found = {
            (KernelId(each["id"]), each["generation"])
            for each in state["kernels"]
            if each.get("shape") == RESETS
        }
        self._resets = {key for key in self._resets | found if self._inventory.is_live(key)}
        self.resetting(bool(self._resets))
        self.ports_changed()

    def heard(self, events: "Sequence[Event]") -> None:
        ended: list[KernelKey] = []
        for event in events:
            report = self._inventory.apply(event)
            if self._resets and report.kind in _OVER:
                self._reset_ended((report.kernel, report.generation))
            if report.kind is ReportKind.ENDED:
                ended.append((report.kernel, report.generation))
                report = self._ended(report)
            elif report.shares:
                self._note_gpus((report.kernel, report.generation), report.shares)
            self.outbox.add(event["seq"], report)
        self._ports.release_fixed(ended)
        if self._has_unowned:
            self.ports_changed()  # some may have begun that an earlier agent had started
        self.news.set()

    def _reset_ended(self, key: KernelKey) -> None:
        self._resets.discard(key)
        if not self._resets:
            self.resetting(False)

    def _ended(self, report: KernelReport) -> KernelReport:
        key = (report.kernel, report.generation)
        self.logs.ended(key)
        if report.reason is ReasonCode.KERNEL_VANISHED and key in self._ports.reserved():
            # The supervisor never heard of the kernel, which was only prepared.
            return replace(report, reason=ReasonCode.NEVER_STARTED)
        gpus = self._gpus.pop(key, None)
        if gpus and (report.exit_code or report.signal) and (errors := self.errors_of(gpus)):
            detail = f"{report.detail}; {errors}" if report.detail else errors
            return replace(report, detail=detail)
        return report

    def _note_gpus(self, key: KernelKey, shares: Sequence[DeviceShare]) -> None:
        self._gpus[key] = tuple(each.index for each in shares)
        while len(self._gpus) > MAX_WITH_GPUS:
            del self._gpus[next(iter(self._gpus))]

    def refused(self, why: str) -> None:
        # Both sides begin anew from the inventory, whichever command failed.
        log.error("the supervisor refused a command: %s", why)
        if self._link is not None:
            self._link.close()
