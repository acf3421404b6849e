"""The supervisor's work on kernels: the operations of the protocol, and the passing of time.

A kernel is accepted once for each (id, generation), runs at once or waits (for this process to
start it, for the end of a kernel of its shape, or of its older generation), and ends in one `ended`
event. All of it runs in one thread and returns soon, without sockets or files.
"""

import math
import signal
from collections import deque
from collections.abc import Iterable

from muster.agent.supervisor import clock, reports
from muster.agent.supervisor.backlog import Backlog
from muster.agent.supervisor.failures import CannotExecute, CreateFailed
from muster.agent.supervisor.journal import Journal
from muster.agent.supervisor.kernel import CreateFailure, EndReason, Event, OwnKernel, Status
from muster.agent.supervisor.known_kernels import KnownKernels
from muster.agent.supervisor.limits import Limiter
from muster.agent.supervisor.protocol import (
    VERSION,
    KernelOrder,
    Key,
    ProtocolError,
    StopOrder,
)
from muster.agent.supervisor.reaper import Reaper
from muster.agent.supervisor.spawner import Spawned
from muster.agent.supervisor.starter import Starter, note_spawned
from muster.agent.supervisor.stops import RECALLED, SHUT_DOWN, Stops

MAX_KERNELS = 32_768  # more than a controller lets it have, with kernels that have just ended
MAX_UNACKNOWLEDGED = 131_072
LEASE_GRACE_MAX_S = 10.0  # a controller must wait for so long beyond the lease

_MAX_STARTS = 8
_LEFTOVER_PERIOD_S = 0.05
_REPORT_TIMEOUT_S = 5.0


