"""Resetting the GPUs of the machine that this process is on, and rebooting the machine."""

import shlex
import socket
from collections.abc import Callable, Sequence

from muster.agent.health.request import ServiceRequest
from muster.agent.health.running import Command
from muster.core.health.check_run import CheckRun, Ending
from muster.core.health.verdict import Verdict, unknown, verdict_of
from muster.core.host_port import parted
from muster.core.resources import Device, is_partition
from muster.core.text import count, duration, signal_name

Runs = Callable[[Command, float], CheckRun]
"""Runs a command within a number of seconds."""

RESET_TOOL = "nvidia-smi"
REBOOT_LIMIT_S = 60.0
"""Seconds that a command may take which has the machine reboot."""
_DEFAULT_REBOOT = ("systemctl", "reboot")
_MARGIN_S = 10.0


def reset(request: ServiceRequest, run: Runs, tell: Callable[[str], None]) -> Verdict:
    """Reset the GPUs of a request. The verdict is healthy if that was done, else unknown with a
    sentence.

    Args:
        tell: writes to the machine's own log.
    """
    service = request.service
    devices = request.asked
    if not devices:
        return unknown("reset", "the agent has none of these GPUs")
    if any(is_partition(each.model) for each in devices):
        return unknown("reset", "a reset would remove the partitions of the GPU")
    tell(f"resetting {count(len(devices), 'GPU')}: {service.why}")
    names = ",".join(_name(each) for each in devices)
    command = Command((RESET_TOOL, "--gpu-reset", "-i", names))
    return _done("reset", RESET_TOOL, run(command, max(service.timeout_s - _MARGIN_S, _MARGIN_S)))


def reboot(
    request: ServiceRequest,
    run: Runs,
    tell: Callable[[str], None],
    is_here: Callable[[str], bool] | None = None,
) -> Verdict:
    """Have the machine reboot. The verdict is healthy if that was begun, else unknown with a
    sentence.

    Args:
        tell: writes to the machine's own log.
        is_here: whether a controller is on this machine.
    """
    refusal = "" if request.reboot else _refusal(request, is_here or is_on_this_machine)
    if refusal:
        what = f"{refusal}: only a command of the operator's (--reboot-command) reboots it"
        return unknown("reboot", what)
    command = tuple(shlex.split(request.reboot)) or _DEFAULT_REBOOT
    tell(f"rebooting: {request.service.why}")
    return _done("reboot", command[0], run(Command(command), REBOOT_LIMIT_S))


def _refusal(request: ServiceRequest, is_here: Callable[[str], bool]) -> str:
    """Why the machine is not the agent's to reboot; empty if it is."""
    if request.is_part:
        return "this agent has only a part of its machine"
    if is_here(request.controller):
        return "the controller is on this machine, or reached through it"
    return ""


def is_on_this_machine(controller: str) -> bool:
    """Whether the controller at "host:port" has an address of this machine. One whose name is not
    known counts as here, because a reboot is not taken back."""
    host, _ = parted(controller)
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return True
    return not found or any(_is_own(family, address) for family, _, _, _, address in found)


def _is_own(family: int, address: Sequence[object]) -> bool:
    """Whether an address is one of this machine: only such a one can be bound."""
    host, _, *scope = address
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0, *scope))
    except OSError:
        return False
    return True


def _name(device: Device) -> str:
    """The name by which the driver finds a GPU, even where another has fallen off the bus."""
    return device.uuid or str(device.index)


def _done(name: str, program: str, ran: CheckRun) -> Verdict:
    match ran.ending:
        case Ending.EXITED if ran.code == 0:
            return verdict_of(name)
        case Ending.EXITED:
            how = f"ended with exit code {ran.code}"
        case Ending.SIGNALLED:
            how = f"was ended by {signal_name(ran.code)}"
        case Ending.NOT_STARTED:
            how = f"could not be started: {ran.why}"
        case _:
            how = f"did not end within {duration(ran.ran_s)}"
    told = " ".join(filter(None, (ran.errors, ran.output[:500].decode(errors="replace"))))
    return unknown(name, f"{program} {how}", told)
