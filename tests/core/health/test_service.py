"""Results of services as text: bounded, read back alike, and never trusted."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.health.remedy import Remedy, strongest
from muster.core.health.service import (
    MAX_RESULT_BYTES,
    MAX_WHY,
    Service,
    ServiceName,
    dump,
    dump_service,
    load,
    load_service,
)
from muster.core.health.verdict import (
    CheckResult,
    Finding,
    Severity,
    Verdict,
    unknown,
    verdict_from,
    verdict_of,
)

_TEXTS = st.text(max_size=600)
_FINDINGS = st.builds(
    Finding,
    check=_TEXTS,
    severity=st.sampled_from(Severity),
    what=_TEXTS,
    device=st.none() | st.integers(0, 127),
    uuid=_TEXTS,
    test=_TEXTS,
    told=_TEXTS,
    remedy=st.sampled_from(Remedy),
)
_VERDICTS = st.builds(
    verdict_from,
    st.lists(_TEXTS, max_size=80).map(tuple),
    st.lists(_FINDINGS, max_size=90),
    st.integers(0, 10),
)


@given(_VERDICTS)
def test_any_verdict_finds_room_and_keeps_its_result(verdict: Verdict) -> None:
    text = dump(verdict)

    assert len(text.encode()) <= MAX_RESULT_BYTES
    read = load(text)
    assert read.result is verdict.result
    everything = len(verdict.findings) + verdict.left_out
    assert len(read.findings) + read.left_out == everything
    severities = [each.severity for each in verdict.findings]
    assert [each.severity for each in read.findings] == severities[: len(read.findings)]
    if verdict.findings:
        assert read.findings


def test_a_verdict_is_read_back_as_it_was() -> None:
    lost = Finding(
        "nvml", Severity.FAULT, "fell off the bus", 3, "GPU-1", "device", "error 15", Remedy.REBOOT
    )
    hot = Finding("nvml", Severity.WARNING, "it is hot", 0)
    verdict = verdict_from(("nvml", "disk"), [hot, lost])

    assert load(dump(verdict)) == verdict
    assert load(dump(verdict)).remedy is Remedy.REBOOT


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "yes",
        "[]",
        "{}",
        '{"version": 2, "result": "healthy", "checks": []}',
        '{"version": 1, "result": "healthy", "checks": 3}',
        '{"version": 1, "result": "faulty", "checks": ["nvml"]}',
        '{"version": 1, "result": "healthy", "checks": ["a"], "findings": [{"what": "x"}]}',
        dump(verdict_of("nvml"))[:-4],
        '{"version": 1, "result": "healthy", "checks": ["nvml"], "told": "' + "x" * 4096 + '"}',
        "[" * 4000,
        '{"version": 1, "result": "\ud800"}',
    ],
    ids=range(13),
)
def test_what_is_no_result_is_unknown(text: str | None) -> None:
    assert load(text).result is CheckResult.UNKNOWN


@given(st.text(max_size=5000))
def test_no_text_makes_reading_fail(text: str) -> None:
    load(text)


def test_a_newer_agent_may_tell_more() -> None:
    told = json.loads(dump(unknown("nvml", "the driver does not answer")))
    told["took_s"] = 4.5
    told["findings"][0]["slot"] = "PCI 3"

    assert load(json.dumps(told)) == unknown("nvml", "the driver does not answer")


def test_only_faults_name_a_remedy() -> None:
    warned = Finding("nvml", Severity.WARNING, "it is hot", remedy=Remedy.OPERATOR)
    fault = Finding("nvml", Severity.FAULT, "it has errors", remedy=Remedy.RESET)

    assert verdict_of("nvml", [warned, fault]).remedy is Remedy.RESET
    assert verdict_of("nvml", [warned]).remedy is Remedy.CHECK
    assert strongest([Remedy.REBOOT, Remedy.RESET]) is Remedy.REBOOT


def test_a_service_is_read_back_as_it_was() -> None:
    service = Service(ServiceName.CHECK, (0, 3), 3, ("nvml",), ("disk",), 60.0, "an Xid", -1.5)

    assert load_service(dump_service(service)) == service


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"name": "rm"}',
        '{"name": "check", "devices": [128]}',
        '{"name": "check", "level": 9}',
        '{"name": "check", "timeout_s": 0}',
        '{"name": "check", "checks": "nvml"}',
    ],
)
def test_what_is_no_service_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no service"):
        load_service(text)


def test_a_reason_is_one_short_line() -> None:
    service = Service(ServiceName.REBOOT, why="a\nb\x1b[2J" + "c" * 999)

    assert "\n" not in service.why
    assert "\x1b" not in service.why
    assert len(service.why) == MAX_WHY


@pytest.mark.parametrize("device", [-1, 128, 2**40])
def test_a_finding_about_a_gpu_that_no_machine_can_have_tells_nothing(device: int) -> None:
    finding = {"check": "nvml", "severity": "fault", "what": "broken", "device": device}
    told = {"version": 1, "result": "faulty", "checks": ["nvml"], "findings": [finding]}

    assert load(json.dumps(told)).result is CheckResult.UNKNOWN
