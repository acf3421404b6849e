"""The report of ``dcgmi diag -j``, of every version of DCGM, and what it says of each GPU (source:
DCGM).

Versions before 3 name a result's GPU by ``gpu_ids`` and have its errors as one text; version 3 has
``gpu_id`` and a list of errors with number, category and severity; version 4 has entities of
several kinds. All are read by the same rules, and fields that mean nothing here are passed over.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice
from typing import Any

from muster.core.health.check_run import CheckRun, Unreadable, document_of, listed, quoted
from muster.core.health.remedy import Remedy
from muster.core.health.verdict import Finding, Severity, Verdict, bounded, unknown, verdict_of
from muster.core.resources import MAX_DEVICES
from muster.core.text import count

CHECK = "dcgm"
PROGRAM = "dcgmi"
HARDWARE_LEVEL = 2
"""The level from which on ``dcgmi diag`` tests the hardware, and not the installation alone."""

_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
_INSTALLATION = "deployment"
_TEXT = 500
_GPU_LIST = 1024
MAX_RESULTS = 10_000
"""Results of a report that are looked at: several times those of the largest machine."""


class ErrorSeverity(IntEnum):
    """DCGM's own severities of an error."""

    NONE = 0
    MONITOR = 1  # the GPU can work
    ISOLATE = 2  # it cannot
    UNKNOWN = 3
    TRIAGE = 4
    CONFIG = 5  # of the machine's configuration
    RESET = 6  # it can after a reset


_GRADES: Mapping[int, Severity] = {
    ErrorSeverity.NONE: Severity.WARNING,
    ErrorSeverity.MONITOR: Severity.WARNING,
    ErrorSeverity.CONFIG: Severity.WARNING,
    ErrorSeverity.ISOLATE: Severity.FAULT,
    ErrorSeverity.RESET: Severity.FAULT,
}
"""The severity of a failed test's error; any other number is unknown."""
_REMEDIES: Mapping[int | None, Remedy] = {ErrorSeverity.RESET: Remedy.RESET}
"""The remedy that an error's severity names; a GPU to be isolated may be healed by anything."""
_WARN_ONLY = frozenset({2, 9})
"""Categories of errors about throttled clocks and temperature, which never make a GPU faulty."""
_CONFIGURATION = frozenset({"environment variables", "graphics processes", "persistence mode"})
_OF_HARDWARE = frozenset({"inforom", "page retirement", "page retirement/row remap"})
"""Tests of the category Deployment that speak of the machine's configuration and of the GPU's
memory; the others speak of libraries and permissions."""

_EXIT_CODES: Mapping[int, str] = {
    198: "found no test to run",
    199: "got no answer from the driver in time",
    200: "could not load NVML",
    202: "is paused",
    203: "had its diagnostic killed",
    204: "did not find its diagnostic program",
    206: "had an exception in a test",
    207: "had too few resources",
    209: "could not end one of its processes",
    212: "needs a newer driver",
    215: "could not start its diagnostic",
    216: "could not read its own report",
    217: "runs another diagnostic already",
}
"""Exit codes with which no GPU was judged: DCGM's negative return codes modulo 256."""
_ISOLATE_CODE = 205
_ERROR_CODE = 226
_JUDGED = frozenset({0, _ISOLATE_CODE, _ERROR_CODE})


@dataclass(frozen=True, slots=True)
class _Error:
    words: str
    severity: int | None = None
    category: int | None = None


@dataclass(frozen=True, slots=True)
class _Result:
    """The result of one test for one GPU; ``gpu`` is None where it is about something else."""

    test: str
    installation: bool
    gpu: int | None
    entity: str
    status: str
    errors: tuple[_Error, ...] = ()

    @property
    def ran(self) -> bool:
        """Whether the test came to a result that says something of the hardware."""
        misconfigured = any(each.severity == ErrorSeverity.CONFIG for each in self.errors)
        return self.status in ("pass", "warn") or (self.status == "fail" and not misconfigured)


@dataclass(slots=True)
class _Coverage:
    """The results of one GPU that say something of it, and those that were skipped."""

    ran: int = 0
    skipped: list[str] = field(default_factory=list)


