"""The report that an operator's own check prints."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.health.check_run import CheckRun, Ending
from muster.core.health.operator import read_report, write_report
from muster.core.health.verdict import CheckResult, Finding, Severity, Verdict, verdict_of

PROGRAM = "/opt/check-nccl"


def read(document: object, code: int = 0) -> Verdict:
    output = document if isinstance(document, bytes) else json.dumps(document).encode()
    return read_report(CheckRun(Ending.EXITED, code, output), "nccl", PROGRAM)


def report(verdict: str = "healthy", **more: object) -> dict[str, Any]:
    return {"version": 1, "verdict": verdict} | more


FAULT = {"what": "all-reduce at 12 of 380 GB/s", "device": 3, "uuid": "GPU-3", "test": "ring"}


def test_report_with_a_finding_is_read_whole() -> None:
    assert read(report("faulty", findings=[FAULT])) == verdict_of(
        "nccl",
        [Finding("nccl", Severity.FAULT, str(FAULT["what"]), 3, "GPU-3", "ring")],
    )


def test_smallest_report_is_healthy() -> None:
    assert read(report()) == verdict_of("nccl")


@pytest.mark.parametrize("result", ["healthy", "unknown", "faulty"])
@pytest.mark.parametrize("code", [0, 1, 2, 205])
def test_exit_code_1_goes_with_a_fault_and_any_other_but_0_with_nothing(
    result: str, code: int
) -> None:
    severity = {"healthy": "warning", "unknown": "unknown", "faulty": "fault"}[result]
    verdict = read(report(result, findings=[{"what": "x", "severity": severity}]), code)
    counts = code == 0 or (code == 1 and result == "faulty")
    assert verdict.result == (result if counts else "unknown")


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (report("ill"), "verdict is 'ill': expected 'healthy', 'faulty' or 'unknown'"),
        (report("faulty"), "verdict is 'faulty': its findings make it 'healthy'"),
        (report(findings=[FAULT]), "verdict is 'healthy': its findings make it 'faulty'"),
        (report(note="fine"), "note"),
        (report("faulty", findings=[{}]), "findings.0.what: missing"),
        (report("faulty", findings=[{"what": ""}]), "findings.0.what is '': expected some text"),
        (report("faulty", findings=[{"what": "x", "device": -1}]), "expected at least 0"),
        (report("faulty", findings=[{"what": "x", "device": True}]), "expected a whole number"),
        (report("faulty", findings=[{"what": "x", "severity": "bad"}]), "'warning', 'unknown'"),
        (report("faulty", findings=[FAULT] * 65), "findings"),
        (report() | {"version": 2}, "of version 2; version 1 is known here"),
        (report() | {"version": True}, "of version true; version 1 is known here"),
        ({"verdict": "healthy"}, "without a version"),
        ([], "no object"),
        (b'{"version": 1, "verdict": "heal', "no complete JSON"),
        (b"ok", "no complete JSON"),
        (b"", "printed nothing"),
        (b'{"version": 1, "verdict": "healthy", "findings": ' + b"[" * 5000, "no complete JSON"),
    ],
)
def test_report_that_is_wrong_is_unknown_and_says_where(document: object, sentence: str) -> None:
    verdict = read(document)
    assert verdict.result is CheckResult.UNKNOWN
    (finding,) = verdict.findings
    assert sentence in finding.what


def test_long_sentence_is_cut_and_not_refused() -> None:
    verdict = read(report("faulty", findings=[{"what": "x" * 10_000}]))
    assert verdict.result is CheckResult.FAULTY


FINDINGS = st.builds(
    Finding,
    st.just("nccl"),
    st.sampled_from(Severity),
    st.text(min_size=1, max_size=400).filter(str.strip),
    st.none() | st.integers(0, 127),
    st.text(max_size=10),
    st.text(max_size=10),
    st.text(max_size=600),
)


@settings(max_examples=25)
@given(st.lists(FINDINGS, max_size=66))
def test_verdict_is_the_same_after_writing_and_reading(findings: list[Finding]) -> None:
    verdict = verdict_of("nccl", findings)
    again = read(write_report(verdict).encode())
    assert again.findings == verdict.findings


@settings(max_examples=50)
@given(st.binary(max_size=200) | st.text(max_size=50).map(str.encode), st.integers(0, 255))
def test_any_output_gives_a_verdict_that_is_not_healthy(output: bytes, code: int) -> None:
    assert read(output, code).result is CheckResult.UNKNOWN


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


@settings(max_examples=50)
@given(
    st.fixed_dictionaries(
        {"version": st.just(1)},
        optional={
            "verdict": st.sampled_from(["healthy", "faulty", "unknown"]) | VALUES,
            "findings": st.lists(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "what": VALUES,
                        "severity": st.sampled_from(["warning", "fault"]) | VALUES,
                        "device": VALUES,
                    },
                ),
                max_size=3,
            )
            | VALUES,
        },
    )
)
def test_any_report_gives_a_verdict_that_agrees_with_it_or_is_unknown(told: dict[str, Any]) -> None:
    verdict = read(told)
    assert verdict.result is CheckResult.UNKNOWN or verdict.result == told["verdict"]
