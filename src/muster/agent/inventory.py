"""The inventory of this agent's kernels, kept from the events of its supervisor."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from muster.core.ids import KernelId
from muster.core.reasons import ReasonCode
from muster.core.resources import GPU_WHOLE, DeviceShare
from muster.wire.messages import HeldStatus, KernelKey, KernelReport, ReportKind, Start

if TYPE_CHECKING:
    from muster.agent.supervisor.kernel import Event
    from muster.agent.supervisor_link import KernelState

MAX_DETAIL_CHARS = 1000

_STATUSES = {
    "queued": HeldStatus.QUEUED,
    "starting": HeldStatus.QUEUED,
    "created": HeldStatus.CREATED,
    "running": HeldStatus.RUNNING,
    "stopping": HeldStatus.RUNNING,
    "ended": HeldStatus.ENDED,
    "create_failed": HeldStatus.CREATE_FAILED,
}

_LIVE = frozenset({HeldStatus.QUEUED, HeldStatus.CREATED, HeldStatus.RUNNING})

_KINDS = {
    "created": (ReportKind.CREATED, HeldStatus.CREATED),
    "started": (ReportKind.STARTED, HeldStatus.RUNNING),
    "ended": (ReportKind.ENDED, HeldStatus.ENDED),
    "create_failed": (ReportKind.CREATE_FAILED, HeldStatus.CREATE_FAILED),
}

_LOST = "supervisor_lost"

_REASONS = {
    "exited": ReasonCode.EXITED,
    "signaled": ReasonCode.SIGNALED,
    "out_of_memory": ReasonCode.OUT_OF_MEMORY,
    "command_not_found": ReasonCode.COMMAND_NOT_FOUND,
    "command_not_executable": ReasonCode.COMMAND_NOT_EXECUTABLE,
    "stopped": ReasonCode.STOPPED,
    "lease_expired": ReasonCode.LEASE_EXPIRED,
    "disk_limit": ReasonCode.DISK_LIMIT,
    "never_started": ReasonCode.NEVER_STARTED,
    _LOST: ReasonCode.SUPERVISOR_LOST,
    "unknown_kernel": ReasonCode.KERNEL_VANISHED,
    "workdir_missing": ReasonCode.WORKDIR_MISSING,
    "bad_file_path": ReasonCode.BAD_FILE_PATH,
    "disk_full": ReasonCode.DISK_FULL,
    "no_account": ReasonCode.NO_ACCOUNT,
    "no_processes": ReasonCode.NO_PROCESSES,
    "internal": ReasonCode.CREATE_FAILED,
}


class KernelInventory:
    """Every kernel that the supervisor has accepted, until its end is acknowledged.

    Args:
        device_names: the names by which the supervisor is told of devices, by their indexes; of the
            others it is told the indexes.
    """

    def __init__(self, device_names: Mapping[int, str]) -> None:
        self._index_of = {name: index for index, name in device_names.items()}
        self._statuses: dict[KernelKey, HeldStatus] = {}
        self._mains: dict[KernelKey, int] = {}  # processes

    def __iter__(self) -> Iterator[tuple[KernelKey, HeldStatus]]:
        return iter(self._statuses.items())

    def __contains__(self, key: KernelKey) -> bool:
        return key in self._statuses

    def is_live(self, key: KernelKey) -> bool:
        """Whether the kernel may still write output."""
        return self._statuses.get(key) in _LIVE

    def main_process(self, key: KernelKey) -> int | None:
        """The process id of a kernel's main process; None unless it runs."""
        return self._mains.get(key)

    def reset(self, kernels: Iterable["KernelState"]) -> None:
        """Begin with the kernels of a supervisor; its unacknowledged events follow."""
        kernels = list(kernels)
        self._statuses = {
            (KernelId(kernel["id"]), kernel["generation"]): HeldStatus.LOST
            if kernel.get("lost")
            else _STATUSES[kernel["status"]]
            for kernel in kernels
        }
        self._mains = {
            (KernelId(kernel["id"]), kernel["generation"]): kernel["pid"]
            for kernel in kernels
            if "pid" in kernel and _STATUSES[kernel["status"]] in _LIVE
        }

    def ordered(self, start: Start) -> None:
        """Add a kernel that the supervisor is told to start. If the inventory lacked it, the
        controller would take it for lost and start it elsewhere."""
        key = (start.kernel, start.generation)
        if self._statuses.get(key) not in (HeldStatus.RUNNING, HeldStatus.CREATED):
            self._statuses[key] = HeldStatus.QUEUED

    def refused(self, start: Start) -> None:
        """Take back ``ordered``: the supervisor cannot be told."""
        self._statuses.pop((start.kernel, start.generation), None)

    def apply(self, event: "Event") -> KernelReport:
        """Note an event of the supervisor; the answer is the report for the controller."""
        kind, status = _KINDS[event["kind"]]
        kernel, generation = KernelId(event["kernel"]), event["generation"]
        reason, heir, predecessor = event.get("reason"), event.get("heir"), event.get("predecessor")
        self._statuses[kernel, generation] = HeldStatus.LOST if reason == _LOST else status
        if status is HeldStatus.RUNNING and "pid" in event:
            self._mains[kernel, generation] = event["pid"]
        elif status not in _LIVE:
            self._mains.pop((kernel, generation), None)
        # Positional, with little work for absent fields: this runs twice for each kernel.
        return KernelReport(
            kernel,
            generation,
            kind,
            event["at"],
            event.get("exit_code"),
            event.get("signal"),
            _REASONS[reason] if reason else None,
            _detail(event) if "detail" in event or "output_dropped_bytes" in event else "",
            (),
            self._shares(event) if "devices" in event else (),
            (KernelId(heir[0]), heir[1]) if heir else None,
            (KernelId(predecessor[0]), predecessor[1]) if predecessor else None,
            event.get("result"),
            event.get("oom_kills", 0),
            event.get("output_dropped_bytes", 0),
        )

    def _shares(self, event: "Event") -> tuple[DeviceShare, ...]:
        """The devices of a kernel. A name that no device has any more is left out: the partition
        that had it was removed while the kernel held it."""
        milli = event.get("device_milli", GPU_WHOLE)
        found = map(self._index, event["devices"])
        return tuple([DeviceShare(index, milli) for index in found if index is not None])

    def _index(self, device: int | str) -> int | None:
        if isinstance(device, int):
            return device
        return int(device) if device.isdigit() else self._index_of.get(device)

    def acknowledged(self, report: KernelReport) -> None:
        """Forget a kernel whose end the controller has heard of, unless it was started again
        meanwhile."""
        key = (report.kernel, report.generation)
        failed = self._statuses.get(key) is HeldStatus.CREATE_FAILED
        if report.kind is ReportKind.ENDED or (report.kind is ReportKind.CREATE_FAILED and failed):
            self._statuses.pop(key, None)


def _detail(event: "Event") -> str:
    detail = event.get("detail", "")[:MAX_DETAIL_CHARS]
    if dropped_bytes := event.get("output_dropped_bytes"):
        detail = f"{detail}; " if detail else ""
        detail += f"{dropped_bytes} bytes of output were lost, the disk was full"
    # File names that are not UTF-8 come as lone surrogates, which protobuf refuses.
    return detail if detail.isascii() else detail.encode(errors="replace").decode()