def read_diag(run: CheckRun, *, level: int, gpus: Collection[int] = ()) -> Verdict:
    """The verdict of a run of ``dcgmi diag -j``. A test that was skipped did not pass.

    Args:
        level: at which the diagnostic ran; from ``HARDWARE_LEVEL`` on a test of the hardware must
            have run on each GPU.
        gpus: the numbers of the GPUs that had to be tested; all that the report names if empty.
    """
    try:
        document = document_of(run, PROGRAM, after_text=True)
    except Unreadable as error:
        what = str(error)
        if run.code in _EXIT_CODES:
            what += f": it {_EXIT_CODES[run.code]}"
        return unknown(CHECK, what, error.told)
    root = next((document[name] for name in _ROOTS if isinstance(document.get(name), dict)), None)
    if root is None:
        return unknown(
            CHECK, f"{PROGRAM} printed JSON that is no report of a diagnostic", quoted(run.output)
        )
    results = list(islice(_results(root), MAX_RESULTS + 1))
    if len(results) > MAX_RESULTS:
        return unknown(CHECK, f"the report has more than {MAX_RESULTS:,} results")
    findings = [finding for each in results for finding in _findings(each)]
    if error_text := _text(root.get("runtime_error")):
        what = "the diagnostic could not be run to its end"
        findings.append(Finding(CHECK, Severity.UNKNOWN, what, told=error_text))
    elif not results:
        findings.append(Finding(CHECK, Severity.UNKNOWN, "the report has no result of any test"))
    findings += _not_covered(results, level, {*gpus} or {*_named_gpus(document)}, findings)
    findings += _about_exit(run.code, results, findings)
    return verdict_of(CHECK, findings)


def _results(root: Mapping[str, Any]) -> Iterator[_Result]:
    for category in listed(root, "test_categories"):
        if not isinstance(category, dict):
            continue
        installation = _text(category.get("category")).lower() == _INSTALLATION
        for test in listed(category, "tests"):
            if isinstance(test, dict):
                yield from _results_of(test, installation=installation)


def _results_of(test: Mapping[str, Any], *, installation: bool) -> Iterator[_Result]:
    name = _text(test.get("name")) or "a test without a name"
    failed = False
    for result in listed(test, "results"):
        if not isinstance(result, dict):
            continue
        status = _text(result.get("status")).lower()
        failed |= status == "fail"
        errors = tuple(_errors(result.get("warnings")))
        gpus = _gpus(result)
        entity = "" if gpus else _entity(result)
        for gpu in gpus or [None]:
            yield _Result(name, installation, gpu, entity, status, errors)
    summary = test.get("test_summary")
    if isinstance(summary, dict) and _text(summary.get("status")).lower() == "fail":
        errors = tuple(_errors(summary.get("warnings")))
        if errors or not failed:
            yield _Result(name, installation, None, "", "fail", errors)


def _gpus(result: Mapping[str, Any]) -> list[int | None]:
    """The numbers of the GPUs of a result; none if it is not about GPUs."""
    for key in ("gpu_id", "gpu_ids"):
        told = result.get(key)
        texts = told[:_GPU_LIST].split(",") if isinstance(told, str) else [str(told)]
        numbers = [number for each in texts if (number := _number(each.strip())) is not None]
        if numbers:
            return [*numbers]
    if _text(result.get("entity_group")).upper() == "GPU" or result.get("entity_group_id") == 1:
        number = _number(str(result.get("entity_id")))
        return [] if number is None else [number]
    return []


def _entity(result: Mapping[str, Any]) -> str:
    """The name of something other than a GPU that a result is about: "NvSwitch 2", "CPU 0"."""
    if "cpu_id" in result:
        return f"CPU {_text(result['cpu_id'])}"
    group = _text(result.get("entity_group"))
    return f"{group} {_number(str(result.get('entity_id')))}" if group else ""


def _errors(told: object) -> Iterator[_Error]:
    for each in told if isinstance(told, list) else [told]:
        if isinstance(each, dict):
            severity, category = each.get("error_severity"), each.get("error_category")
            yield _Error(
                _text(each.get("warning")),
                severity if isinstance(severity, int) else None,
                category if isinstance(category, int) else None,
            )
        elif words := _text(each):
            yield _Error(words)


def _findings(result: _Result) -> Iterator[Finding]:
    if result.status == "pass" and not result.errors:
        return
    if result.status == "skip":
        return  # it counts as not tested
    errors = result.errors or (_Error(""),)
    for error in errors:
        where = f"{result.entity}: " if result.entity else ""
        yield Finding(
            CHECK,
            _grade(result, error),
            f"{where}{_said(result, error)}",
            result.gpu,
            test=result.test,
            told=error.words,
            remedy=_REMEDIES.get(error.severity, Remedy.CHECK),
        )


