"""Messages to protobuf and back, without loss: the only place that knows both forms.

Commands that share a template object send it once, and share one object again when they are
decoded: a batch of hundreds of equal kernels costs little more than their identifiers.
"""

from collections.abc import Mapping
from typing import TypeVar, assert_never

from muster.core.health.service import MAX_RESULT_BYTES
from muster.core.ids import AgentId, KernelId
from muster.core.reasons import ReasonCode
from muster.core.resources import Device
from muster.core.serving.port_holders import PortOrders, PortsSeen
from muster.core.text import made_text
from muster.wire import agent_pb2 as pb
from muster.wire import port_codec
from muster.wire.health_codec import (
    decode_gpu_means,
    decode_service,
    decode_sightings,
    encode_gpu_means,
    encode_service,
    encode_sightings,
)
from muster.wire.messages import (
    MAX_DETAIL,
    Acknowledge,
    AgentMessage,
    Command,
    Commands,
    ControllerMessage,
    Disk,
    FilesRemoved,
    Go,
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
    Start,
    Stop,
)
from muster.wire.part_codec import (
    decode_key,
    decode_resources,
    decode_shares,
    decode_uid,
    encode_key,
    encode_resources,
    encode_shares,
    encode_uid,
)
from muster.wire.probe_codec import decode_orders, decode_results, encode_orders, encode_results
from muster.wire.removal_codec import decode_removed, encode_removed

V = TypeVar("V")

_KINDS: Mapping[str, ReportKind] = {kind.value: kind for kind in ReportKind}
_REASONS: Mapping[str, ReasonCode] = {code.value: code for code in ReasonCode}
_STATUSES: Mapping[str, HeldStatus] = {status.value: status for status in HeldStatus}


# Agent to controller


def encode_agent_message(message: AgentMessage) -> pb.AgentMessage:
    match message:
        case Reports():
            reports = [_encode_report(report) for report in message.reports]
            return pb.AgentMessage(reports=pb.Reports(last_seq=message.last_seq, reports=reports))
        case Heartbeat():
            heartbeat = pb.Heartbeat(
                sent_s=message.sent_s,
                renewed_s=message.renewed_s,
                time_s=message.time_s,
                gpus=encode_gpu_means(message.gpus) if message.gpus else (),
            )
            return pb.AgentMessage(heartbeat=heartbeat)
        case Disk():
            return pb.AgentMessage(disk=pb.Disk(full=message.full))
        case HealthSeen():
            return pb.AgentMessage(health_seen=encode_sightings(message))
        case ProbesSeen():
            return pb.AgentMessage(probes_seen=encode_results(message))
        case PortsSeen():
            return pb.AgentMessage(ports_seen=port_codec.encode_ports(message))
        case FilesRemoved():
            return pb.AgentMessage(files_removed=encode_removed(message))
        case Hello():
            return pb.AgentMessage(hello=_encode_hello(message))


def decode_agent_message(message: pb.AgentMessage) -> AgentMessage:
    """
    Raises:
        MalformedMessage: a kind of message or a value that this version does not know.
    """
    match message.WhichOneof("message"):
        case "reports":
            batch = message.reports
            reports = tuple([_decode_report(each) for each in batch.reports])
            return Reports(batch.last_seq, reports)
        case "heartbeat":
            heartbeat = message.heartbeat
            gpus = decode_gpu_means(heartbeat.gpus) if heartbeat.gpus else ()
            return Heartbeat(heartbeat.sent_s, heartbeat.renewed_s, heartbeat.time_s, gpus)
        case "disk":
            return Disk(message.disk.full)
        case "health_seen":
            return decode_sightings(message.health_seen)
        case "probes_seen":
            return decode_results(message.probes_seen)
        case "ports_seen":
            return port_codec.decode_ports(message.ports_seen)
        case "files_removed":
            return decode_removed(message.files_removed)
        case "hello":
            return _decode_hello(message.hello)
        case "held_kernels":
            raise MalformedMessage("kernels that belong to no Hello")
        case None:
            raise MalformedMessage("a message of a kind that this version does not know")


def _encode_report(report: KernelReport) -> pb.KernelReport:
    # Absent fields are skipped, here and in decoding: both run twice for each kernel.
    return pb.KernelReport(
        kernel=report.kernel,
        generation=report.generation,
        kind=report.kind,
        at=report.at,
        exit_code=report.exit_code,
        signal=report.signal,
        reason=report.reason or "",
        detail=made_text(report.detail, MAX_DETAIL) if report.detail else "",
        ports=report.ports or None,
        shares=encode_shares(report.shares) if report.shares else None,
        heir=encode_key(report.heir) if report.heir else None,
        predecessor=encode_key(report.predecessor) if report.predecessor else None,
        result=made_text(report.result, MAX_RESULT_BYTES) if report.result else report.result,
        oom_kills=report.oom_kills,
        lost_output_bytes=report.lost_output_bytes,
    )


