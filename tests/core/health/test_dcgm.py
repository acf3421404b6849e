"""Reports of ``dcgmi diag -j``: both shapes, and whatever else a program may print."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.health.check_run import CheckRun, Ending
from muster.core.health.dcgm import ErrorSeverity, read_diag
from muster.core.health.verdict import MAX_FINDINGS, CheckResult, Severity, Verdict

ISOLATE, ERROR = 205, 226
FAULTY, UNKNOWN, HEALTHY = CheckResult.FAULTY, CheckResult.UNKNOWN, CheckResult.HEALTHY
Told = dict[str, Any]


def run(document: object, code: int = 0) -> CheckRun:
    return CheckRun(Ending.EXITED, code, json.dumps(document).encode())


def judged(document: object, code: int = 0, level: int = 2, gpus: tuple[int, ...] = ()) -> Verdict:
    return read_diag(run(document, code), level=level, gpus=gpus)


def told(verdict: Verdict) -> list[tuple[Severity, int | None, str]]:
    return [(each.severity, each.device, each.test) for each in verdict.findings]


def categories(tests: dict[str, list[Told]], root: str) -> Told:
    """A report with one category for each name "Category/Test"."""
    return {
        root: {
            "test_categories": [
                {
                    "category": place.split("/")[0],
                    "tests": [{"name": place.split("/", 1)[1], "results": results}],
                }
                for place, results in tests.items()
            ]
        }
    }


def old(memory: list[Told], **deployment: Told) -> Told:
    """A report of version 1 or 2: results name their GPUs in a text, and errors are one text."""
    passed = {"status": "Pass"}
    tests = {
        "Deployment/Denylist": [deployment.get("denylist", passed)],
        "Deployment/Environment Variables": [deployment.get("environment", passed)],
        "Deployment/Page Retirement/Row Remap": [deployment.get("pages", passed)],
        "Hardware/GPU Memory": memory,
    }
    return categories(tests, "DCGM GPU Diagnostic")


def error(severity: ErrorSeverity, category: int = 10, words: str = "bad") -> Told:
    return {
        "error_id": 44,
        "error_category": category,
        "error_severity": int(severity),
        "warning": words,
    }


def v3(*memory: tuple[str, list[Told]]) -> Told:
    """A report of version 3: a GPU each result, errors as a list."""
    results = [
        {"gpu_id": str(gpu), "status": status} | ({"warnings": errors} if errors else {})
        for gpu, (status, errors) in enumerate(memory)
    ]
    passed = [{"status": "Pass"}]
    report = categories(
        {"Deployment/Inforom": passed, "Hardware/GPU Memory": results}, "DCGM GPU Diagnostic"
    )
    return report | {"GPU Device IDs": ["20b0"], "version": "3.1.8"}


def v4(*memory: tuple[str, list[Told]], summary: str = "Pass", **more: object) -> Told:
    """A report of version 4: entities of several kinds, and a summary of each test."""
    results: list[Told] = [
        {"entity_group": "GPU", "entity_group_id": 1, "entity_id": gpu, "status": status}
        | ({"warnings": errors} if errors else {})
        for gpu, (status, errors) in enumerate(memory)
    ]
    report = categories({"Hardware/memory": results}, "DCGM Diagnostic")
    test = report["DCGM Diagnostic"]["test_categories"][0]["tests"][0]
    test["test_summary"] = {"status": summary}
    report["entity_groups"] = [
        {
            "entity_group": "GPU",
            "entity_group_id": 1,
            "entities": [
                {"entity_id": gpu, "device_id": "2330", "serial_num": "165"}
                for gpu in range(len(memory))
            ],
        }
    ]
    return report | {"metadata": {"version": "4.2.3"}} | more


def test_every_gpu_that_passed_is_healthy_in_each_version() -> None:
    passed = [{"gpu_ids": "0,1", "status": "Pass", "info": "fine"}]
    for document in (
        old(passed),
        v3(("Pass", []), ("Pass", [])),
        v4(("Pass", []), ("Pass", [])),
    ):
        assert judged(document, gpus=(0, 1)).result is HEALTHY
        assert judged(document, gpus=(0, 1)).findings == ()


def test_failed_test_names_its_gpu_and_quotes_dcgm_in_each_version() -> None:
    words = "Found 3 faulty memory elements"
    grave = [error(ErrorSeverity.ISOLATE, words=words)]
    for document in (
        old([{"gpu_ids": "0", "status": "Pass"}, _old_failure("1", words)]),
        v3(("Pass", []), ("Fail", grave)),
        v4(("Pass", []), ("Fail", grave), summary="Fail"),
    ):
        verdict = judged(document, ISOLATE)
        assert verdict.result is FAULTY
        (finding,) = verdict.findings
        assert (finding.device, finding.told) == (1, words)
        assert finding.test in ("GPU Memory", "memory")


def _old_failure(gpus: str, words: str) -> Told:
    return {"gpu_ids": gpus, "status": "Fail", "warnings": words}


@pytest.mark.parametrize(
    ("severity", "result"),
    [
        (ErrorSeverity.NONE, HEALTHY),
        (ErrorSeverity.MONITOR, HEALTHY),
        (ErrorSeverity.ISOLATE, FAULTY),
        (ErrorSeverity.RESET, FAULTY),
        (ErrorSeverity.TRIAGE, UNKNOWN),
        (ErrorSeverity.UNKNOWN, UNKNOWN),
        (77, UNKNOWN),
    ],
)
def test_failure_is_graded_by_the_severity_of_its_error(
    severity: ErrorSeverity, result: CheckResult
) -> None:
    assert judged(v4(("Fail", [error(severity)])), ERROR).result is result


def test_worst_of_several_errors_counts() -> None:
    errors = [error(ErrorSeverity.MONITOR), error(ErrorSeverity.RESET)]
    verdict = judged(v4(("Fail", errors)), ISOLATE)
    assert verdict.result is FAULTY
    assert [each.severity for each in verdict.findings] == [Severity.FAULT, Severity.WARNING]


@pytest.mark.parametrize("category", [2, 9])
def test_temperature_and_clocks_only_warn(category: int) -> None:
    verdict = judged(v4(("Fail", [error(ErrorSeverity.ISOLATE, category)])), ERROR)
    assert told(verdict) == [(Severity.WARNING, 0, "memory")]


def test_warning_of_a_test_is_no_fault_however_grave_its_error() -> None:
    assert judged(v4(("Warn", [error(ErrorSeverity.MONITOR)]))).result is HEALTHY
    assert judged(v4(("Warn", [error(ErrorSeverity.ISOLATE)]))).result is UNKNOWN
    assert judged(old([{"gpu_ids": "0", "status": "Warn", "warnings": "odd"}])).result is HEALTHY


def test_error_of_a_test_that_passed_is_a_warning() -> None:
    verdict = judged(v4(("Pass", [error(ErrorSeverity.TRIAGE, words="cannot allocate")])))
    assert verdict.result is HEALTHY
    assert verdict.findings[0].told == "cannot allocate"


def test_status_that_is_not_known_is_not_taken_for_a_pass() -> None:
    assert judged(v4(("Perhaps", []))).result is UNKNOWN


def test_skipped_is_not_passed() -> None:
    for document in (
        old([{"gpu_ids": "0", "status": "Skip"}]),
        v3(("Skip", [])),
        v4(("Skip", []), summary="Skip"),
    ):
        verdict = judged(document)
        assert verdict.result is UNKNOWN
        assert verdict.findings[0].what == "no test said anything of this GPU: 1 test skipped"


def test_gpu_that_alone_was_skipped_is_named() -> None:
    verdict = judged(v4(("Pass", []), ("Skip", [])))
    assert told(verdict) == [(Severity.UNKNOWN, 1, "")]


def test_gpu_that_should_have_been_tested_and_is_not_in_the_report_is_named() -> None:
    assert told(judged(v4(("Pass", [])), gpus=(0, 5))) == [(Severity.UNKNOWN, 5, "")]


def test_gpu_that_the_report_is_about_and_has_no_result_is_named() -> None:
    document = v4(("Pass", []), ("Pass", []))
    del document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["results"][1]
    assert told(judged(document)) == [(Severity.UNKNOWN, 1, "")]


def test_test_that_failed_for_its_configuration_alone_says_nothing_of_the_hardware() -> None:
    verdict = judged(v4(("Fail", [error(ErrorSeverity.CONFIG, 3)])), ERROR)
    assert told(verdict) == [(Severity.UNKNOWN, 0, ""), (Severity.WARNING, 0, "memory")]


def test_gpu_with_a_fault_is_not_called_untested_besides() -> None:
    errors = [error(ErrorSeverity.CONFIG, 3), error(ErrorSeverity.ISOLATE)]
    verdict = judged(v4(("Fail", errors)), ISOLATE)
    assert told(verdict) == [(Severity.FAULT, 0, "memory"), (Severity.WARNING, 0, "memory")]


def test_installation_alone_is_enough_at_level_1_and_not_at_level_2() -> None:
    document = old([])
    assert judged(document, level=1, gpus=(0,)).result is HEALTHY
    assert judged(document, level=2, gpus=(0,)).result is UNKNOWN
    assert judged(document, level=2).result is UNKNOWN


def test_failure_of_the_installation_is_no_fault_of_a_gpu_except_for_its_memory() -> None:
    passed = [{"gpu_ids": "0", "status": "Pass"}]
    failed = {"status": "Fail", "warnings": "see log"}
    assert judged(old(passed, environment=failed), ERROR).result is HEALTHY
    assert judged(old(passed, denylist=failed), ERROR).result is UNKNOWN
    assert judged(old(passed, pages=failed), ERROR).result is FAULTY


def test_failure_of_something_else_than_a_gpu_is_told_with_its_name() -> None:
    document = v4(("Pass", []))
    results = document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["results"]
    results.append({"entity_group": "NvSwitch", "entity_group_id": 3, "entity_id": 2})
    results[-1] |= {"status": "Fail", "warnings": [error(ErrorSeverity.ISOLATE, 12)]}
    (finding,) = judged(document, ISOLATE).findings
    assert finding.device is None
    assert finding.what.startswith("NvSwitch 2: the test failed")


def test_failure_that_only_the_summary_tells_counts() -> None:
    assert judged(v4(("Pass", []), summary="Fail"), ERROR).result is FAULTY


def test_error_that_the_summary_alone_tells_is_told_beside_those_of_gpus() -> None:
    document = v4(("Fail", [error(ErrorSeverity.MONITOR)]), summary="Fail")
    summary = document["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["test_summary"]
    summary["warnings"] = [error(ErrorSeverity.ISOLATE, words="of no GPU")]
    assert told(judged(document, ISOLATE)) == [
        (Severity.FAULT, None, "memory"),
        (Severity.WARNING, 0, "memory"),
    ]


def test_diagnostic_that_could_not_run_is_unknown_with_its_own_words() -> None:
    document = {"DCGM Diagnostic": {"runtime_error": "no plugins", "version": "4.2"}}
    verdict = judged(document, 198)
    assert verdict.result is UNKNOWN
    assert verdict.findings[0].told == "no plugins"
    assert verdict.findings[1].what == "dcgmi found no test to run"


def test_text_before_the_report_is_passed_over() -> None:
    printed = b"warning: old driver\n" + json.dumps(v4(("Pass", []))).encode()
    assert read_diag(CheckRun(Ending.EXITED, 0, printed), level=2).result is HEALTHY


@pytest.mark.parametrize("code", [ISOLATE, ERROR, 217, 1, 57])
def test_exit_code_that_contradicts_a_good_report_makes_it_unknown(code: int) -> None:
    assert judged(v4(("Pass", [])), code).result is UNKNOWN


@pytest.mark.parametrize("code", [0, 1, 57])
def test_exit_code_takes_no_fault_back(code: int) -> None:
    assert judged(v4(("Fail", [error(ErrorSeverity.ISOLATE)])), code).result is FAULTY


@pytest.mark.parametrize(
    ("run", "what"),
    [
        (CheckRun(Ending.EXITED, 0, b""), "printed nothing and ended with exit code 0"),
        (CheckRun(Ending.EXITED, 204, b" \n"), "it did not find its diagnostic program"),
        (CheckRun(Ending.EXITED, 0, b'{"DCGM Diag'), "no complete JSON"),
        (CheckRun(Ending.EXITED, 0, b"Error: no host engine"), "no complete JSON"),
        (CheckRun(Ending.EXITED, 0, b"[1]"), "no object"),
        (CheckRun(Ending.EXITED, 0, b'{"other": 1}'), "no report of a diagnostic"),
        (CheckRun(Ending.EXITED, 0, b'{"DCGM Diagnostic": {}}'), "no result of any test"),
        (CheckRun(Ending.EXITED, 0, b"{}", 1 << 30), "printed 1,073,741,826 bytes"),
        (CheckRun(Ending.EXITED, 0, b"{" + b"[" * 100_000), "no complete JSON"),
        (CheckRun(Ending.SIGNALLED, 9), "dcgmi was ended by SIGKILL"),
        (CheckRun(Ending.TIMED_OUT, ran_s=600.0), "was ended after 10m00s"),
        (CheckRun(Ending.NOT_ENDED, ran_s=600.0), "still runs after 10m00s and cannot be killed"),
        (CheckRun(Ending.NOT_STARTED, why="dcgmi is not installed"), "dcgmi is not installed"),
    ],
)
def test_run_without_a_report_is_unknown_with_a_clear_sentence(run: CheckRun, what: str) -> None:
    verdict = read_diag(run, level=2)
    assert verdict.result is UNKNOWN
    assert what in verdict.findings[0].what


def test_report_with_more_results_than_any_machine_has_is_unknown() -> None:
    many = [{"gpu_ids": "0," * 600, "status": "Pass"}] * 100
    verdict = judged(categories({"Hardware/memory": many}, "DCGM Diagnostic"))
    assert verdict.findings[0].what == "the report has more than 10,000 results"


SCALARS = st.none() | st.booleans() | st.integers(-9, 300) | st.floats() | st.text(max_size=8)
WORDS = st.sampled_from(["Pass", "Fail", "Warn", "Skip", "GPU", "0", "1", "0,1", "x"])
KEYS = st.sampled_from(
    [
        "DCGM Diagnostic",
        "DCGM GPU Diagnostic",
        "test_categories",
        "tests",
        "results",
        "status",
        "warnings",
        "gpu_id",
        "entity_groups",
        "entity_group_id",
        "entities",
        "test_summary",
        "runtime_error",
    ]
)
JSON = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
RESULTS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "gpu_ids": SCALARS | WORDS,
            "gpu_id": SCALARS | WORDS,
            "entity_group": WORDS,
            "entity_group_id": SCALARS,
            "entity_id": SCALARS,
            "status": SCALARS | WORDS,
            "warnings": JSON,
        },
    )
    | JSON,
    max_size=4,
)


@settings(max_examples=50)
@given(st.binary(max_size=200), st.integers(-1, 300))
def test_any_output_gives_a_verdict(output: bytes, code: int) -> None:
    verdict = read_diag(CheckRun(Ending.EXITED, code, output), level=2)
    assert verdict.result is not HEALTHY


@settings(max_examples=50)
@given(RESULTS, JSON, st.integers(0, 255), st.sets(st.integers(0, 3)))
def test_any_report_gives_a_bounded_verdict_and_is_healthy_only_with_a_pass_or_a_warning(
    results: list[Any], more: object, code: int, gpus: set[int]
) -> None:
    document = categories({"Hardware/memory": results}, "DCGM Diagnostic")
    document["entity_groups"] = more
    verdict = read_diag(run(document, code), level=2, gpus=gpus)
    assert len(verdict.findings) <= MAX_FINDINGS
    if verdict.result is HEALTHY:
        status = [str(each.get("status")).lower() for each in results if isinstance(each, dict)]
        assert {*status} & {"pass", "warn", "fail"}
        assert code in (0, ISOLATE, ERROR)


@settings(max_examples=50)
@given(JSON)
def test_any_document_gives_a_verdict(document: object) -> None:
    assert read_diag(run(document), level=2).checks == ("dcgm",)
