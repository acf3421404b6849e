"""Messages arrive as they were meant: exact round trips through protobuf bytes."""

import math
from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.health.counters import GpuMeans
from muster.core.health.remedy import Remedy
from muster.core.health.service import Service, ServiceName
from muster.core.ids import AgentId, KernelId
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_files import OutputTooOld, ScratchTooOld
from muster.core.resources import Device, DeviceShare, Resources
from muster.core.serving.port_holders import (
    PortHolder,
    PortOrder,
    PortOrders,
    PortSeen,
    PortsSeen,
)
from muster.core.serving.probes import ProbeOrder, ProbeResult, ProbeTarget
from muster.core.uids import ClusterUid
from muster.wire import agent_pb2 as pb
from muster.wire import call_codec, codec
from muster.wire.calls import (
    JoinReply,
    JoinRequest,
    LogRequest,
)
from muster.wire.messages import (
    PROTOCOL,
    Acknowledge,
    AgentMessage,
    Command,
    Commands,
    ControllerMessage,
    Disk,
    FileRemoval,
    FilesRemoved,
    HealthNoted,
    HealthSeen,
    Heartbeat,
    HeldKernel,
    HeldStatus,
    Hello,
    KernelReport,
    KernelTemplate,
    MalformedMessage,
    Prepare,
    ProbeOrders,
    ProbesSeen,
    Recall,
    Renew,
    ReportKind,
    Reports,
    Sighting,
    Start,
    Stop,
)
from muster.wire.pieces import encode_in_pieces

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
AMOUNTS = st.integers(0, 2**62)
GENERATIONS = st.integers(0, 2**40)
SECONDS = st.floats(allow_nan=False)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TEXTS = st.dictionaries(TEXT, TEXT, max_size=3)
KERNELS = TEXT.map(KernelId)
SHARES = st.lists(st.builds(DeviceShare, INT32, INT32), max_size=3).map(tuple)
KEYS = st.tuples(KERNELS, GENERATIONS)

RESOURCES = st.builds(
    Resources.with_extra,
    AMOUNTS,
    AMOUNTS,
    AMOUNTS,
    AMOUNTS,
    st.dictionaries(TEXT, AMOUNTS, max_size=3),
)
HELLOS = st.builds(
    Hello,
    agent=TEXT.map(AgentId),
    name=TEXT,
    group=TEXT,
    boot_id=TEXT,
    version=TEXT,
    host=TEXT,
    capacity=RESOURCES,
    devices=st.lists(st.builds(Device, INT32, TEXT, TEXT, AMOUNTS), max_size=3).map(tuple),
    attributes=TEXTS,
    kernels=st.lists(
        st.builds(HeldKernel, KERNELS, GENERATIONS, st.sampled_from(HeldStatus)), max_size=3
    ).map(tuple),
    instance=TEXT,
    sent_s=SECONDS,
    time_s=SECONDS,
    disk_full=st.booleans(),
    checks=st.lists(TEXT, max_size=3).map(tuple),
    probes=st.booleans(),
    health_commands=st.booleans(),
    ports=st.booleans(),
)
PROBE_RESULTS = st.builds(
    ProbeResult,
    TEXT,
    INT64,
    st.booleans(),
    INT64,
    SECONDS,
    TEXT.filter(lambda text: "\0" not in text),
    st.none() | SECONDS,
    st.booleans(),
)
PORTS = st.builds(PortSeen, TEXT, KERNELS, GENERATIONS, st.sampled_from(PortHolder))
KERNEL_REPORTS = st.builds(
    KernelReport,
    kernel=KERNELS,
    generation=GENERATIONS,
    kind=st.sampled_from(ReportKind),
    at=SECONDS,
    exit_code=st.none() | INT32,
    signal=st.none() | INT32,
    reason=st.none() | st.sampled_from(ReasonCode),
    detail=TEXT.filter(lambda text: "\0" not in text),
    ports=st.lists(INT32, max_size=3).map(tuple),
    shares=SHARES,
    heir=st.none() | KEYS,
    predecessor=st.none() | KEYS,
    result=st.none() | TEXT.filter(lambda text: "\0" not in text),
    oom_kills=st.integers(0, 2**40),
    lost_output_bytes=st.integers(0, 2**40),
)
REPORTS = st.builds(Reports, INT64, st.lists(KERNEL_REPORTS, max_size=4).map(tuple))
GPU_MEANS = st.builds(
    GpuMeans, INT32, st.none() | SECONDS, st.none() | SECONDS, st.none() | SECONDS
)
SIGHTINGS = st.builds(
    Sighting,
    seq=INT64,
    remedy=st.sampled_from(Remedy),
    what=TEXT.filter(lambda text: "\0" not in text),
    devices=st.lists(INT32, max_size=3).map(tuple),
    confirmed=st.booleans(),
    boot_id=TEXT,
    at=SECONDS,
)
REMOVALS = st.builds(
    FileRemoval,
    KERNELS,
    GENERATIONS,
    st.sampled_from([OutputTooOld, ScratchTooOld]).flatmap(
        lambda kind: st.builds(kind, at=TEXT, kept_s=st.floats(0, 1e9))
    ),
)
AGENT_MESSAGES: st.SearchStrategy[AgentMessage] = (
    HELLOS
    | REPORTS
    | st.builds(Heartbeat, SECONDS, SECONDS, SECONDS, st.lists(GPU_MEANS, max_size=3).map(tuple))
    | st.builds(Disk, st.booleans())
    | st.builds(HealthSeen, st.lists(SIGHTINGS, max_size=4).map(tuple))
    | st.builds(ProbesSeen, st.lists(PROBE_RESULTS, max_size=4).map(tuple))
    | st.builds(PortsSeen, st.lists(PORTS, max_size=4).map(tuple))
    | st.builds(FilesRemoved, st.lists(REMOVALS, max_size=4).map(tuple))
)