class Supervisor:
    """All kernels of one agent."""

    def __init__(
        self, known: KnownKernels, journal: Journal, starter: Starter, reaper: Reaper
    ) -> None:
        self._journal = journal
        self._starter = starter
        self._reaper = reaper
        self._known = known
        self.live = known.live
        self._to_start: deque[OwnKernel] = deque()  # may hold kernels that are no longer queued
        self._backlog = Backlog()
        self._stops = Stops(starter, reaper, self._backlog, self._withdraw)
        self._limiter = Limiter(starter, self._stops.stop)
        self._leftovers_due_s = math.inf
        self.lease_end_s = math.inf
        self._lease_expired = False
        self._shutting_down = False
        self._empty_since_s: float | None = None

    # Operations.

    def start(self, orders: Iterable[KernelOrder]) -> None:
        """Accept kernels; a kernel that is known already is not started twice.

        Raises:
            ProtocolError: no kernel can be accepted now; none of these was.
        """
        orders = list(orders)
        if self._shutting_down:
            raise ProtocolError("start refused: the supervisor is shutting down")
        if clock.now_s() >= self.lease_end_s:
            raise ProtocolError("start refused: the kernel lease ran out; renew it first")
        if len(self._known) + len(orders) > MAX_KERNELS:
            raise ProtocolError(
                f"start refused: {len(self._known)} kernels are known here, and {len(orders)} more"
                f" would pass the limit of {MAX_KERNELS}; acknowledge those that have ended"
            )
        if self._journal.unacknowledged_count > MAX_UNACKNOWLEDGED:
            raise ProtocolError(
                f"start refused: {self._journal.unacknowledged_count} events wait for their"
                " acknowledgement"
            )
        accepted = [kernel for order in orders if (kernel := self._accept(order)) is not None]
        self._journal.accept(accepted)
        for kernel in accepted:
            if kernel.prefilled:
                self._hand_standbys(kernel)

    def stop(self, orders: Iterable[StopOrder]) -> None:
        for order in orders:
            key = order.id, order.generation
            kernel = self._known.get(key)
            if kernel is not None:
                self._stops.stop(kernel, order.grace_s, EndReason.STOPPED, order.reason)
            elif self._known.buried_seq(key) <= self._journal.acked_seq:
                # Told again if the last answer was acknowledged: a controller that still asks has
                # lost it.
                event = reports.unknown(key)
                self._journal.record([event])
                self._known.bury(key, event["seq"])

    def go(self, keys: Iterable[Key]) -> None:
        """Let these kernels run, if they are held or once they are."""
        for key in keys:
            kernel = self._known.get(key)
            if kernel is not None and not kernel.may_run:
                kernel.may_run = True
                if kernel.status is Status.CREATED:
                    self._to_start.append(kernel)

    def recall(self, keys: Iterable[Key]) -> None:
        """Take back kernels that are still queued."""
        for key in keys:
            kernel = self._known.get(key)
            if kernel is not None:
                self._stops.recall(kernel)

    def renew_lease(self, until_s: float) -> None:
        """Let kernels run until then: later than before, or earlier if the term was shortened. A
        renewal that comes too late renews nothing."""
        self.lease_end_s = until_s
        self._lease_expired = False
        self._starter.renew_lease(until_s)

    def acknowledge(self, seq: int) -> None:
        """Forget events up to `seq`, and the kernels whose last event is among them.

        Raises:
            ProtocolError: there was no such event yet.
        """
        if seq > self._journal.last_seq:
            raise ProtocolError(f"ack of event {seq}: the last one is {self._journal.last_seq}")
        if seq <= self._journal.acked_seq:
            return
        self._journal.acknowledge(seq)
        self._known.forget_up_to(seq)

    def shut_down(self, grace_s: float) -> None:
        """Stop all kernels; `finished` becomes true when they are gone and reported."""
        self._shutting_down = True
        for kernel in self._known.live_in_stop_order():
            self._stops.stop(kernel, grace_s, EndReason.STOPPED, SHUT_DOWN)

    def exceed_disk(self, kernel: OwnKernel, detail: str) -> None:
        """End a kernel whose scratch directory exceeds its limit."""
        self._stops.stop(kernel, 0.0, EndReason.DISK_LIMIT, detail)

    @property
    def heirs_wait(self) -> bool:
        """Whether an ending kernel would have an heir, without a message from outside."""
        return bool(self._backlog)

    def state(self) -> dict[str, object]:
        """The answer to `attach`."""
        return {
            "version": VERSION,
            "limits": self._starter.limits_kind,
            "next_seq": self._journal.last_seq + 1,
            "kernels": [reports.describe(kernel) for kernel in self._known],
        }

    # Events and time.

    def reap(self) -> None:
        """Reap dead children, report the kernels that are gone, and start their heirs."""
        for kernel in self._reaper.reap():
            self._finish(kernel)
        # Looked at again even without a SIGCHLD: a process may have forked past the last SIGKILL.
        self._leftovers_due_s = (
            clock.now_s() + _LEFTOVER_PERIOD_S if self._reaper.waiting else math.inf
        )

    def tick(self, now_s: float) -> None:
        """Enforce deadlines and start due kernels, a bounded number."""
        if self._reaper.due or now_s >= self._leftovers_due_s:
            self.reap()
        self._limiter.enforce_due(now_s)
        if now_s >= self.lease_end_s and not self._lease_expired:
            self._lease_expired = True
            for kernel in self._known.live_in_stop_order():
                grace_s = min(kernel.own_grace_s, LEASE_GRACE_MAX_S)
                self._stops.stop(kernel, grace_s, EndReason.LEASE_EXPIRED, "")
        self._stops.enforce_due(now_s)
        if self._to_start:
            self._start_some()

    def idle_s(self, now_s: float) -> float:
        """For how long `tick` has nothing to do unless something happens."""
        if self._to_start or self._reaper.due:
            return 0.0
        due_s = min(self._leftovers_due_s, self._stops.next_s(), self._limiter.next_s())
        if not self._lease_expired:
            due_s = min(due_s, self.lease_end_s)
        return max(0.0, due_s - now_s)

    def finished(self, now_s: float, *, attached: bool) -> bool:
        """Whether a shutdown is complete: all kernels are gone, and reported unless nobody is
        attached to hear it."""
        if not self._shutting_down or self.live:
            return False
        if self._empty_since_s is None:
            self._empty_since_s = now_s
        unheard = attached and self._journal.unacknowledged_count > 0
        return not unheard or now_s >= self._empty_since_s + _REPORT_TIMEOUT_S

    # Calls for spawner processes (`SpawnListener`).

    def spawned(self, kernel: OwnKernel, spawned: Spawned) -> None:
        note_spawned(kernel, spawned)
        self._reaper.add_of_another(kernel)
        self._record([reports.started(kernel)], kernel)
        self._limiter.spawned(kernel)
        if kernel.status is Status.STARTING:
            kernel.status = Status.RUNNING
            self._hand_standbys(kernel)
        elif kernel.killed:
            self._reaper.kill(kernel)
        else:  # the kernel was asked to stop before it had a process
            self._reaper.signal(kernel, signal.SIGTERM)

    def not_spawned(self, kernel: OwnKernel, failure: CreateFailed | CannotExecute) -> None:
        self._starter.clean_up(kernel)
        if kernel.status is Status.STANDBY:
            if kernel in self._backlog:
                kernel.status = Status.QUEUED  # it is tried again once it has room
            else:
                self._withdraw(kernel, RECALLED)
            return
        if kernel.stop_reason is not None:
            detail = kernel.stop_detail or kernel.stop_reason
            events = [reports.ended_without_run(kernel, EndReason.NEVER_STARTED, detail)]
        elif isinstance(failure, CreateFailed):
            self._record([reports.create_failed(kernel, failure)])
            self._end(kernel, Status.CREATE_FAILED)
            return
        else:
            events = [reports.cannot_execute(kernel, failure)]
        self._end(kernel)
        heir = self._appoint_heir(kernel, events[0])
        self._record(events, self._begin(heir, events) if heir is not None else None)

    def dropped(self, kernel: OwnKernel) -> None:
        self._withdraw(kernel, kernel.stop_detail or kernel.stop_reason or RECALLED)

    def main_ended(self, kernel: OwnKernel, wait_status: int, heir: OwnKernel | None) -> None:
        self._reaper.main_ended(kernel, wait_status)
        if heir is None or not heir.prefilled:  # it was granted room of its own meanwhile
            self._leftovers_due_s = 0.0
            return
        if heir.status is Status.STANDBY:  # and was not stopped meanwhile
            heir.status = Status.STARTING
        self._backlog.remove(heir)  # others may have ended, too, and it can follow only one
        kernel.heir = heir
        self.reap()  # the end of this one is told before the start of that one

    def spawner_ended(self, kernels: Iterable[OwnKernel]) -> None:
        for kernel in kernels:
            if kernel.wait_status is not None:  # this process has seen the end itself
                continue
            self._backlog.remove(kernel)
            kernel.lose("the process that starts its user's kernels was killed")
            self._reaper.lose(kernel)
        self._leftovers_due_s = 0.0

    def helper_spawned(self, pid: int) -> None:
        self._reaper.add_helper(pid)

    # Beginnings.

    def _accept(self, order: KernelOrder) -> OwnKernel | None:
        """Accept an order; None if the journal need not know of it."""
        key = order.id, order.generation
        kernel = self._known.get(key)
        if kernel is not None:
            if kernel.status is Status.CREATE_FAILED:
                kernel.status, kernel.predecessor = Status.QUEUED, None
                self._enqueue(kernel, order)
                return kernel
            if kernel.order is not None and kernel.order.hold and not order.hold:
                self.go([key])
            was_queued = kernel.order is not None and kernel.order.queued
            if kernel.status is Status.QUEUED and was_queued and not order.queued:
                self._backlog.remove(kernel)
                self._enqueue(kernel, order)
            if kernel.status is Status.STANDBY and not order.queued:
                self._backlog.remove(kernel)
                kernel.prefilled = False
                self._begin(kernel, [])
            return None
        newest = self._known.newest(order.id)
        if self._known.buried_seq(key) or (newest and newest.generation > order.generation):
            return None
        kernel = OwnKernel(key)
        self._known.add(kernel)
        if newest is not None and newest.key in self.live:
            self._supersede(newest, kernel)
        self._enqueue(kernel, order)
        return kernel

    def _supersede(self, older: OwnKernel, newer: OwnKernel) -> None:
        """Let a newer generation begin when the older one is gone."""
        first = older.waits_for if older.waits_for is not None else older
        if older.status in (Status.QUEUED, Status.CREATED):
            self._stops.stop(older, 0.0, EndReason.STOPPED, "superseded")
        if first.key in self.live:
            newer.waits_for, first.successor = first, newer
            self._stops.stop(first, first.own_grace_s, EndReason.STOPPED, "superseded")

    def _enqueue(self, kernel: OwnKernel, order: KernelOrder) -> None:
        self.live[kernel.key] = kernel
        kernel.order, kernel.shape, kernel.announced = order, order.shape, False
        kernel.prefilled = order.queued
        kernel.devices, kernel.device_milli = order.devices, order.device_milli
        if kernel.waits_for is not None:
            return
        if order.queued:
            self._backlog.add(kernel)
        else:
            self._to_start.append(kernel)

    def _hand_standbys(self, one: OwnKernel) -> None:
        """Have kernels of this one's shape stand by with their user's process, which spawns them
        without asking when kernels of that user and shape end."""
        account = one.order.template.account if one.order is not None else None
        if account is None:
            return
        while self._starter.wants_standby(one.shape, account):
            kernel = self._backlog.next_queued(one.shape)
            if kernel is None or kernel.order is None or kernel.order.template.account != account:
                return
            try:
                self._write_intents()
                self._starter.start(kernel, kernel.order, standby=True)
            except (CreateFailed, CannotExecute):
                return  # it fails again when it is started, and is reported then
            kernel.status = Status.STANDBY

    def _start_some(self) -> None:
        for _ in range(min(_MAX_STARTS, len(self._to_start))):
            kernel = self._to_start.popleft()
            order = kernel.order
            if kernel.status not in (Status.QUEUED, Status.CREATED) or order is None:
                continue
            events: list[Event] = []
            running = None
            if order.hold and not kernel.may_run:
                events.append(self._hold(kernel, order))
            else:
                running = self._begin(kernel, events)
            self._record(events, running)

    def _hold(self, kernel: OwnKernel, order: KernelOrder) -> Event:
        """Get a kernel ready; no process of it runs before `go`."""
        try:
            self._write_intents()
            self._starter.make_ready(kernel, order)
        except CreateFailed as failure:
            event = reports.create_failed(kernel, failure)
            self._end(kernel, Status.CREATE_FAILED)
            return event
        kernel.status = Status.CREATED
        return reports.created(kernel)

    def _write_intents(self) -> None:
        """
        Raises:
            CreateFailed: the journal cannot be written.
        """
        if not self._journal.write_intents():
            raise CreateFailed(CreateFailure.DISK_FULL, "the journal cannot be written")

    def _begin(self, kernel: OwnKernel, events: list[Event]) -> OwnKernel | None:
        """Start a kernel, or if its command cannot run, the next of its shape; returns the kernel
        that runs."""
        while True:
            if kernel.status is Status.STANDBY:
                kernel.status = Status.STARTING
                self._starter.launch_now(kernel)
            if kernel.status in (Status.STARTING, Status.STOPPING):  # its user's process has it
                return None
            assert kernel.order is not None
            try:
                self._write_intents()
                runs = self._starter.start(kernel, kernel.order)
            except CreateFailed as failure:
                # The kernel keeps its devices: the same order may come again.
                events.append(reports.create_failed(kernel, failure))
                self._end(kernel, Status.CREATE_FAILED)
                return None
            except CannotExecute as failure:
                events.append(reports.cannot_execute(kernel, failure))
                self._end(kernel)
            else:
                if not runs:
                    kernel.status = Status.STARTING
                    return None
                events.append(reports.started(kernel))
                kernel.status = Status.RUNNING
                self._reaper.add(kernel)
                self._limiter.spawned(kernel)
                return kernel
            heir = self._appoint_heir(kernel, events[-1])
            if heir is None:
                return None
            kernel = heir

    def _appoint_heir(self, kernel: OwnKernel, event: Event) -> OwnKernel | None:
        """The heir of a kernel that has ended, if any; after the lease one that was spawned."""
        if kernel.heir is None and clock.now_s() >= self.lease_end_s:
            return None
        return self._backlog.appoint_heir(kernel, event)

    # Ends.

    def _finish(self, kernel: OwnKernel) -> None:
        """Report a kernel, all processes of which are gone, and start its heir on its devices."""
        event = reports.ended(kernel, kernel.slot.oom_kills() if kernel.slot is not None else 0)
        self._starter.add_result(kernel, event)
        self._end(kernel)
        events = [event]
        heir = self._appoint_heir(kernel, event)
        running = self._begin(heir, events) if heir is not None else None
        # Only now, because devices are idle until the heir runs, and nothing waits for this.
        if dropped_bytes := self._starter.clean_up(kernel):
            event["output_dropped_bytes"] = dropped_bytes
        self._record(events, running)

    def _end(self, kernel: OwnKernel, status: Status = Status.ENDED) -> None:
        kernel.status, kernel.order = status, None
        self.live.pop(kernel.key, None)
        newer = kernel.successor
        if newer is not None and newer.status is Status.QUEUED and newer.order is not None:
            newer.waits_for = None
            self._enqueue(newer, newer.order)

    def _record(self, events: list[Event], running: OwnKernel | None = None) -> None:
        if not events:  # another process is to spawn the kernel
            return
        self._journal.record(events, running)
        self._known.note_finals(events)

    def _withdraw(self, kernel: OwnKernel, detail: str) -> None:
        """End a kernel of which no process has run or will."""
        self._backlog.remove(kernel)
        self._starter.clean_up(kernel)
        event = reports.ended_without_run(kernel, EndReason.NEVER_STARTED, detail)
        self._end(kernel)
        self._record([event])
