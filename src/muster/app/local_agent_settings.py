"""The settings of the agents on a controller's own machine: the same amounts, a directory for
each."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import psutil

from muster.agent.config import AgentConfig
from muster.agent.discovery import FOUND_ATTRIBUTES, parse_gpus
from muster.app.account_options import with_accounts
from muster.app.home import Home, LocalAgentSettings
from muster.app.local_agents import local_name
from muster.core.errors import MusterError
from muster.core.resources import format_bytes, parse_bytes, parse_milli
from muster.core.specs.pool import RESERVED
from muster.core.text import ATTRIBUTE

MAX_ATTRIBUTES = 100
_MAX_VALUE = 255


def agent_configs(home: Home, agents: LocalAgentSettings) -> tuple[AgentConfig, ...]:
    """The settings of the home's own agents.

    Raises:
        MusterError: an amount that is not one, an attribute that cannot be declared, or a wrong
            account.
    """
    check_attributes(agents.attributes)
    if agents.gpus is not None:
        parse_gpus(agents.gpus)
    first = AgentConfig(
        home.path,
        "",
        "",
        gpus=agents.gpus,
        cpu_milli=some_amount("--cpus", agents.cpus, parse_milli),
        memory_bytes=some_amount("--memory", agents.memory, parse_bytes),
        attributes=agents.attributes,
    )
    first = with_accounts(first, agents.accounts)
    names = [local_name(number) for number in range(1, agents.count + 1)]
    return tuple(
        replace(
            first,
            directory=home.agent_directory(name),
            name=name,
            # Each agent has ports of its own, because all are on one machine.
            ports=range(20_000 + number * 100, 20_000 + number * 100 + 100)
            if agents.count <= 400
            else first.ports,
        )
        for number, name in enumerate(names)
    )


def amount(option: str, text: str | None, parse: Callable[[str], int]) -> int | None:
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise MusterError(f"{option} is {text!r}: {error}") from None


def some_amount(option: str, text: str | None, parse: Callable[[str], int]) -> int | None:
    """An amount above 0, of a resource that every agent needs.

    Raises:
        MusterError: the text is no amount, or the amount is 0.
    """
    found = amount(option, text, parse)
    if found == 0:
        raise MusterError(f"{option} is {text!r}: expected more than 0, or leave it out")
    return found


def check_attributes(attributes: Mapping[str, str]) -> None:
    """
    Raises:
        MusterError: a name cannot stand in a constraint, or is one that agents find out themselves
            or that machines of a pool alone have; or a value cannot be asked for.
    """
    if len(attributes) > MAX_ATTRIBUTES:
        raise MusterError(f"--attribute is given {len(attributes)} times: at most {MAX_ATTRIBUTES}")
    for name, value in attributes.items():
        if not re.fullmatch(ATTRIBUTE, name):
            expected = "expected a name of at most 63 letters, digits, . _ / -, first a letter"
        elif name in FOUND_ATTRIBUTES:
            expected = f"agents find out {name} themselves, choose another name"
        elif name in RESERVED:
            expected = f"machines of a pool alone have {name}, choose another name"
        elif value != value.strip() or not value.isprintable() or not 0 < len(value) <= _MAX_VALUE:
            expected = f"expected a value of at most {_MAX_VALUE} characters, no blanks around it"
        else:
            continue
        raise MusterError(f"--attribute is {f'{name}={value}'!r}: {expected}")


def warnings(configs: Sequence[AgentConfig], users: int) -> tuple[str, ...]:
    """Warnings about settings that are allowed and hardly meant.

    Args:
        users: how many users may hand in work.
    """
    if not configs:
        return ()
    found = []
    declared = configs[0].memory_bytes or 0
    has = psutil.virtual_memory().total
    if declared > has:
        found.append(
            f"--memory {format_bytes(declared)} is more than the {format_bytes(has)} of this "
            f"machine: work may be placed that does not fit"
        )
    if users > 1 and os.geteuid() != 0:
        found.append(
            f"{users} users may submit, and each of them acts as your account on this machine: "
            f"its agents do not run as root, so users are not kept apart"
        )
    return tuple(found)
