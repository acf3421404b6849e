"""Checks of agents' messages: each message is checked whole before anything is changed.

Agents are authenticated, but may be defective, or controlled by an attacker. A stream with a
message that is not allowed is closed with a sentence; no other stream is affected.
"""

import re
from collections.abc import Mapping, Sequence, Sized
from math import isfinite

from muster.core.health.counters import GpuMeans
from muster.core.health.service import MAX_CHECKS, MAX_RESULT_BYTES
from muster.core.health.verdict import MAX_WHAT
from muster.core.resources import EXTRA_NAME, MAX_DEVICES, Device, Resources
from muster.core.serving.port_holders import PortsSeen
from muster.core.serving.probes import MAX_DETAIL as MAX_PROBE_DETAIL
from muster.core.serving.probes import MAX_OF_AGENT
from muster.core.text import ATTRIBUTE, MAX_NAME, NAME, check_text
from muster.wire import agent_pb2 as pb
from muster.wire.calls import (
    JoinRequest,
)
from muster.wire.codec import decode_agent_message
from muster.wire.messages import (
    MAX_DETAIL,
    PROTOCOL,
    AgentMessage,
    FilesRemoved,
    HealthSeen,
    Heartbeat,
    Hello,
    KernelReport,
    MalformedMessage,
    ProbesSeen,
    Reports,
)
from muster.wire.transport import LOG_WINDOW_BYTES

MAX_REPORTS = 10_000
MAX_HELD = 100_000
"""Kernels in one Hello, including kernels whose end is not acknowledged yet."""
MAX_ATTRIBUTES = 128
MAX_EXTRA = 32
MAX_PORTS = 64
MAX_SIGHTINGS = 32
"""Sightings in one message, at most."""
MAX_REMOVALS = 200
"""Removals of files in one message, at most."""
MAX_ID = 128
_MAX_AMOUNT = 2**62
_MAX_SEQ = 2**62
_MAX_MOMENT_S = 2.0**40

_NAME = re.compile(NAME)
_ATTRIBUTE = re.compile(ATTRIBUTE)


def heard(message: pb.AgentMessage) -> AgentMessage:
    """An agent's message, decoded and checked.

    Raises:
        MalformedMessage: it cannot be decoded, or no agent may say it.
    """
    said = decode_agent_message(message)
    match said:
        case Reports():
            check_reports(said)
        case Hello():
            check_hello(said)
        case Heartbeat():
            _check_moments(said.sent_s, said.renewed_s, said.time_s)
            if said.gpus:
                check_gpu_means(said.gpus)
        case HealthSeen():
            check_sightings(said)
        case ProbesSeen():
            check_probes(said)
        case PortsSeen():
            check_ports(said)
        case FilesRemoved():
            check_removals(message.files_removed)
    return said


def check_join(request: JoinRequest) -> None:
    """
    Raises:
        MalformedMessage: one of its texts is too long, or is no name where a name should be.
    """
    for field, text in (("token", request.token), ("credential", request.credential)):
        _check_text(field, text)
    _check_name("name", request.name)
    _check_name("group", request.group)


def check_hello(hello: Hello) -> None:
    """
    Raises:
        MalformedMessage: it is of another version of the protocol, or one of its names, texts,
            numbers or counts is out of bounds.
    """
    if hello.protocol != PROTOCOL:
        raise MalformedMessage(
            f"the agent speaks version {hello.protocol} of the agent protocol, the controller "
            f"version {PROTOCOL}: install the same release of Muster on both"
        )
    _check_name("name", hello.name)
    _check_name("group", hello.group)
    for field, text in (
        ("agent id", hello.agent),
        ("boot id", hello.boot_id),
        ("version", hello.version),
        ("host", hello.host),
        ("instance", hello.instance),
        ("supervisor", hello.supervisor),
    ):
        _check_text(field, text)
    _check_moments(hello.sent_s, hello.time_s)
    _check_capacity(hello.capacity)
    _check_devices(hello.devices)
    _check_attributes(hello.attributes)
    _at_most(MAX_CHECKS, "health checks", hello.checks)
    for check in hello.checks:
        _check_text("health check", check, MAX_NAME)
    _at_most(MAX_HELD, "kernels", hello.kernels)
    for held in hello.kernels:
        _require(len(held.kernel) <= MAX_ID and held.generation >= 0, "a kernel that is none")


