"""A message that no agent may send closes the stream of its sender, and no other."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any

import grpc
import pytest
from grpc import aio
from tests.wire.controller import QUICK, TOKEN, controller
from tests.wire.test_gateway import ending, hello, stream_of

from muster.core.health.counters import GpuMeans
from muster.core.health.remedy import Remedy
from muster.core.health.service import MAX_RESULT_BYTES
from muster.core.ids import AgentId, KernelId
from muster.core.reasons.of_files import OutputWasRemoved
from muster.core.resources import MAX_DEVICES, Device, DeviceShare, Resources
from muster.core.serving.port_holders import PortHolder, PortSeen, PortsSeen
from muster.core.serving.probes import ProbeResult
from muster.wire import agent_pb2 as pb
from muster.wire import agent_pb2_grpc, checks, join_gate
from muster.wire.calls import (
    AgentTurnedAway,
    JoinRequest,
)
from muster.wire.client import ControllerChannel, Disconnected
from muster.wire.codec import encode_agent_message
from muster.wire.messages import (
    MAX_DETAIL,
    PROTOCOL,
    FilesRemoved,
    HealthSeen,
    Heartbeat,
    HeldKernel,
    HeldStatus,
    Hello,
    KernelReport,
    MalformedMessage,
    ProbesSeen,
    ReportKind,
    Reports,
    Sighting,
)
from muster.wire.transport import LOG_WINDOW_BYTES

GOOD = hello("agt-1")
LONG = "x" * 300
REPORT = KernelReport(KernelId("krn-1"), 1, ReportKind.ENDED, 1.0)

HELLOS: dict[str, dict[str, Any]] = {
    "later version": {"protocol": PROTOCOL + 1},
    "version that sends what is long in one message": {"protocol": 2},
    "no version": {"protocol": 0},
    "long name": {"name": LONG},
    "name with a control character": {"name": "a\x1b[2J"},
    "empty group": {"group": ""},
    "long boot id": {"boot_id": LONG},
    "NUL in a host": {"host": "a\0b"},
    "negative capacity": {"capacity": Resources(cpu_milli=-1)},
    "huge capacity": {"capacity": Resources(memory_bytes=2**63 - 1)},
    "negative extra": {"capacity": Resources(extra=(("a", -1),))},
    "wrong extra": {"capacity": Resources(extra=(("A b", 1),))},
    "empty extra": {"capacity": Resources(extra=(("", 1),))},
    "many extras": {"capacity": Resources(extra=tuple((f"a{n}", 1) for n in range(33)))},
    "far device": {"devices": (Device(MAX_DEVICES, "H100"),)},
    "negative device": {"devices": (Device(-1, "H100"),)},
    "device twice": {"devices": (Device(0, "H100"), Device(0, "H100"))},
    "long model": {"devices": (Device(0, LONG),)},
    "negative memory": {"devices": (Device(0, "H100", memory_bytes=-1),)},
    "many attributes": {"attributes": {f"a{n}": "x" for n in range(129)}},
    "long attribute": {"attributes": {LONG: "x"}},
    "long value": {"attributes": {"a": LONG}},
    "long kernel": {"kernels": (HeldKernel(KernelId(LONG), 1, HeldStatus.RUNNING),)},
    "negative generation": {"kernels": (HeldKernel(KernelId("k"), -1, HeldStatus.RUNNING),)},
}
REPORTS: dict[str, Reports] = {
    "negative number": Reports(-1, (REPORT,)),
    "many": Reports(1, (REPORT,) * (checks.MAX_REPORTS + 1)),
    "long kernel": Reports(1, (replace(REPORT, kernel=KernelId(LONG)),)),
    "negative generation": Reports(1, (replace(REPORT, generation=-1),)),
    "no time": Reports(1, (replace(REPORT, at=float("nan")),)),
    "time without end": Reports(1, (replace(REPORT, at=float("inf")),)),
    "port": Reports(1, (replace(REPORT, ports=(2**20,)),)),
    "many ports": Reports(1, (replace(REPORT, ports=(1,) * 65),)),
    "share": Reports(1, (replace(REPORT, shares=(DeviceShare(0, -5),)),)),
    "far share": Reports(1, (replace(REPORT, shares=(DeviceShare(2**30, 5),)),)),
}


SIGHTING = Sighting(1, Remedy.RESET, "Xid 95", (0,), True, "boot-1", 1.0)
SIGHTINGS: dict[str, tuple[Sighting, ...]] = {
    "no number": (replace(SIGHTING, seq=0),),
    "negative number": (replace(SIGHTING, seq=-1),),
    "huge number": (replace(SIGHTING, seq=2**63 - 1),),
    "the same number twice": (SIGHTING, SIGHTING),
    "many": tuple(replace(SIGHTING, seq=1 + n) for n in range(checks.MAX_SIGHTINGS + 1)),
    "long sentence": (replace(SIGHTING, what="x" * 301),),
    "NUL in a sentence": (replace(SIGHTING, what="a\0b"),),
    "long boot id": (replace(SIGHTING, boot_id=LONG),),
    "no time": (replace(SIGHTING, at=float("nan")),),
    "far device": (replace(SIGHTING, devices=(MAX_DEVICES,)),),
    "negative device": (replace(SIGHTING, devices=(-1,)),),
    "many devices": (replace(SIGHTING, devices=(0,) * (MAX_DEVICES + 1)),),
}


@pytest.mark.parametrize("wrong", HELLOS)
def test_wrong_hello_is_refused_with_a_sentence(wrong: str) -> None:
    checks.check_hello(GOOD)
    with pytest.raises(MalformedMessage) as refused:
        checks.check_hello(replace(GOOD, **HELLOS[wrong]))
    assert 10 < len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("many", "told"),
    [
        (
            {"devices": tuple(Device(n, "H100") for n in range(130))},
            "130 devices: expected at most 128",
        ),
        (HELLOS["many extras"], "33 extra resources: expected at most 32"),
        (HELLOS["many attributes"], "129 attributes: expected at most 128"),
    ],
)
def test_hello_with_too_much_is_refused_with_the_count_and_the_limit(
    many: dict[str, Any], told: str
) -> None:
    with pytest.raises(MalformedMessage, match=f"it said {told}"):
        checks.check_hello(replace(GOOD, **many))


PROBED = ProbeResult("dep-1/rte-1", 3, True, 7, 0.5, "HTTP 200", 4.0)
PROBES = {
    "long name": (replace(PROBED, route="r" * 300),),
    "negative generation": (replace(PROBED, generation=-1),),
    "no streak": (replace(PROBED, streak=0),),
    "future": (replace(PROBED, age_s=-1.0),),
    "no age": (replace(PROBED, age_s=float("nan")),),
    "no number": (replace(PROBED, value=float("nan")),),
    "endless number": (replace(PROBED, value=float("inf")),),
    "escapes": (replace(PROBED, detail="\x1b[2J"),),
    "many": (PROBED,) * 1001,
}


@pytest.mark.parametrize("wrong", PROBES)
def test_wrong_probe_is_refused_with_a_sentence(wrong: str) -> None:
    checks.check_probes(ProbesSeen((PROBED, replace(PROBED, value=None))))
    with pytest.raises(MalformedMessage) as refused:
        checks.check_probes(ProbesSeen(PROBES[wrong]))
    assert 10 < len(str(refused.value)) < 400


SEEN = PortSeen("dep-1/rte-1", KernelId("krn-1"), 0, PortHolder.REPLICA)
PORTS = {
    "long name": (replace(SEEN, route="r" * 300),),
    "long kernel": (replace(SEEN, kernel=KernelId("k" * 300)),),
    "negative generation": (replace(SEEN, generation=-1),),
    "many": (SEEN,) * 1001,
}


@pytest.mark.parametrize("wrong", PORTS)
def test_wrong_port_is_refused_with_a_sentence(wrong: str) -> None:
    checks.check_ports(PortsSeen((SEEN,)))
    with pytest.raises(MalformedMessage) as refused:
        checks.check_ports(PortsSeen(PORTS[wrong]))
    assert 10 < len(str(refused.value)) < 400


REMOVED = pb.FileRemoval(kernel="krn-1", why=pb.OutputRemoved(reason="OUTPUT_TOO_OLD"))
REMOVALS = {
    "long kernel": [pb.FileRemoval(kernel="k" * 300)],
    "negative generation": [pb.FileRemoval(kernel="krn-1", generation=-1)],
    "long numbers": [pb.FileRemoval(why=pb.OutputRemoved(numbers="9" * 5000))],
    "many": [REMOVED] * 201,
}


@pytest.mark.parametrize("wrong", REMOVALS)
def test_wrong_removal_is_refused_with_a_sentence(wrong: str) -> None:
    checks.heard(pb.AgentMessage(files_removed=pb.FilesRemoved(removals=[REMOVED])))
    with pytest.raises(MalformedMessage) as refused:
        checks.heard(pb.AgentMessage(files_removed=pb.FilesRemoved(removals=REMOVALS[wrong])))
    assert 10 < len(str(refused.value)) < 400


def test_reason_of_a_removal_that_is_none_becomes_one_without_numbers() -> None:
    for told, numbers in (
        ("DISK_FULL", "{}"),
        ("NO_CODE", "{}"),
        ("OUTPUT_TOO_OLD", "[]"),
        ("OUTPUT_TOO_OLD", '{"kept_s": Infinity}'),
    ):
        removed = pb.FileRemoval(kernel="k", why=pb.OutputRemoved(reason=told, numbers=numbers))
        heard = checks.heard(pb.AgentMessage(files_removed=pb.FilesRemoved(removals=[removed])))
        assert isinstance(heard, FilesRemoved)
        assert [each.why for each in heard.removals] == [OutputWasRemoved()]


def test_holder_that_is_none_is_refused() -> None:
    seen = pb.PortsSeen(ports=[pb.PortSeen(route="r", kernel="k", holder="mallory")])
    with pytest.raises(MalformedMessage, match="a holder of a port"):
        checks.heard(pb.AgentMessage(ports_seen=seen))


@pytest.mark.parametrize("wrong", REPORTS)
def test_wrong_report_is_refused_with_a_sentence(wrong: str) -> None:
    checks.check_reports(Reports(1, (REPORT,)))
    with pytest.raises(MalformedMessage) as refused:
        checks.check_reports(REPORTS[wrong])
    assert 10 < len(str(refused.value)) < 400


@pytest.mark.parametrize("wrong", SIGHTINGS)
def test_wrong_sighting_is_refused_with_a_sentence(wrong: str) -> None:
    checks.check_sightings(HealthSeen((SIGHTING, replace(SIGHTING, seq=2, devices=()))))
    with pytest.raises(MalformedMessage) as refused:
        checks.check_sightings(HealthSeen(SIGHTINGS[wrong]))
    assert 10 < len(str(refused.value)) < 400


def test_counters_of_gpus_are_checked_and_a_heartbeat_may_have_none() -> None:
    told = Heartbeat(1.0, gpus=(GpuMeans(0, 95.0, 1700.0, 600.0), GpuMeans(127, 0.0)))
    assert checks.heard(encode_agent_message(told)) == told
    assert checks.heard(encode_agent_message(Heartbeat(1.0))) == Heartbeat(1.0)
    for wrong in (
        GpuMeans(128),
        GpuMeans(-1),
        GpuMeans(127),
        GpuMeans(1, busy=100.5),
        GpuMeans(1, clock_mhz=-1.0),
        GpuMeans(1, power_w=float("nan")),
        GpuMeans(1, power_w=float("inf")),
    ):
        said = replace(told, gpus=(*told.gpus, wrong))
        with pytest.raises(MalformedMessage, match=r"device|counters"):
            checks.heard(encode_agent_message(said))


def test_older_reader_of_a_heartbeat_skips_the_counters() -> None:
    told = encode_agent_message(Heartbeat(1.0, 2.0, 3.0, (GpuMeans(0, 95.0),))).heartbeat
    numbers = [each.number for each in told.DESCRIPTOR.fields]
    assert numbers == [1, 2, 3, 4], "a field that version 2 did not have: readers pass it over"
    assert (told.sent_s, told.renewed_s, told.time_s) == (1.0, 2.0, 3.0)


def test_remedy_of_a_newer_agent_is_a_check() -> None:
    sighting = pb.Sighting(seq=1, remedy="replace it", what="Xid 999", at=1.0)
    heard = checks.heard(pb.AgentMessage(health_seen=pb.HealthSeen(sightings=[sighting])))
    assert heard == HealthSeen((Sighting(1, Remedy.CHECK, "Xid 999", at=1.0),))


def test_detail_of_an_honest_agent_is_cut_to_what_is_taken() -> None:
    said = Reports(1, (replace(REPORT, detail="no such file: a\udcff\0" + "x" * 10_000),))
    heard = checks.heard(encode_agent_message(said))
    assert isinstance(heard, Reports)
    assert len(heard.reports[0].detail) == MAX_DETAIL


def test_result_of_a_service_is_cut_to_what_is_taken() -> None:
    said = Reports(1, (replace(REPORT, result="{\0" + "x" * 10_000),))
    heard = checks.heard(encode_agent_message(said))
    assert isinstance(heard, Reports)
    assert len(heard.reports[0].result or "") == MAX_RESULT_BYTES


def test_result_that_is_not_cut_is_refused() -> None:
    report = pb.KernelReport(kernel="k", kind="ENDED", result="x" * 10_000)
    message = pb.AgentMessage(reports=pb.Reports(last_seq=1, reports=[report]))
    with pytest.raises(MalformedMessage, match="result"):
        checks.heard(message)


def test_detail_that_is_not_cut_is_refused() -> None:
    report = pb.KernelReport(kernel="k", kind="ENDED", detail="x" * 10_000)
    message = pb.AgentMessage(reports=pb.Reports(last_seq=1, reports=[report]))
    with pytest.raises(MalformedMessage, match="detail"):
        checks.heard(message)


@pytest.mark.parametrize("wrong", ["later version", "far device", "long value"])
async def test_agent_with_a_wrong_hello_is_closed_and_no_other(wrong: str) -> None:
    async with (
        controller() as made,
        stream_of(made, "agt-1") as offender,
        stream_of(made, "agt-2") as other,
    ):
        await other.send(hello("agt-2"))
        await made.until(lambda: made.hellos)
        await offender.send(replace(GOOD, **HELLOS[wrong]))
        assert "invalid_argument" in await ending(offender)
        await other.send(Heartbeat(1.0))
        await made.until(lambda: made.heartbeats)
        assert made.connected == {"agt-2"}
        assert [each.agent for each in made.hellos] == ["agt-2"]


async def test_agent_with_a_wrong_report_is_closed_and_no_other() -> None:
    async with (
        controller() as made,
        stream_of(made, "agt-1") as offender,
        stream_of(made, "agt-2") as other,
    ):
        for stream, name in ((offender, "agt-1"), (other, "agt-2")):
            await stream.send(hello(name))
        await made.until(lambda: len(made.hellos) == 2)
        await offender.send(REPORTS["share"])
        assert "wrong shares" in await ending(offender)
        await other.send(Reports(1, (REPORT,)))
        await made.until(lambda: made.reports)
        assert made.connected == {"agt-2"}


# What strangers may say.


@pytest.mark.parametrize("name", ["", LONG, "a b", "a\x1b", "-a"])
async def test_join_with_a_wrong_name_is_refused(name: str) -> None:
    async with controller() as made, ControllerChannel(made.address) as channel:
        with pytest.raises(AgentTurnedAway, match="expected"):
            await channel.join(JoinRequest(TOKEN, name, "default", "credential"))
        assert not made.joins


async def test_join_that_is_too_long_is_refused_unread() -> None:
    async with controller() as made, ControllerChannel(made.address) as channel:
        with pytest.raises(Disconnected, match="at most 4096 bytes"):
            await channel.join(JoinRequest("x" * 5_000, "a", "default", "credential"))
        assert not made.joins


async def test_compressed_join_is_refused_before_it_is_unpacked() -> None:
    async with controller() as made, aio.insecure_channel(made.address) as channel:
        stub = agent_pb2_grpc.AgentGatewayStub(channel)
        with pytest.raises(aio.AioRpcError) as refused:
            await stub.Join(
                pb.JoinRequest(token="x" * 1_000_000), compression=grpc.Compression.Gzip
            )
        assert refused.value.code() in (
            grpc.StatusCode.UNIMPLEMENTED,
            grpc.StatusCode.INTERNAL,
            grpc.StatusCode.UNKNOWN,
        ), refused.value.details()
        assert not made.joins


async def test_stranger_who_says_nothing_is_ended_in_time_and_holds_one_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(join_gate, "JOIN_TIMEOUT_S", 0.3)
    async with controller() as made, aio.insecure_channel(made.address) as channel:
        silent: aio.StreamUnaryMultiCallable[Any, Any] = channel.stream_unary(
            "/muster.wire.v1.AgentGateway/Join"
        )
        calls = [silent() for _ in range(join_gate.MAX_JOINING + 2)]
        for call in calls:
            await call.wait_for_connection()
        async with ControllerChannel(made.address, keepalive=QUICK) as honest:
            request = JoinRequest(TOKEN, "a", "default", "credential")
            while not made.joins:  # it is of the same address, and waits for its turn as they do
                with suppress(Disconnected):
                    await honest.join(request)
        codes = await asyncio.gather(*(call.code() for call in calls))
        assert set(codes) == {grpc.StatusCode.DEADLINE_EXCEEDED}


@pytest.mark.parametrize(
    "wrong",
    [
        pb.LogReply(request=1, data=b"x" * (LOG_WINDOW_BYTES + 1)),
        pb.LogReply(request=1, short=[pb.ShortOutput(data=b"x" * LOG_WINDOW_BYTES)] * 2),
        pb.LogReply(request=1, offset=-1),
        pb.LogReply(request=1, error="x" * 5_000),
    ],
    ids=["more than was asked for", "more than short", "before its beginning", "long reason"],
)
def test_wrong_reply_about_output_is_refused(wrong: pb.LogReply) -> None:
    checks.check_log_reply(pb.LogReply(request=1, data=b"x", error="gone"))
    checks.check_log_reply(pb.LogReply(request=1, short=[pb.ShortOutput(data=b"x")]))
    with pytest.raises(MalformedMessage):
        checks.check_log_reply(wrong)


def test_agent_id_is_not_any_text() -> None:
    with pytest.raises(MalformedMessage):
        checks.check_hello(replace(GOOD, agent=AgentId(LONG)))


def test_hello_says_the_version_of_the_protocol() -> None:
    assert isinstance(GOOD, Hello)
    assert encode_agent_message(GOOD).hello.protocol == PROTOCOL
