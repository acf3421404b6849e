"""The settings of a pool whose machines are a list of hosts."""

import hashlib
import shlex
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated

import asyncssh
from pydantic import AfterValidator, Field, StringConstraints

from muster.core.errors import InvalidSpec, Problem
from muster.core.specs.amounts import Duration, Flag, PathText, ShortText, Spec, Text, Whole
from muster.core.specs.load import parse_spec
from muster.core.specs.pool import PoolSpec
from muster.providers.ssh.host_list import DEFAULT_PORT, MAX_HOSTS, USER, Host, expand
from muster.providers.starting import AgentPlace

HOST_FIELD = "{host}"


def _hosts(entries: tuple[str, ...]) -> tuple[str, ...]:
    """
    Raises:
        ValueError: an entry is no host.
    """
    for _ in expand(entries):
        pass
    return entries


def _path(path: str) -> str:
    """
    Raises:
        ValueError: it depends on the directory that a controller was started in.
    """
    if not path.startswith(("/", "~/")):
        raise ValueError("expected an absolute path on the controller, or one that begins with ~/")
    return path


def _directory(directory: str) -> str:
    """
    Raises:
        ValueError: it is no path that an agent can have.
    """
    AgentPlace(directory.replace(HOST_FIELD, "host"))
    return directory


def _requirement(text: str) -> str:
    """
    Raises:
        ValueError: pip would take it for an option.
    """
    if not text.strip() or text.lstrip().startswith("-") or not text.isprintable():
        raise ValueError(
            "expected a requirement such as muster-scheduler==1.2 or a path, no option"
        )
    return text


def _known(lines: tuple[str, ...]) -> tuple[str, ...]:
    """
    Raises:
        ValueError: they are no lines of a file of known hosts.
    """
    expected = "expected lines such as 'gpu[0-9]* ssh-ed25519 AAAA…'"
    for line in lines:
        if "\n" in line or len(line.split()) < 3:
            raise ValueError(expected)
        try:
            asyncssh.import_known_hosts(line)
        except ValueError as error:
            raise ValueError(f"{expected}: {error}") from None
    return lines


_ControllerPath = Annotated[PathText, AfterValidator(_path)]
_Command = Annotated[tuple[Text, ...], Field(min_length=1, max_length=100)]
_Program = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_/][A-Za-z0-9_./+-]{0,254}$")]
_UserName = Annotated[str, StringConstraints(pattern=f"^{USER}$")]


class SshSettings(Spec):
    """A list of hosts, and how they are reached and become agents.

    Args:
        hosts: ``host``, ``user@host:port`` or ranges such as ``gpu[01-16]``.
        user: whom to log in as where the list does not say; else the controller's own user.
        port: of hosts whose port the list does not say.
        key_file: the private key, a file of the controller that no other user may read; without it
            the keys that ``ssh`` there would try.
        known_hosts: the file with the keys of the hosts, on the controller.
        host_keys: the lines of such a file, in place of it.
        muster: the command on the hosts.
        python: Python there, which a call of the provider runs on, and ``install``.
        install: what pip installs into an environment of its own, in place of ``muster``.
        directory: for the claim and the agent; ``{host}`` in it stands for the host's address.
            Pools that share hosts have the same one, or they do not see each other's claims.
        sudo: whether everything on the hosts is done with ``sudo -n``.
        shutdown_command: is run on a host that was given back.
        reboot_command: has a host boot anew; ``--force`` follows where it must not wait.
        connect_timeout: for connection and login.
    """

    hosts: Annotated[
        tuple[ShortText, ...], Field(min_length=1, max_length=MAX_HOSTS), AfterValidator(_hosts)
    ]
    user: _UserName | None = None
    port: Annotated[Whole, Field(ge=1, le=65535)] = DEFAULT_PORT
    key_file: _ControllerPath | None = None
    known_hosts: _ControllerPath | None = None
    host_keys: Annotated[
        tuple[Annotated[str, StringConstraints(max_length=10_000)], ...],
        Field(max_length=MAX_HOSTS),
        AfterValidator(_known),
    ] = ()
    muster: _Program = "muster"
    python: _Program = "python3"
    install: Annotated[ShortText, AfterValidator(_requirement)] | None = None
    directory: Annotated[PathText, AfterValidator(_directory)] = "/var/lib/muster/machine"
    sudo: Flag = False
    shutdown_command: _Command | None = None
    reboot_command: _Command = ("reboot",)
    connect_timeout: Annotated[Duration, Field(gt=0, le=30)] = 10.0

    def contradictions(self) -> Iterator[Problem]:
        if bool(self.known_hosts) == bool(self.host_keys):
            given = (
                "one of the two"
                if self.known_hosts
                else (
                    "a file as `ssh-keyscan` writes it, or its lines as host_keys: a host is not "
                    "trusted because it answers first"
                )
            )
            yield Problem("known_hosts", "", f"expected {given}")
        seen: set[tuple[str, int | None]] = set()
        for host in self.machines:
            if (key := (host.address.lower(), host.port)) in seen:
                yield Problem("hosts", str(host), "is there twice: expected each host once")
                return
            seen.add(key)

    @cached_property
    def machines(self) -> tuple[Host, ...]:
        """The hosts with their ports, in the order of the list."""
        return tuple(
            Host(host.address, host.port or self.port, host.user) for host in expand(self.hosts)
        )

    def id_of(self, host: Host) -> str:
        """The id of a machine: the host as people write it, without a user and a usual port."""
        return str(Host(host.address, None if host.port == self.port else host.port))

    def directory_on(self, host: Host) -> str:
        """The directory for claim and agent."""
        return self.directory.replace(HOST_FIELD, host.address.replace(":", "-"))

    def place_on(self, host: Host) -> AgentPlace:
        """The place of the agent, in a directory below that of the claim."""
        directory = self.directory_on(host)
        program = self.muster if self.install is None else f"{directory}/venv/bin/muster"
        unit = f"muster-agent-{hashlib.sha256(directory.encode()).hexdigest()[:8]}"
        return AgentPlace(f"{directory}/agent", (program,), unit)

    def preparation(self, host: Host) -> list[str]:
        """Lines of shell that install Muster on a host that has none of this requirement yet."""
        if self.install is None:
            return []
        venv = f"{self.directory_on(host)}/venv"
        pip = [f"{venv}/bin/python", "-m", "pip", "install", "--quiet", "--no-input"]
        return [
            f"if ! [ -x {venv}/bin/muster ]; then",
            shlex.join([self.python, "-m", "venv", "--clear", venv]),
            shlex.join([*pip, "--disable-pip-version-check", "--", self.install]),
            "fi",
        ]

    def path(self, path: str) -> Path:
        """A file of the controller."""
        return Path(path).expanduser()


def settings_of(spec: PoolSpec) -> SshSettings:
    """The settings of a pool.

    Raises:
        InvalidSpec: they are wrong; the fields begin with ``settings.``.
    """
    try:
        settings = parse_spec(SshSettings, spec.settings)
    except InvalidSpec as error:
        raise InvalidSpec(
            [
                Problem(f"settings.{each.field}", each.value, each.expected)
                for each in error.problems
            ]
        ) from None
    if len(settings.machines) < spec.slice_size:
        expected = f"expected at least slice_size, which is {spec.slice_size}"
        count = f"{len(settings.machines)} hosts"
        raise InvalidSpec([Problem("settings.hosts", count, expected)])
    return settings
