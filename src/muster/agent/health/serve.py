"""The program of a service: ``python -m muster.agent.health.serve`` checks, resets or reboots the
machine that it is on, as the agent asks in ``MUSTER_SERVICE``.

It leaves a verdict in the file ``MUSTER_RESULT`` and a sentence in its output. It ends with 0 if it
did what it was asked, whatever a check found, and with 1 if it did not.
"""

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from muster.agent.health.check import CheckedMachine, HealthCheck, OperatorCheck, carry_out
from muster.agent.health.found import check_class, check_names
from muster.agent.health.machine_log import tell_machine
from muster.agent.health.own_machine import reboot, reset
from muster.agent.health.request import REQUEST, RESULT, ServiceRequest, load_request
from muster.agent.health.running import run
from muster.core.health.remedy import Remedy
from muster.core.health.service import ServiceName, dump
from muster.core.health.verdict import (
    CheckResult,
    Finding,
    Severity,
    Verdict,
    merged,
    missing,
    observed,
    unknown,
    verdict_of,
)
from muster.files import write_whole

Keep = Callable[[Verdict], None]
"""Keeps a verdict where the supervisor finds it."""
ENDING_S = 20.0
"""Seconds before the end of the service's time at which a check that still runs is ended."""
OPERATOR_LIMIT_S = 600.0
"""Seconds that an operator's check may take."""
_DECLARED = "devices"


def checked(request: ServiceRequest, keep: Keep) -> Verdict:
    """The verdict of the checks of a request. After each one the verdict so far is kept, in which
    the others are unknown: if this process is ended, a fault that was found stays one."""
    service = request.service
    until_s = time.monotonic() + max(service.timeout_s - ENDING_S, service.timeout_s / 2)
    machine = CheckedMachine(
        devices=request.asked,
        directory=request.directory,
        is_shared=request.is_part or bool(service.devices),
        level=service.level,
        settings=request.settings,
        clock_offset_s=service.clock_ahead_s,
    )
    verdicts = [*_missing(request)]
    names = service.checks or (*check_names(), *request.checks)
    for position, name in enumerate(names):
        left = ", ".join(names[position:])
        keep(merged([*verdicts, unknown(name, f"stopped before these checks had ended: {left}")]))
        verdict = _verdict_of(name, request, machine, until_s)
        if verdict is not None:
            verdicts.append(observed(verdict) if name in service.observe else verdict)
    return merged(verdicts)


def _missing(request: ServiceRequest) -> Iterator[Verdict]:
    """A fault for each GPU that is asked about, and that the agent did not find when it started."""
    has = {each.index for each in request.devices}
    for index in request.service.devices:
        if index not in has:
            what = "the agent did not find this GPU when it started"
            fault = Finding(_DECLARED, Severity.FAULT, what, index, remedy=Remedy.REBOOT)
            yield verdict_of(_DECLARED, [fault])


def _verdict_of(
    name: str, request: ServiceRequest, machine: CheckedMachine, until_s: float
) -> Verdict | None:
    """The verdict of the check of this name; None if there is nothing here for it to look at."""
    if name not in request.checks and name not in check_names():
        return missing(name)
    try:
        check = _check(name, request)
        if not check.applies(machine):
            return None
    except Exception as error:  # a plug-in may raise anything
        return unknown(name, f"the check itself failed with {type(error).__name__}", str(error))
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        return unknown(name, "there was no time left for it")
    sys.stderr.write(f"{name}\n")
    sys.stderr.flush()
    return carry_out(check, machine, left_s)


def _check(name: str, request: ServiceRequest) -> HealthCheck:
    """The check of a name that is known here.

    Raises:
        InvalidSpec: it cannot be loaded.
    """
    line = request.checks.get(name)
    if line is not None:
        return OperatorCheck(name, tuple(shlex.split(line)), OPERATOR_LIMIT_S)
    return check_class(name)()


def keep_at(path: Path) -> Keep:
    """A function that keeps verdicts in a file, each whole."""

    def keep(verdict: Verdict) -> None:
        write_whole(path, dump(verdict), is_synced=False)

    return keep


def serve(request: ServiceRequest, keep: Keep) -> int:
    """Carry out a service; the answer is the exit code."""
    match request.service.name:
        case ServiceName.CHECK:
            verdict, is_done = checked(request, keep), True
        case ServiceName.RESET:
            verdict = reset(request, run, tell_machine)
            is_done = verdict.result is CheckResult.HEALTHY
        case ServiceName.REBOOT:
            verdict = reboot(request, run, tell_machine)
            is_done = verdict.result is CheckResult.HEALTHY
    keep(verdict)
    sys.stderr.write(f"{verdict.sentence()}\n")
    return 0 if is_done else 1


def main() -> None:
    request = load_request(os.environ.pop(REQUEST))
    where = os.environ.get(RESULT)
    sys.exit(serve(request, keep_at(Path(where)) if where else lambda verdict: None))


if __name__ == "__main__":
    main()