def _said(result: _Result, error: _Error) -> str:
    match result.status:
        case "fail":
            said = "the test failed"
        case "warn":
            said = "the test warned"
        case "pass":
            said = "the test passed, and yet told an error"
        case other:
            said = f"the test has a result that is not known, {bounded(other, 40)!r}"
    if error.severity in _SEVERITY_NAMES:
        said += f", with severity {_SEVERITY_NAMES[error.severity]}"
    return said


_SEVERITY_NAMES: Mapping[int | None, str] = {each.value: each.name for each in ErrorSeverity}


def _grade(result: _Result, error: _Error) -> Severity:
    if result.status == "pass" or error.category in _WARN_ONLY:
        return Severity.WARNING
    if result.status == "warn":
        grave = error.severity in (ErrorSeverity.ISOLATE, ErrorSeverity.RESET)
        return Severity.UNKNOWN if grave else Severity.WARNING
    if result.status != "fail":
        return Severity.UNKNOWN
    if error.severity is not None:
        return _GRADES.get(error.severity, Severity.UNKNOWN)
    name = result.test.lower()
    if not result.installation or name in _OF_HARDWARE:
        return Severity.FAULT
    return Severity.WARNING if name in _CONFIGURATION else Severity.UNKNOWN


def _not_covered(
    results: list[_Result], level: int, gpus: Collection[int], findings: list[Finding]
) -> Iterator[Finding]:
    """A finding for each GPU of which the report says nothing."""
    hardware = level >= HARDWARE_LEVEL
    counted = [each for each in results if not (hardware and each.installation)]
    covered: dict[int | None, _Coverage] = {gpu: _Coverage() for gpu in gpus}
    for each in counted:
        coverage = covered.setdefault(each.gpu, _Coverage())
        coverage.ran += each.ran
        if each.status == "skip":
            coverage.skipped.append(each.test)
    everywhere = not hardware and any(each.ran for each in counted if each.gpu is None)
    told = {each.device for each in findings if each.severity is not Severity.WARNING}
    of_gpus = sorted(gpu for gpu in covered if gpu is not None)
    for gpu in of_gpus:
        if covered[gpu].ran or everywhere or gpu in told:
            continue
        skipped = covered[gpu].skipped
        why = f": {count(len(skipped), 'test')} skipped" if skipped else ""
        yield Finding(CHECK, Severity.UNKNOWN, f"no test said anything of this GPU{why}", gpu)
    if results and not of_gpus and not everywhere and not any(each.ran for each in counted):
        yield Finding(CHECK, Severity.UNKNOWN, "no test said anything of any GPU")


def _about_exit(code: int, results: list[_Result], findings: list[Finding]) -> Iterator[Finding]:
    """A finding if the exit code contradicts the report."""
    if code in _JUDGED:
        faults = any(each.severity is Severity.FAULT for each in findings)
        failed = any(each.status == "fail" for each in results)
        if code == _ISOLATE_CODE and not faults:
            what = f"{PROGRAM} says that a GPU has to be isolated, and its report names none"
            yield Finding(CHECK, Severity.UNKNOWN, what)
        elif code == _ERROR_CODE and not failed:
            what = f"{PROGRAM} says that a test failed, and its report names none"
            yield Finding(CHECK, Severity.UNKNOWN, what)
        return
    known = _EXIT_CODES.get(code)
    what = (
        f"{PROGRAM} {known}" if known else f"{PROGRAM} ended with exit code {code}, not known here"
    )
    yield Finding(CHECK, Severity.UNKNOWN, what)


def _named_gpus(document: Mapping[str, Any]) -> Iterator[int]:
    """The GPUs that a report of version 4 says it was about."""
    for group in listed(document, "entity_groups"):
        if isinstance(group, dict) and group.get("entity_group_id") == 1:
            for entity in listed(group, "entities"):
                number = _number(str(entity.get("entity_id"))) if isinstance(entity, dict) else None
                if number is not None:
                    yield number


def _number(text: str) -> int | None:
    if len(text) <= 4 and text.isascii() and text.isdigit() and int(text) < MAX_DEVICES:
        return int(text)
    return None


def _text(told: object) -> str:
    return bounded(told, _TEXT) if isinstance(told, str) else ""