SERVICES = st.builds(
    Service,
    st.sampled_from(ServiceName),
    st.lists(INT32, max_size=3).map(tuple),
    INT32,
    st.lists(TEXT, max_size=3).map(tuple),
    st.lists(TEXT, max_size=3).map(tuple),
    SECONDS,
    TEXT,
)
TEMPLATES = st.builds(
    KernelTemplate,
    command=st.lists(TEXT, max_size=3).map(tuple),
    env=TEXTS,
    workdir=st.none() | TEXT,
    files=TEXTS,
    grace_s=SECONDS,
    cpu_milli=AMOUNTS,
    memory_bytes=AMOUNTS,
    shape=TEXT,
    owner=TEXT,
    disk_bytes=AMOUNTS,
    service=st.none() | SERVICES,
    least_cpu=st.booleans(),
    stderr_apart=st.booleans(),
    uid=st.none() | st.builds(ClusterUid, TEXT, st.none() | st.integers(0, 2**31 - 1)),
)


@st.composite
def commands(draw: st.DrawFn) -> Commands:
    """Commands of all kinds, of which starts share a few templates."""
    templates = draw(st.lists(TEMPLATES, min_size=1, max_size=3))
    starts = st.builds(
        Start, KERNELS, GENERATIONS, st.sampled_from(templates), TEXTS, SHARES, st.booleans()
    )
    others = (
        st.builds(Prepare, KERNELS, GENERATIONS, INT32, st.none() | INT32)
        | st.builds(Stop, KERNELS, GENERATIONS, SECONDS, TEXT)
        | st.builds(Recall, KERNELS, GENERATIONS)
    )
    return Commands(tuple(draw(st.lists(starts | others, max_size=6))))


TARGETS = st.builds(
    ProbeTarget,
    st.just(""),
    INT32,
    SECONDS,
    SECONDS,
    st.binary(max_size=20),
    st.lists(st.tuples(INT32, INT32), max_size=3).map(tuple),
    st.binary(max_size=20),
    TEXT,
    TEXT,
    GENERATIONS,
)
PROBE_ORDERS = st.builds(
    ProbeOrders,
    st.lists(st.builds(ProbeOrder, TEXT, INT64, st.none() | TARGETS), max_size=4).map(tuple),
)
PORT_NUMBERS = st.none() | st.integers(1, 65535)
PORT_ORDERS = st.builds(
    PortOrders,
    st.lists(st.builds(PortOrder, TEXT, KERNELS, GENERATIONS, PORT_NUMBERS), max_size=4).map(tuple),
)
CONTROLLER_MESSAGES: st.SearchStrategy[ControllerMessage] = (
    commands()
    | st.builds(Acknowledge, INT64)
    | st.builds(HealthNoted, INT64)
    | PROBE_ORDERS
    | PORT_ORDERS
    | st.builds(Renew, SECONDS, SECONDS | st.just(math.inf), SECONDS, st.booleans(), st.booleans())
)


def through_the_wire(message: ControllerMessage) -> ControllerMessage:
    data = codec.encode_controller_message(message).SerializeToString()
    return codec.decode_controller_message(pb.ControllerMessage.FromString(data))


def sharing(commands: Sequence[Command]) -> list[int]:
    """For each start, the position of the first one with the same template object."""
    templates = [command.template for command in commands if isinstance(command, Start)]
    objects = [id(template) for template in templates]
    return [objects.index(each) for each in objects]


@given(AGENT_MESSAGES)
def test_agent_message_through_the_wire_is_the_same(message: AgentMessage) -> None:
    data = codec.encode_agent_message(message).SerializeToString()
    assert codec.decode_agent_message(pb.AgentMessage.FromString(data)) == message


@given(CONTROLLER_MESSAGES)
def test_controller_message_through_the_wire_is_the_same(message: ControllerMessage) -> None:
    arrived = through_the_wire(message)
    # Templates compare by identity, so compare what is in them.
    assert type(arrived) is type(message)
    assert asdict(arrived) == asdict(message)


