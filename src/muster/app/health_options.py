"""An operator's options for the health of an agent's machine: checks, limits, and how it is
rebooted."""

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from muster.agent.config import AgentConfig
from muster.core.errors import MusterError
from muster.core.text import NAME

MAX_LINE = 4096
"""Characters of a command line, at most."""


@dataclass(frozen=True, slots=True)
class HealthOptions:
    """The options as people write them.

    Args:
        checks: command lines of the operator's own checks, by name.
        limits: of checks, by their names.
        reboot: the command line that reboots the machine.
    """

    checks: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    reboot: str | None = None


def with_health(config: AgentConfig, options: HealthOptions) -> AgentConfig:
    """The agent's settings with these options.

    Raises:
        MusterError: an option is wrong.
    """
    for name, line in options.checks.items():
        if not re.fullmatch(NAME, name[:64]):
            raise MusterError(f"--check is {name[:80]!r}: expected a name of letters and digits")
        _check_line(f"--check {name}", line)
    if options.reboot is not None:
        _check_line("--reboot-command", options.reboot)
    limits = {name: _limit(name, text) for name, text in options.limits.items()}
    return replace(
        config,
        checks=dict(options.checks),
        check_limits=limits,
        reboot_command=options.reboot or "",
    )


def _check_line(option: str, line: str) -> None:
    """
    Raises:
        MusterError: it is no command line.
    """
    try:
        words = shlex.split(line) if len(line) <= MAX_LINE else []
    except ValueError as error:
        raise MusterError(f"{option} is {line[:80]!r}: {error}") from None
    if not words:
        raise MusterError(f"{option} is {line[:80]!r}: expected a program and its arguments")


def _limit(name: str, text: str) -> float:
    try:
        limit = float(text[:40])
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        raise MusterError(f"--check-limit {name} is {text[:80]!r}: expected a number, zero or more")
    return limit