def _decode_report(report: pb.KernelReport) -> KernelReport:
    has = report.HasField
    ports, shares = report.ports, report.shares
    reason, detail = _decode_reason(report.reason, report.detail)
    return KernelReport(
        KernelId(report.kernel),
        report.generation,
        _known(_KINDS, report.kind, "report"),
        report.at,
        report.exit_code if has("exit_code") else None,
        report.signal if has("signal") else None,
        reason,
        detail,
        tuple(ports) if ports else (),
        decode_shares(shares) if shares else (),
        decode_key(report.heir) if has("heir") else None,
        decode_key(report.predecessor) if has("predecessor") else None,
        report.result if has("result") else None,
        max(report.oom_kills, 0),
        max(report.lost_output_bytes, 0),
    )


def _decode_reason(reason: str, detail: str) -> tuple[ReasonCode | None, str]:
    """A reason that only a newer agent knows becomes part of the detail: refusing the report would
    make the agent repeat it for ever."""
    if not reason:
        return None, detail
    code = _REASONS.get(reason)
    if code is None:
        return None, f"{reason}: {detail}"
    return code, detail


def _encode_hello(hello: Hello) -> pb.Hello:
    return pb.Hello(
        agent=hello.agent,
        name=hello.name,
        group=hello.group,
        boot_id=hello.boot_id,
        version=hello.version,
        host=hello.host,
        protocol=hello.protocol,
        capacity=encode_resources(hello.capacity),
        devices=[
            pb.Device(
                index=device.index,
                model=device.model,
                uuid=device.uuid,
                memory_bytes=device.memory_bytes,
            )
            for device in hello.devices
        ],
        attributes=hello.attributes,
        kernels=[
            pb.HeldKernel(kernel=held.kernel, generation=held.generation, status=held.status)
            for held in hello.kernels
        ],
        instance=hello.instance,
        supervisor=hello.supervisor,
        sent_s=hello.sent_s,
        time_s=hello.time_s,
        disk_full=hello.disk_full,
        checks=hello.checks,
        probes=hello.probes,
        health_commands=hello.health_commands,
        ports=hello.ports,
    )


def _decode_hello(hello: pb.Hello) -> Hello:
    return Hello(
        agent=AgentId(hello.agent),
        name=hello.name,
        group=hello.group,
        boot_id=hello.boot_id,
        version=hello.version,
        host=hello.host,
        capacity=decode_resources(hello.capacity),
        protocol=hello.protocol,
        devices=tuple(
            Device(device.index, device.model, device.uuid, device.memory_bytes)
            for device in hello.devices
        ),
        attributes=dict(hello.attributes),
        kernels=tuple(
            HeldKernel(
                KernelId(held.kernel),
                held.generation,
                _known(_STATUSES, held.status, "status of a kernel"),
            )
            for held in hello.kernels
        ),
        instance=hello.instance,
        supervisor=hello.supervisor,
        sent_s=hello.sent_s,
        time_s=hello.time_s,
        disk_full=hello.disk_full,
        checks=tuple(hello.checks),
        probes=hello.probes,
        health_commands=hello.health_commands,
        ports=hello.ports,
    )


# Controller to agent


def encode_controller_message(message: ControllerMessage) -> pb.ControllerMessage:
    match message:
        case Commands():
            return pb.ControllerMessage(commands=_encode_commands(message.commands))
        case Acknowledge():
            return pb.ControllerMessage(acknowledge=pb.Acknowledge(seq=message.seq))
        case Renew():
            renew = pb.Renew(
                sent_s=message.sent_s,
                lease_s=message.lease_s,
                heartbeat_s=message.heartbeat_s,
                hears_health=message.hears_health,
                hears_removals=message.hears_removals,
            )
            return pb.ControllerMessage(renew=renew)
        case HealthNoted():
            return pb.ControllerMessage(health_noted=pb.HealthNoted(seq=message.seq))
        case ProbeOrders():
            return pb.ControllerMessage(probe_orders=encode_orders(message))
        case PortOrders():
            return pb.ControllerMessage(port_orders=port_codec.encode_port_orders(message))


def decode_controller_message(message: pb.ControllerMessage) -> ControllerMessage:
    """
    Raises:
        MalformedMessage: a kind of message or command that this version does not know.
    """
    match message.WhichOneof("message"):
        case "commands":
            return Commands(_decode_commands(message.commands))
        case "acknowledge":
            return Acknowledge(message.acknowledge.seq)
        case "renew":
            renew = message.renew
            return Renew(
                renew.sent_s,
                renew.lease_s,
                renew.heartbeat_s,
                renew.hears_health,
                renew.hears_removals,
            )
        case "health_noted":
            return HealthNoted(message.health_noted.seq)
        case "probe_orders":
            return decode_orders(message.probe_orders)
        case "port_orders":
            return port_codec.decode_port_orders(message.port_orders)
        case None:
            raise MalformedMessage("a message of a kind that this version does not know")