def check_reports(batch: Reports) -> None:
    """
    Raises:
        MalformedMessage: one of its texts, numbers or counts is out of bounds.
    """
    _at_most(MAX_REPORTS, "reports in one message", batch.reports)
    _require(batch.last_seq >= 0, "a number of a report below 0")
    for report in batch.reports:
        # This runs twice for each task, so the common case is one comparison.
        if not (
            len(report.kernel) <= MAX_ID
            and report.generation >= 0
            and 0.0 <= report.at < _MAX_MOMENT_S
        ):
            raise MalformedMessage("a report about no kernel, or of no time")
        if report.detail or report.ports or report.shares or report.result:
            _check_facts(report)


def check_sightings(seen: HealthSeen) -> None:
    """
    Raises:
        MalformedMessage: one of its texts, numbers or counts is out of bounds.
    """
    _at_most(MAX_SIGHTINGS, "sightings in one message", seen.sightings)
    before = 0
    for each in seen.sightings:
        _require(before < each.seq < _MAX_SEQ, "a sighting whose number is not after the last one")
        before = each.seq
        _check_text("what it saw", each.what, MAX_WHAT)
        _check_text("boot id of a sighting", each.boot_id)
        _check_moments(each.at)
        _at_most(MAX_DEVICES, "devices in one sighting", each.devices)
        of_machine = all(0 <= index < MAX_DEVICES for index in each.devices)
        _require(of_machine, f"a device whose index is not below {MAX_DEVICES}")


def check_probes(seen: ProbesSeen) -> None:
    """
    Raises:
        MalformedMessage: one of its texts, numbers or counts is out of bounds.
    """
    _at_most(MAX_OF_AGENT, "results of probes in one message", seen.results)
    for each in seen.results:
        is_one = len(each.route) <= 2 * MAX_ID and each.generation >= 0 and each.streak > 0
        _require(is_one and 0.0 <= each.age_s < _MAX_MOMENT_S, "a result of no probe")
        is_number = each.value is None or isfinite(each.value)
        _require(is_number, "a metric that is no number")
        _require(each.detail.isprintable(), "what a probe found in more than one line")
        _check_text("what a probe found", each.detail, MAX_PROBE_DETAIL)


def check_ports(seen: PortsSeen) -> None:
    """
    Raises:
        MalformedMessage: one of its texts, numbers or counts is out of bounds.
    """
    _at_most(MAX_OF_AGENT, "ports in one message", seen.ports)
    for each in seen.ports:
        is_route = len(each.route) <= 2 * MAX_ID
        is_kernel = len(each.kernel) <= MAX_ID and each.generation >= 0
        _require(is_route and is_kernel, "a port of no replica")


def check_removals(removed: pb.FilesRemoved) -> None:
    """
    Raises:
        MalformedMessage: one of its texts, numbers or counts is out of bounds.
    """
    _at_most(MAX_REMOVALS, "removals in one message", removed.removals)
    for each in removed.removals:
        is_kernel = len(each.kernel) <= MAX_ID and each.generation >= 0
        _require(is_kernel, "a removal of what no kernel left")
        _check_why_removed(each.why)


def check_gpu_means(gpus: Sequence[GpuMeans]) -> None:
    """
    Raises:
        MalformedMessage: a device is none of a machine's, or is there twice, or has a value that
            no GPU has.
    """
    seen = {each.device for each in gpus}
    _require(len(seen) == len(gpus), "counters of a device that is there twice")
    of_machine = all(0 <= index < MAX_DEVICES for index in seen)
    _require(of_machine, f"a device whose index is not below {MAX_DEVICES}")
    _require(all(each.is_plausible for each in gpus), "counters that no GPU has")


