"""Verdicts of checks: what outranks what, and their bounds."""

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.health.verdict import (
    MAX_FINDINGS,
    MAX_TOLD,
    MAX_WHAT,
    CheckResult,
    Finding,
    Severity,
    Verdict,
    merged,
    observed,
    unknown,
    verdict_of,
)

SEVERITIES = st.sampled_from(Severity)
FINDINGS = st.builds(
    Finding,
    st.text(max_size=20),
    SEVERITIES,
    st.text(max_size=2 * MAX_WHAT),
    st.none() | st.integers(0, 7),
    told=st.text(max_size=2 * MAX_TOLD),
)


def of(*severities: Severity, check: str = "nvml") -> Verdict:
    return verdict_of(check, [Finding(check, each, f"a {each}") for each in severities])


def test_check_that_found_nothing_is_healthy() -> None:
    assert verdict_of("nvml").result is CheckResult.HEALTHY
    assert verdict_of("nvml").sentence() == "healthy by nvml"


def test_fault_outranks_unknown_which_outranks_a_warning() -> None:
    assert of(Severity.WARNING).result is CheckResult.HEALTHY
    assert of(Severity.WARNING, Severity.UNKNOWN).result is CheckResult.UNKNOWN
    assert of(Severity.WARNING, Severity.UNKNOWN, Severity.FAULT).result is CheckResult.FAULTY


def test_several_verdicts_are_as_bad_as_the_worst() -> None:
    good, bad = verdict_of("nvml"), of(Severity.FAULT, check="dcgm")
    both = merged([good, unknown("disk", "it hangs"), bad])
    assert both.checks == ("nvml", "disk", "dcgm")
    assert both.result is CheckResult.FAULTY
    assert [each.severity for each in both.findings] == [Severity.FAULT, Severity.UNKNOWN]
    assert merged([good, unknown("disk", "it hangs")]).result is CheckResult.UNKNOWN
    assert merged([good, of(Severity.WARNING, check="clock")]).result is CheckResult.HEALTHY


def test_nothing_checked_is_not_healthy() -> None:
    assert merged([]).result is CheckResult.UNKNOWN


def test_check_that_only_observes_says_all_it_found_and_judges_nothing() -> None:
    seen = observed(of(Severity.FAULT, Severity.UNKNOWN))
    assert seen.result is CheckResult.HEALTHY
    assert [each.what for each in seen.findings] == ["a fault", "a unknown"]


def test_gravest_findings_are_kept_and_the_others_counted() -> None:
    many = of(*[Severity.WARNING] * 100, *[Severity.UNKNOWN] * 10, Severity.FAULT)
    assert len(many.findings) == MAX_FINDINGS
    assert many.left_out == 111 - MAX_FINDINGS
    assert many.findings[0].severity is Severity.FAULT
    assert [each.severity for each in many.findings].count(Severity.UNKNOWN) == 10


def test_sentence_names_the_gpu_and_the_test() -> None:
    fault = Finding("dcgm", Severity.FAULT, "the test failed", 3, test="Memory", told="bad cell")
    warning = Finding("dcgm", Severity.WARNING, "it is warm")
    assert verdict_of("dcgm", [warning, fault]).sentence() == (
        "faulty by dcgm: GPU 3, Memory: the test failed (bad cell); and 1 more finding"
    )


def test_text_of_a_program_cannot_command_a_terminal() -> None:
    finding = Finding("mine", Severity.FAULT, "red \x1b[31m\nalert\0", told="\u202edrow")
    assert finding.what.isprintable()
    assert finding.told.isprintable()


@settings(max_examples=25)
@given(st.lists(st.lists(FINDINGS, max_size=40), min_size=1, max_size=3))
def test_merging_never_hides_the_worst_and_stays_bounded(found: list[list[Finding]]) -> None:
    verdicts = [verdict_of(f"check-{index}", each) for index, each in enumerate(found)]
    both = merged(verdicts)
    ranks = [CheckResult.HEALTHY, CheckResult.UNKNOWN, CheckResult.FAULTY]
    assert both.result is max((each.result for each in verdicts), key=ranks.index)
    assert len(both.findings) + both.left_out == sum(map(len, found))
    assert len(both.findings) <= MAX_FINDINGS
    for each in both.findings:
        assert len(each.what) <= MAX_WHAT
        assert len(each.told) <= MAX_TOLD


def test_a_sentence_and_its_rest_tell_every_finding() -> None:
    found = [Finding("own", Severity.FAULT, f"fan {index} is loose") for index in range(5)]
    verdict = verdict_of("own", found)
    assert verdict.sentence().endswith("fan 2 is loose; and 2 more findings")
    assert verdict.rest() == "fan 3 is loose; fan 4 is loose"
    assert verdict_of("own", found[:3]).rest() == ""