@given(commands())
def test_commands_through_the_wire_share_templates_as_before(message: Commands) -> None:
    arrived = through_the_wire(message)
    assert isinstance(arrived, Commands)
    assert sharing(arrived.commands) == sharing(message.commands)


@given(commands())
def test_template_of_many_starts_travels_once(message: Commands) -> None:
    encoded = codec.encode_controller_message(message)
    assert len(encoded.commands.templates) == len(set(sharing(message.commands)))


@given(commands(), st.integers(1, 200))
def test_large_batch_in_pieces_keeps_every_command_in_order(
    message: Commands, limit_bytes: int
) -> None:
    pieces = list(encode_in_pieces(message, limit_bytes))
    decoded = [codec.decode_controller_message(piece) for piece in pieces]
    joined = [
        command for piece in decoded if isinstance(piece, Commands) for command in piece.commands
    ]
    assert [asdict(command) for command in joined] == [asdict(each) for each in message.commands]
    for piece in pieces:
        assert piece.ByteSize() <= limit_bytes or len(piece.commands.commands) <= 1


@given(st.builds(JoinRequest, TEXT, TEXT, TEXT, TEXT))
def test_join_request_through_the_wire_is_the_same(request: JoinRequest) -> None:
    assert call_codec.decode_join_request(call_codec.encode_join_request(request)) == request


@given(st.builds(JoinReply, TEXT.map(AgentId)))
def test_join_reply_through_the_wire_is_the_same(reply: JoinReply) -> None:
    assert call_codec.decode_join_reply(call_codec.encode_join_reply(reply)) == reply


@given(st.builds(LogRequest, KERNELS, GENERATIONS, INT64, INT64, st.booleans()))
def test_log_request_through_the_wire_is_the_same(request: LogRequest) -> None:
    assert call_codec.decode_log_request(call_codec.encode_log_request(7, request)) == request


def test_message_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        codec.decode_agent_message(pb.AgentMessage())
    with pytest.raises(MalformedMessage):
        codec.decode_controller_message(pb.ControllerMessage())


def test_report_of_an_unknown_kind_is_refused() -> None:
    reports = pb.Reports(last_seq=1, reports=[pb.KernelReport(kernel="krn-1", kind="FROZEN")])
    with pytest.raises(MalformedMessage, match="FROZEN"):
        codec.decode_agent_message(pb.AgentMessage(reports=reports))


def test_service_that_is_not_known_is_refused() -> None:
    template = pb.KernelTemplate(service=pb.Service(name="shell"))
    commands = pb.Commands(templates=[template])
    with pytest.raises(MalformedMessage, match="shell"):
        codec.decode_controller_message(pb.ControllerMessage(commands=commands))


def test_start_without_its_template_is_refused() -> None:
    start = pb.Command(start=pb.Start(kernel="krn-1", template=1))
    commands = pb.Commands(templates=[pb.KernelTemplate()], commands=[start])
    with pytest.raises(MalformedMessage, match="krn-1"):
        codec.decode_controller_message(pb.ControllerMessage(commands=commands))


def test_template_of_an_older_controller_leaves_the_uid_to_the_agent() -> None:
    """Its field is absent, and an agent that is older than the field skips it."""
    start = pb.Command(start=pb.Start(kernel="krn-1"))
    commands = pb.Commands(templates=[pb.KernelTemplate(owner="default/x/ada")], commands=[start])
    arrived = codec.decode_controller_message(pb.ControllerMessage(commands=commands))
    assert isinstance(arrived, Commands)
    (started,) = arrived.commands
    assert isinstance(started, Start)
    assert started.template.uid is None
    told = replace(started, template=replace(started.template, uid=ClusterUid("c", 2_000_000_000)))
    encoded = codec.encode_controller_message(Commands((told,))).commands.templates[0]
    encoded.ClearField("uid")
    assert encoded == commands.templates[0]
    assert PROTOCOL == 3, "with another number, older agents and controllers refuse each other"


def test_reason_of_a_newer_agent_is_kept_in_the_detail() -> None:
    report = pb.KernelReport(kernel="krn-1", kind="ENDED", reason="ATE_BY_BEAR", detail="brown")
    message = pb.AgentMessage(reports=pb.Reports(last_seq=1, reports=[report]))
    arrived = codec.decode_agent_message(message)
    assert isinstance(arrived, Reports)
    assert arrived.reports[0].reason is None
    assert arrived.reports[0].detail == "ATE_BY_BEAR: brown"


@given(PROBE_ORDERS, st.integers(1, 200))
def test_many_orders_in_pieces_keep_every_order_in_order(
    message: ProbeOrders, limit_bytes: int
) -> None:
    pieces = list(encode_in_pieces(message, limit_bytes))
    decoded = [codec.decode_controller_message(piece) for piece in pieces]
    joined = [each for piece in decoded if isinstance(piece, ProbeOrders) for each in piece.orders]
    assert joined == list(message.orders)
    for piece, orders in zip(pieces, decoded, strict=True):
        assert isinstance(orders, ProbeOrders)
        assert piece.ByteSize() <= limit_bytes or len(orders.orders) < 2