def _check_moments(*moments_s: float) -> None:
    _require(all(0.0 <= moment_s < _MAX_MOMENT_S for moment_s in moments_s), "a moment of no time")


def check_log_reply(reply: pb.LogReply) -> None:
    """
    Raises:
        MalformedMessage: it has more bytes than were asked for, or an impossible offset.
    """
    _require(len(reply.data) <= LOG_WINDOW_BYTES, "more of an output than it was asked for")
    short_bytes = sum(len(each.data) for each in reply.short)
    _require(short_bytes <= LOG_WINDOW_BYTES, "more of short outputs than it was asked for")
    _require(reply.offset >= 0, "output from before its beginning")
    _check_text("reason why an output cannot be read", reply.error, MAX_DETAIL)
    _check_why_removed(reply.removed)


def _check_why_removed(why: pb.OutputRemoved) -> None:
    _check_text("reason why an output was removed", why.reason, MAX_DETAIL)
    _check_text("numbers of a removed output", why.numbers, MAX_DETAIL)


def _check_facts(report: KernelReport) -> None:
    _check_text("detail of a report", report.detail, MAX_DETAIL)
    _check_text("result of a service", report.result or "", MAX_RESULT_BYTES)
    ports, shares = report.ports, report.shares
    _require(len(ports) <= MAX_PORTS and all(0 < port < 2**16 for port in ports), "wrong ports")
    _require(
        len(shares) <= MAX_DEVICES
        and all(0 <= each.index < MAX_DEVICES and 0 < each.milli <= 1000 for each in shares),
        "wrong shares of devices",
    )


def _check_capacity(capacity: Resources) -> None:
    named = (
        capacity.cpu_milli,
        capacity.memory_bytes,
        capacity.disk_bytes,
        capacity.gpu_milli,
        *(amount for _, amount in capacity.extra),
    )
    _require(all(0 <= amount < _MAX_AMOUNT for amount in named), "a capacity that is no amount")
    _at_most(MAX_EXTRA, "extra resources", capacity.extra)
    for name, _ in capacity.extra:
        is_name = EXTRA_NAME.fullmatch(name) is not None
        _require(is_name, f"{name[:80]!r} as the name of an extra resource")


def _check_devices(devices: Sequence[Device]) -> None:
    _at_most(MAX_DEVICES, "devices", devices)
    seen: set[int] = set()
    for device in devices:
        _require(
            0 <= device.index < MAX_DEVICES and device.index not in seen,
            f"a device whose index is not one of its own below {MAX_DEVICES}",
        )
        seen.add(device.index)
        _require(0 <= device.memory_bytes < _MAX_AMOUNT, "memory of a device that is no amount")
        _check_text("model of a device", device.model)
        _check_text("uuid of a device", device.uuid)


def _check_attributes(attributes: Mapping[str, str]) -> None:
    _at_most(MAX_ATTRIBUTES, "attributes", attributes)
    for name, value in attributes.items():
        _require(_ATTRIBUTE.fullmatch(name[:MAX_NAME]) is not None, "a wrong name of an attribute")
        _check_text(f"attribute {name}", value)


def _check_name(field: str, name: str) -> None:
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise MalformedMessage(
            f"the {field} {name[:80]!r}: expected 1 to 63 letters, digits, dots, dashes or "
            f"underscores, a letter or digit at both ends"
        )


def _check_text(field: str, text: str, limit: int = MAX_NAME) -> None:
    try:
        check_text(text, limit)
    except ValueError as wrong:
        raise MalformedMessage(f"the {field}: {wrong}") from None


def _at_most(limit: int, what: str, said: Sized) -> None:
    _require(len(said) <= limit, f"{len(said):,} {what}: expected at most {limit:,}")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise MalformedMessage(f"it said {otherwise}")
