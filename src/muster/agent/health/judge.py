"""The judge of what a machine tells of its GPUs unasked (design: Machine health).

It makes sightings of Xids and of reports on GPUs, does no input or output of its own, and has time
handed in. What follows an Xid is decided by ``core.health.xid``; what merely concerns an
application is a note. An Xid of the kernel's log that calls for more than a check counts once NVML
confirms it: by an event of its own, or by a fault of the same GPU. Until then the GPU is checked.
"""

import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from muster.agent.health.gpu_watch import GpuReport
from muster.agent.health.memory import MAX_GPUS, MAX_STANDING, WatchMemory
from muster.agent.health.places import DevicePlaces
from muster.agent.health.sightings import SightingBox
from muster.core.health.kernel_log import ErrorKind, XidEvent
from muster.core.health.remedy import Remedy
from muster.core.health.verdict import Finding, Severity
from muster.core.health.xid import (
    BURST_S,
    XidDecision,
    action_in,
    decide,
    described,
    remembered,
)
from muster.core.health.xid_catalogue import OF_ACTION, XidAction
from muster.core.resources import Device
from muster.core.text import count

log = logging.getLogger(__name__)

GRACE_S = 120.0
"""Seconds from the boot on in which drivers come up: what only calls for a closer look is not told
then, and findings are told only if they still hold afterwards."""
AGAIN_S = 3600.0
"""Seconds for which the same finding on the same GPU is not told again."""
MISHAP_S = 600.0
"""Seconds for which an Xid that comes again and again, with no pause of ``BURST_S``, is one mishap.
Whatever was tried meanwhile has not helped if it comes after that."""
MAX_MISHAPS = 256
TOLD_S = 120.0
"""Seconds for which an Xid may be why a program failed."""
MAX_NAMED = 3
MAX_EVENTS = 256
"""Events of NVML, and Xids that wait for one, that are remembered, at most."""
_CONFIRMED = frozenset({XidAction.RESET, XidAction.REBOOT, XidAction.OPERATOR})
_Mishap = tuple[str, int, XidAction | None]
"""An address, the Xid's number, and the action that an Xid 154 names."""
_Event = tuple[int, int]
"""The index of a GPU, and the number of an Xid."""
_SWITCHES = "NVSwitch"
"""The place of the errors of all switches, which are judged together: one link has two ends."""
_RECOVERY = "recovery action"
_DRIVER, _SILENT = "driver", "silent"


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment: in seconds since the boot, and since the epoch."""

    boot_s: float
    time_s: float


@dataclass(frozen=True, slots=True)
class _Unconfirmed:
    """An Xid that calls for more than a check, for which NVML has not spoken yet."""

    at_s: float
    remedy: Remedy
    why: str
    address: str


class HealthJudge:
    """
    Args:
        memory: as it was loaded; it has entered the boot.
        box: gets the sightings.
        boot: the id of the present boot.
        devices: the GPUs that the agent has.
    """

    def __init__(
        self, memory: WatchMemory, box: SightingBox, boot: str, devices: Sequence[Device]
    ) -> None:
        self._memory = memory
        self._box = box
        self._boot = boot
        self._places = DevicePlaces(devices, memory)
        self._named: Mapping[int, XidAction] = {}  # by NVML, for GPUs by their indexes
        self._seen: frozenset[str] = frozenset()  # the findings of the last report
        self._faulty: frozenset[int] = frozenset()  # GPUs of which the last report had a fault
        self._events: dict[_Event, float] = {}  # of NVML, each with its time
        self._unconfirmed: dict[_Event, _Unconfirmed] = {}
        self._mishaps: dict[_Mishap, tuple[float, float]] = {}  # their first and last Xids

    @property
    def knows_addresses(self) -> bool:
        """Whether it is known which GPU has which address."""
        return bool(self._memory.gpus)

    # Xids

    def xids(self, events: Iterable[XidEvent], now: Moment) -> None:
        """Judge the Xids of a few seconds together, for what is a clean-up is known by what it
        follows. Their times are in seconds since the boot."""
        by_address: dict[str, list[XidEvent]] = {}
        for each in events:
            at_s = self._memory.began_s + each.at_s
            place = _SWITCHES if each.kind is ErrorKind.SXID else each.address
            by_address.setdefault(place, []).append(replace(each, at_s=at_s))
        for address, of_gpu in list(by_address.items())[:MAX_GPUS]:
            if address == _SWITCHES or self._places.is_ours(address):
                self._judge(address, of_gpu, now)
            else:
                log.info("Xid %d of a GPU that is not the agent's: %s", of_gpu[0].number, address)

    def xid_of(self, device: int, number: int, now: Moment) -> XidEvent | None:
        """The Xid that NVML told of a GPU, in the form of one of the kernel's log."""
        address = self._places.of(device)
        return None if address is None else XidEvent(address, number, "", now.boot_s)

    def nvml_events(self, events: Iterable[_Event], now: Moment) -> None:
        """Take note of the Xids that NVML itself reports, by GPU and number. Those that the log
        reported before are confirmed by that."""
        at_s = self._clock_s(now)
        for event in events:
            self._events.pop(event, None)
            self._events[event] = at_s
            waiting = self._unconfirmed.pop(event, None)
            if waiting is not None and at_s - waiting.at_s <= BURST_S:
                devices = self._places.at(waiting.address) or _only(event[0])
                self._sight(waiting.remedy, waiting.why, devices, True, now)
        _keep_newest(self._events, MAX_EVENTS)

    def errors_of(self, gpus: Collection[int], collected: Iterable[XidEvent], now: Moment) -> str:
        """The errors of these GPUs in the last two minutes, in words, and those of switches which
        are fatal; empty if there are none.

        Args:
            collected: those that are not judged yet, with times since the boot.
        """
        began_s = self._memory.began_s
        events = [replace(each, at_s=began_s + each.at_s) for each in collected]
        events += [each for kept in self._memory.xids.values() for each in kept]
        named: dict[str, None] = {}
        for event in sorted(events, key=lambda each: each.at_s):
            if self._clock_s(now) - event.at_s > TOLD_S:
                continue
            held = [index for index in self._places.at(event.address) if index in gpus]
            if held:
                index = held[0]
                number, _, what = described(event).partition(", ")
                named[f"{number} on GPU {index}{f', {what}' if what else ''}"] = None
            elif event.fatal and gpus:
                named[described(event)] = None
        return "; ".join([*named][-MAX_NAMED:])

    def _judge(self, address: str, events: Sequence[XidEvent], now: Moment) -> None:
        recent = self._memory.xids.pop(address, ())
        fresh: list[XidEvent] = []
        for event in events:
            if self._goes_on(event) or any(_repeats(event, each) for each in recent):
                continue
            fresh.append(event)
            recent = remembered(recent, event)
        self._memory.xids[address] = recent  # as the newest
        devices = self._places.at(address)
        index = devices[0] if devices else None
        named = None if index is None else self._named.get(index)
        grave: list[tuple[Remedy, bool, str]] = []
        for event in fresh:
            decision = decide(event, recent, named)
            near = [each for each in recent if abs(each.at_s - event.at_s) <= BURST_S]
            told = self._told(event, index, decision, decide(event, near, named), now)
            if told is not None:
                grave.append(told)
        if grave:
            remedy, confirmed, what = max(grave, key=lambda each: (_rank(each[0]), each[1]))
            if len(grave) > 1:
                noun = "more SXid" if address == _SWITCHES else "more Xid"
                what = f"{what}; and {count(len(grave) - 1, noun)}"
            self._sight(remedy, what, devices, confirmed, now)

    def _told(
        self,
        event: XidEvent,
        index: int | None,
        decision: XidDecision,
        alone: XidDecision,
        now: Moment,
    ) -> tuple[Remedy, bool, str] | None:
        """The words to be told of an Xid, and whether the driver itself names a fault; ``alone`` is
        the decision without what came earlier than its mishap."""
        remedy = OF_ACTION.get(decision.action)
        where = _place(event, index)
        at_s = event.at_s - self._memory.began_s
        if remedy is None:
            log.info("%s: %s; %s", where, decision.why, event.detail)
            return None
        if remedy is Remedy.CHECK and at_s < GRACE_S:
            log.info("%s: %s; nothing follows, because its driver starts", where, decision.why)
            return None
        log.warning("%s: %s", where, decision.why)
        if decision.action not in _CONFIRMED:
            return remedy, False, decision.why
        if index is not None and self._is_confirmed(event, index):
            return remedy, alone.action in _CONFIRMED, decision.why
        if index is not None:
            self._unconfirmed[index, event.number] = _Unconfirmed(
                event.at_s, remedy, decision.why, event.address
            )
            _keep_newest(self._unconfirmed, MAX_EVENTS)
        return Remedy.CHECK, False, f"{decision.why}; NVML has not confirmed it"

    def _is_confirmed(self, event: XidEvent, index: int) -> bool:
        """Whether NVML reports the same Xid, or a fault of the same GPU."""
        if index in self._faulty:
            return True
        told_s = self._events.get((index, event.number))
        return told_s is not None and abs(told_s - event.at_s) <= BURST_S

    def _goes_on(self, event: XidEvent) -> bool:
        """Whether a mishap goes on with this Xid, which was told with its first one."""
        mishap = (event.address, event.number, action_in(event))
        first_s, last_s = self._mishaps.pop(mishap, (event.at_s, -math.inf))
        goes_on = event.at_s - last_s <= BURST_S and event.at_s - first_s <= MISHAP_S
        self._mishaps[mishap] = (first_s if goes_on else event.at_s, event.at_s)
        _keep_newest(self._mishaps, MAX_MISHAPS)
        return goes_on

    # What NVML tells

    def gpus(self, report: GpuReport, now: Moment) -> None:
        """Judge a look at the GPUs. What it finds is told once the next one finds it too."""
        self._named = {
            each.device: XidAction(each.remedy.value)
            for each in report.findings
            if each.device is not None and each.test == _RECOVERY
        }
        self._faulty = frozenset(
            each.device
            for each in report.findings
            if each.device is not None and each.severity is Severity.FAULT
        )
        if report.addresses:
            self._memory.gpus |= report.addresses
            self._places.partitions = report.partitions
        if now.boot_s < GRACE_S:
            return
        found = {_key(each): each for each in report.findings[:MAX_STANDING]}
        if report.error:
            what = "the NVIDIA driver does not answer"
            found[_DRIVER] = Finding("nvml", Severity.UNKNOWN, what, told=report.error)
        self._forget_past({*found, _SILENT}, now)
        for key, finding in found.items():
            if key in self._seen and key not in self._memory.standing:
                self._memory.standing[key] = self._clock_s(now)
                devices = _only(finding.device)
                fault = finding.severity is Severity.FAULT
                remedy = finding.remedy if fault else Remedy.CHECK
                self._sight(remedy, finding.sentence(), devices, fault, now)
        self._seen = frozenset(found)
        if report.addresses:
            self._look_for_missing(report.addresses, now)

    def silent(self, for_s: float, now: Moment) -> None:
        """Take note that nothing was heard of the GPUs for so long: the driver hangs."""
        if _SILENT in self._memory.standing or now.boot_s < GRACE_S:
            return
        self._memory.standing[_SILENT] = self._clock_s(now)
        what = f"the NVIDIA driver has not answered for {for_s:.0f} s"
        self._sight(Remedy.CHECK, what, (), False, now)

    def _forget_past(self, found: set[str], now: Moment) -> None:
        """Forget findings that hold no longer, an hour after they were told."""
        before_s = self._clock_s(now) - AGAIN_S
        self._memory.standing = {
            key: at_s
            for key, at_s in self._memory.standing.items()
            if (key in found and key != _SILENT) or at_s > before_s
        }

    def _look_for_missing(self, there: Mapping[str, str], now: Moment) -> None:
        """Tell of GPUs that were there at an earlier start. One that another boot does not bring
        back is an operator's affair, and is then given up."""
        memory = self._memory
        for uuid in there:
            memory.missing.pop(uuid, None)
        gone = [uuid for uuid in memory.gpus if uuid not in there]
        first = [uuid for uuid in gone if uuid not in memory.missing]
        for_good = [uuid for uuid in gone if memory.missing.get(uuid, self._boot) != self._boot]
        for uuid in first:
            memory.missing[uuid] = self._boot
        for uuid in for_good:
            del memory.gpus[uuid], memory.missing[uuid]
        unknown = [uuid for uuid in first if uuid not in self._places]  # of others findings tell
        total = len(there) + len(gone)
        if unknown:
            what = f"{count(len(unknown), 'GPU')} of {total} missing since the last start"
            self._sight(Remedy.REBOOT, what, (), True, now)
        if for_good:
            what = f"{count(len(for_good), 'GPU')} of {total} missing, which no reboot brought back"
            self._sight(Remedy.OPERATOR, what, (), True, now)

    def _sight(
        self, remedy: Remedy, what: str, devices: tuple[int, ...], confirmed: bool, now: Moment
    ) -> None:
        self._box.add(
            remedy,
            what,
            devices=devices,
            confirmed=confirmed,
            boot_id=self._boot,
            at=max(now.time_s, 0.0),
        )

    def _clock_s(self, now: Moment) -> float:
        return self._memory.began_s + now.boot_s


def _place(event: XidEvent, index: int | None) -> str:
    if event.switch is not None:
        return f"NVSwitch {event.switch}"
    return "an unknown GPU" if index is None else f"GPU {index}"


def _repeats(event: XidEvent, earlier: XidEvent) -> bool:
    """Whether an Xid says what was said before a restart of the agent, too."""
    return (
        (event.address, event.number) == (earlier.address, earlier.number)
        and action_in(event) is action_in(earlier)
        and abs(event.at_s - earlier.at_s) <= BURST_S
    )


def _key(finding: Finding) -> str:
    return f"{finding.device}/{finding.test}"


def _keep_newest(entries: dict[Any, Any], limit: int) -> None:
    """Remove the oldest entries above a limit."""
    while len(entries) > limit:
        del entries[next(iter(entries))]


def _only(index: int | None) -> tuple[int, ...]:
    return () if index is None else (index,)


def _rank(remedy: Remedy) -> int:
    return list(Remedy).index(remedy)