def _encode_commands(commands: tuple[Command, ...]) -> pb.Commands:
    positions: dict[int, int] = {}
    templates: list[pb.KernelTemplate] = []
    encoded: list[pb.Command] = []
    for command in commands:
        match command:
            case Start():
                position = positions.get(id(command.template))
                if position is None:
                    position = positions[id(command.template)] = len(templates)
                    templates.append(_encode_template(command.template))
                start = pb.Start(
                    kernel=command.kernel,
                    generation=command.generation,
                    template=position,
                    env=command.env,
                    shares=encode_shares(command.shares),
                    queued=command.queued,
                    hold=command.hold,
                )
                encoded.append(pb.Command(start=start))
            case Stop():
                stop = pb.Stop(
                    kernel=command.kernel,
                    generation=command.generation,
                    grace_s=command.grace_s,
                    reason=command.reason,
                )
                encoded.append(pb.Command(stop=stop))
            case Prepare():
                prepare = pb.Prepare(
                    kernel=command.kernel,
                    generation=command.generation,
                    ports=command.ports,
                    port=command.port,
                )
                encoded.append(pb.Command(prepare=prepare))
            case Go():
                go = pb.Go(kernel=command.kernel, generation=command.generation)
                encoded.append(pb.Command(go=go))
            case Recall():
                recall = pb.Recall(kernel=command.kernel, generation=command.generation)
                encoded.append(pb.Command(recall=recall))
            case _:
                assert_never(command)
    return pb.Commands(templates=templates, commands=encoded)


def _decode_commands(message: pb.Commands) -> tuple[Command, ...]:
    templates = [_decode_template(template) for template in message.templates]
    return tuple([_decode_command(command, templates) for command in message.commands])


def _decode_command(command: pb.Command, templates: list[KernelTemplate]) -> Command:
    match command.WhichOneof("command"):
        case "start":
            start = command.start
            if not 0 <= start.template < len(templates):
                raise MalformedMessage(f"a start of {start.kernel} without its template")
            return Start(
                KernelId(start.kernel),
                start.generation,
                templates[start.template],
                dict(start.env),
                decode_shares(start.shares),
                start.queued,
                start.hold,
            )
        case "stop":
            stop = command.stop
            return Stop(KernelId(stop.kernel), stop.generation, stop.grace_s, stop.reason)
        case "prepare":
            prepare = command.prepare
            port = prepare.port if prepare.HasField("port") else None
            return Prepare(KernelId(prepare.kernel), prepare.generation, prepare.ports, port)
        case "go":
            return Go(KernelId(command.go.kernel), command.go.generation)
        case "recall":
            return Recall(KernelId(command.recall.kernel), command.recall.generation)
        case None:
            raise MalformedMessage("a command of a kind that this version does not know")


def _encode_template(template: KernelTemplate) -> pb.KernelTemplate:
    return pb.KernelTemplate(
        command=template.command,
        env=template.env,
        workdir=template.workdir,
        files=template.files,
        grace_s=template.grace_s,
        cpu_milli=template.cpu_milli,
        memory_bytes=template.memory_bytes,
        shape=template.shape,
        owner=template.owner,
        disk_bytes=template.disk_bytes,
        service=None if template.service is None else encode_service(template.service),
        least_cpu=template.least_cpu,
        stderr_apart=template.stderr_apart,
        keeps_result=template.keeps_result,
        uid=None if template.uid is None else encode_uid(template.uid),
    )


def _decode_template(template: pb.KernelTemplate) -> KernelTemplate:
    return KernelTemplate(
        command=tuple(template.command),
        env=dict(template.env),
        workdir=template.workdir if template.HasField("workdir") else None,
        files=dict(template.files),
        grace_s=template.grace_s,
        cpu_milli=template.cpu_milli,
        memory_bytes=template.memory_bytes,
        shape=template.shape,
        owner=template.owner,
        disk_bytes=template.disk_bytes,
        service=decode_service(template.service) if template.HasField("service") else None,
        least_cpu=template.least_cpu,
        stderr_apart=template.stderr_apart,
        keeps_result=template.keeps_result,
        uid=decode_uid(template.uid) if template.HasField("uid") else None,
    )


# Parts


def _known(table: Mapping[str, V], text: str, kind: str) -> V:
    value = table.get(text)
    if value is None:
        raise MalformedMessage(f"a {kind} that this version does not know: {text[:64]!r}")
    return value
