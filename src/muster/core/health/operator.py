"""The report that an operator's own check prints, which Muster's own checks print as well (design:
Machine health).

``docs/health.md`` describes it. It is taken strictly: a report that contradicts itself, or has keys
that mean nothing here, is no report.
"""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from muster.core.errors import InvalidSpec, Problem
from muster.core.health.check_run import CheckRun, Unreadable, document_of, quoted
from muster.core.health.remedy import Remedy
from muster.core.health.verdict import (
    MAX_FINDINGS,
    CheckResult,
    Finding,
    Severity,
    Verdict,
    unknown,
    verdict_of,
)
from muster.core.resources import MAX_DEVICES
from muster.core.specs.amounts import ShortText, Spec, Whole
from muster.core.specs.load import parse_spec
from muster.core.text import MAX_ARGUMENT

VERSION = 1
FOUND_SOMETHING = 1
"""The exit code besides 0 with which a report counts, if it says that the machine is faulty."""

_Sentence = Annotated[str, Field(min_length=1, max_length=MAX_ARGUMENT)]
_Words = Annotated[str, Field(max_length=MAX_ARGUMENT)]


class FindingReport(Spec):
    severity: Severity = Severity.FAULT
    what: _Sentence
    device: Annotated[Whole, Field(ge=0, lt=MAX_DEVICES)] | None = None
    uuid: ShortText = ""
    test: ShortText = ""
    told: _Words = ""
    remedy: Remedy = Remedy.CHECK


class OperatorReport(Spec):
    version: Literal[1]
    verdict: CheckResult
    findings: Annotated[tuple[FindingReport, ...], Field(max_length=MAX_FINDINGS)] = ()

    def contradictions(self) -> Iterator[Problem]:
        follows = verdict_of("", (_finding("", each) for each in self.findings)).result
        if follows is not self.verdict:
            expected = f"its findings make it {follows.value!r}"
            yield Problem("verdict", repr(self.verdict.value), expected)


def read_report(run: CheckRun, check: str, program: str) -> Verdict:
    """The verdict that a check's program printed.

    Args:
        check: the check's name, for the findings.
        program: for sentences.
    """
    try:
        document = document_of(run, program)
    except Unreadable as error:
        return unknown(check, str(error), error.told)
    version = document.get("version")
    if type(version) is not int or version != VERSION:
        told = "without a version" if version is None else f"of version {json.dumps(version)[:40]}"
        what = f"{program} printed a report {told}; version {VERSION} is known here"
        return unknown(check, what, quoted(run.output))
    try:
        report = parse_spec(OperatorReport, document)
    except InvalidSpec as error:
        problem = error.problems[0].sentence()
        return unknown(check, f"the report of {program} is wrong: {problem}", quoted(run.output))
    if run.code and not (run.code == FOUND_SOMETHING and report.verdict is CheckResult.FAULTY):
        what = (
            f"{program} reported {report.verdict.value!r} and ended with exit code {run.code}, "
            f"which contradict each other"
        )
        return unknown(check, what, run.errors)
    return verdict_of(check, (_finding(check, each) for each in report.findings))


def write_report(verdict: Verdict) -> str:
    """A verdict as the report that ``read_report`` reads."""
    findings = [
        {
            "severity": each.severity.value,
            "what": each.what,
            "device": each.device,
            "uuid": each.uuid,
            "test": each.test,
            "told": each.told,
            "remedy": each.remedy.value,
        }
        for each in verdict.findings
    ]
    report: dict[str, Any] = {"version": VERSION, "verdict": verdict.result.value}
    return json.dumps(report | {"findings": findings})


def _finding(check: str, told: FindingReport) -> Finding:
    return Finding(
        check,
        told.severity,
        told.what,
        told.device,
        told.uuid,
        told.test,
        told.told,
        told.remedy,
    )
