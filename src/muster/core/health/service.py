"""Services: what the controller has an agent do to its own machine, and the verdict that comes back
(design: Machine health)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from muster.core.health.remedy import Remedy
from muster.core.health.verdict import (
    MAX_FINDINGS,
    Finding,
    Verdict,
    bounded,
    unknown,
    verdict_from,
)
from muster.core.owner import Owner
from muster.core.resources import MAX_DEVICES
from muster.core.text import MAX_NAME

MAX_RESULT_BYTES = 4096
"""Bytes of the text that a service leaves as its result, at most."""
MAX_CHECKS = 64
"""Checks that one service names, at most."""
MAX_WHY = 300
"""Characters of the sentence that goes to the machine's own log, at most."""
SERVICE_OWNER = Owner("@muster", "machines", "health")
"""The owner of the sessions of services. No person can have these names."""

_VERSION = 1
_CHECK = "health"
_SHORT_NAME = 64
_SHORT_WHAT = 160
_SHORT_TOLD = 80


class ServiceName(StrEnum):
    """The services. A controller can name no other, and no command."""

    CHECK = "check"
    RESET = "reset"  # the devices
    REBOOT = "reboot"  # the machine


@dataclass(frozen=True, slots=True)
class Service:
    """A request to an agent about its own machine.

    Args:
        devices: indexes of GPUs; all of the machine if empty.
        level: of checks.
        checks: the names of checks; all that apply if empty.
        observe: checks whose faults count as warnings.
        timeout_s: how long it may take.
        why: one line, which is written to the machine's own log before a reset and a reboot.
        clock_ahead_s: seconds by which the machine's clock is ahead of the controller's, as the
            controller knows; None if it does not.
    """

    name: ServiceName
    devices: tuple[int, ...] = ()
    level: int = 2
    checks: tuple[str, ...] = ()
    observe: tuple[str, ...] = ()
    timeout_s: float = 900.0
    why: str = ""
    clock_ahead_s: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "why", bounded(self.why, MAX_WHY))

    @property
    def is_whole(self) -> bool:
        """Whether it takes all of the machine."""
        return not self.devices


_Index = Annotated[int, Meta(ge=0, lt=MAX_DEVICES)]
_Name = Annotated[str, Meta(max_length=MAX_NAME)]
_Names = Annotated[tuple[_Name, ...], Meta(max_length=MAX_CHECKS)]


class _Request(msgspec.Struct, frozen=True):
    name: ServiceName
    devices: Annotated[tuple[_Index, ...], Meta(max_length=MAX_DEVICES)] = ()
    level: Annotated[int, Meta(ge=1, le=4)] = 2
    checks: _Names = ()
    observe: _Names = ()
    timeout_s: Annotated[float, Meta(gt=0, le=7 * 86_400)] = 900.0
    why: Annotated[str, Meta(max_length=4 * MAX_WHY)] = ""
    clock_ahead_s: float | None = None


class _Result(msgspec.Struct, frozen=True):
    version: Literal[1]
    result: str
    checks: _Names
    findings: Annotated[tuple[Finding, ...], Meta(max_length=MAX_FINDINGS)] = ()
    left_out: Annotated[int, Meta(ge=0, le=2**31)] = 0


def dump_service(service: Service) -> str:
    """A service as JSON, for the agent and its supervisor."""
    return msgspec.json.encode(service).decode()


def load_service(text: str) -> Service:
    """The service of a text by ``dump_service``.

    Raises:
        ValueError: it is none, or something in it is out of bounds.
    """
    try:
        told = msgspec.json.decode(text.encode(), type=_Request)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"no service: {bounded(str(error), MAX_NAME)}") from None
    return Service(
        told.name,
        told.devices,
        told.level,
        told.checks,
        told.observe,
        told.timeout_s,
        told.why,
        told.clock_ahead_s,
    )


def dump(verdict: Verdict) -> str:
    """A verdict as JSON of at most ``MAX_RESULT_BYTES`` bytes. Where not everything finds room, the
    gravest findings are kept, in fewer words if need be, and the others counted."""
    checks = tuple(bounded(each, _SHORT_NAME) for each in verdict.checks[:MAX_CHECKS])
    while len(_encoded(verdict, checks, [])) > MAX_RESULT_BYTES // 4:
        checks = checks[: len(checks) // 2]
    kept: list[dict[str, Any]] = []
    for finding in verdict.findings:
        for form in _forms(finding):
            if len(_encoded(verdict, checks, [*kept, form])) <= MAX_RESULT_BYTES:
                kept.append(form)
                break
        else:
            break
    return _encoded(verdict, checks, kept).decode()


def load(text: str | None) -> Verdict:
    """The verdict that a service left; unknown, with a sentence, for anything else than a text by
    ``dump``."""
    if not text:
        return unknown(_CHECK, "it left no result")
    if len(text) > MAX_RESULT_BYTES:
        return unknown(_CHECK, f"it left a result of more than {MAX_RESULT_BYTES} bytes")
    try:
        told = msgspec.json.decode(text.encode(), type=_Result)
        verdict = verdict_from(told.checks, told.findings, told.left_out)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return unknown(_CHECK, "it left a result that cannot be read", str(error))
    if verdict.result.value != told.result:
        what = "it left a result that contradicts its findings"
        return unknown(_CHECK, what, f"{told.result} and {verdict.result}")
    return verdict


def _encoded(verdict: Verdict, checks: Sequence[str], findings: Sequence[object]) -> bytes:
    left_out = verdict.left_out + len(verdict.findings) - len(findings)
    return msgspec.json.encode(
        {
            "version": _VERSION,
            "result": verdict.result.value,
            "checks": checks,
            "findings": findings,
            "left_out": left_out,
        }
    )


def _forms(finding: Finding) -> Iterator[dict[str, Any]]:
    """A finding as a mapping, whole and then in few words."""
    yield _written(finding)
    yield _written(
        replace(
            finding,
            check=bounded(finding.check, _SHORT_NAME),
            what=bounded(finding.what, _SHORT_WHAT),
            uuid=bounded(finding.uuid, _SHORT_NAME),
            test=bounded(finding.test, _SHORT_NAME),
            told=bounded(finding.told, _SHORT_TOLD),
        )
    )


def _written(finding: Finding) -> dict[str, Any]:
    """The fields of a finding that differ from their defaults."""
    written: dict[str, Any] = {
        "check": finding.check,
        "severity": finding.severity.value,
        "what": finding.what,
    }
    if finding.device is not None:
        written["device"] = finding.device
    texts = {"uuid": finding.uuid, "test": finding.test, "told": finding.told}
    written |= {name: text for name, text in texts.items() if text}
    if finding.remedy is not Remedy.CHECK:
        written["remedy"] = finding.remedy.value
    return written
