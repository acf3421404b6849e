"""The verdict of a health check: healthy, faulty or unknown, and each finding behind it (design:
Machine health).

A verdict is Muster's own, formed of findings; no program's exit code is one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from muster.core.health.remedy import Remedy, strongest
from muster.core.resources import MAX_DEVICES
from muster.core.text import MAX_NAME, count, made_text, printable

MAX_FINDINGS = 64
"""Findings of one verdict, at most; the gravest are kept, and the others counted."""
MAX_WHAT = 300
"""Characters of a finding's sentence, at most."""
MAX_TOLD = 500
"""Characters of a finding's quotation, at most."""
_NAMED = 3


class CheckResult(StrEnum):
    """The result of a check. An unknown machine is taken out of work and checked again; it is
    never taken for a faulty one at once."""

    HEALTHY = "healthy"
    FAULTY = "faulty"
    UNKNOWN = "unknown"


class Severity(StrEnum):
    """How much a finding says, in ascending order."""

    WARNING = "warning"  # worth knowing; never a reason to take a machine out of work
    UNKNOWN = "unknown"  # the check could not tell
    FAULT = "fault"


_GRAVEST_FIRST = (Severity.FAULT, Severity.UNKNOWN, Severity.WARNING)
_RESULT = {
    Severity.FAULT: CheckResult.FAULTY,
    Severity.UNKNOWN: CheckResult.UNKNOWN,
    Severity.WARNING: CheckResult.HEALTHY,
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check found. Texts are cut to their limits and rid of characters that a
    terminal would obey.

    Args:
        check: the name of the check.
        what: a sentence without its full stop, of at most ``MAX_WHAT`` characters.
        device: the index of the GPU; None where it is about the machine.
        uuid: of the GPU, where it is known.
        test: the name of the test within the check, where it has several.
        told: the words of the program that was asked, of at most ``MAX_TOLD`` characters.
        remedy: the remedy, where whoever found it knows one.
    """

    check: str
    severity: Severity
    what: str
    device: Annotated[int, Meta(ge=0, lt=MAX_DEVICES)] | None = None
    uuid: str = ""
    test: str = ""
    told: str = ""
    remedy: Remedy = Remedy.CHECK

    def __post_init__(self) -> None:
        object.__setattr__(self, "check", bounded(self.check, MAX_NAME))
        object.__setattr__(self, "what", bounded(self.what, MAX_WHAT))
        object.__setattr__(self, "uuid", bounded(self.uuid, MAX_NAME))
        object.__setattr__(self, "test", bounded(self.test, MAX_NAME))
        object.__setattr__(self, "told", bounded(self.told, MAX_TOLD))

    def sentence(self) -> str:
        """The finding with its place: "GPU 3, Memory: ..."."""
        parts = []
        if self.device is not None:
            parts.append(f"GPU {self.device}")
        elif self.uuid:
            parts.append(f"GPU {self.uuid}")
        if self.test:
            parts.append(self.test)
        place = f"{', '.join(parts)}: " if parts else ""
        told = f" ({self.told})" if self.told else ""
        return f"{place}{self.what}{told}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of one check or of several.

    Args:
        checks: the names of the checks, in the order in which they spoke; empty where none of those
            that were asked for is there, or applies.
        findings: the gravest first; those of one severity in the order in which they were found.
        left_out: how many findings are not among them, because there were more than
            ``MAX_FINDINGS``.
    """

    checks: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    left_out: int = 0

    @property
    def result(self) -> CheckResult:
        """Faulty with any fault, else unknown with anything unknown, else healthy; unknown where no
        check looked."""
        if not self.checks:
            return CheckResult.UNKNOWN
        return _RESULT[self.findings[0].severity] if self.findings else CheckResult.HEALTHY

    @property
    def remedy(self) -> Remedy:
        """The strongest remedy that a fault calls for."""
        faults = (each for each in self.findings if each.severity is Severity.FAULT)
        return strongest(each.remedy for each in faults)

    def sentence(self) -> str:
        """The verdict in one sentence, with its first findings."""
        by = ", ".join(self.checks) or "no check"
        shown = self._named()
        said = f"{self.result} by {by}"
        if not shown:
            return said
        more = len(self.findings) + self.left_out - len(shown)
        also = f"; and {count(more, 'more finding')}" if more else ""
        return f"{said}: {'; '.join(each.sentence() for each in shown)}{also}"

    def rest(self) -> str:
        """The findings that the sentence counts only, as far as they are known."""
        shown = self._named()
        return "; ".join(each.sentence() for each in self.findings if each not in shown)

    def _named(self) -> Sequence[Finding]:
        grave = [each for each in self.findings if each.severity is not Severity.WARNING]
        return grave[:_NAMED] or self.findings[:_NAMED]


def verdict_of(check: str, findings: Iterable[Finding] = ()) -> Verdict:
    """The verdict of one check with these findings; healthy if there are none."""
    return verdict_from((check,), findings)


def unknown(check: str, what: str, told: str = "") -> Verdict:
    """The verdict of a check that could not tell, with a sentence on why."""
    return verdict_of(check, [Finding(check, Severity.UNKNOWN, what, told=told)])


def missing(check: str) -> Verdict:
    """The verdict of a check that a machine does not have: it tells nothing of the machine."""
    what = f"check {check} is not on this machine"
    return Verdict((), (Finding(check, Severity.WARNING, what),))


def merged(verdicts: Sequence[Verdict]) -> Verdict:
    """One verdict of several: faulty outranks unknown, which outranks healthy. A check that is
    missing leaves it to the others; where no check spoke nothing is known."""
    if not verdicts:
        return Verdict((), (Finding("health", Severity.WARNING, "no check applies to it"),))
    checks = dict.fromkeys(name for each in verdicts for name in each.checks)
    findings = [finding for each in verdicts for finding in each.findings]
    return verdict_from(tuple(checks), findings, sum(each.left_out for each in verdicts))


def observed(verdict: Verdict) -> Verdict:
    """The verdict of a check that only observes: all of its findings are warnings."""
    softened = (replace(each, severity=Severity.WARNING) for each in verdict.findings)
    return replace(verdict, findings=tuple(softened))


def bounded(text: str, limit: int) -> str:
    """``text`` in one printable line of at most ``limit`` characters."""
    line = " ".join(made_text(text, 4 * limit).split())
    line = printable(line)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def verdict_from(
    checks: tuple[str, ...], findings: Iterable[Finding], left_out: int = 0
) -> Verdict:
    """The verdict of these checks and findings, in any order.

    Args:
        left_out: findings that are not among them.
    """
    found: dict[Severity, list[Finding]] = {severity: [] for severity in _GRAVEST_FIRST}
    for each in findings:
        kept = found[each.severity]
        if len(kept) < MAX_FINDINGS:
            kept.append(each)
        else:
            left_out += 1
    ranked = [each for severity in _GRAVEST_FIRST for each in found[severity]]
    left_out += max(len(ranked) - MAX_FINDINGS, 0)
    return Verdict(checks, tuple(ranked[:MAX_FINDINGS]), left_out)
