"""A controller or an agent as this very process: what service units and containers start."""

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from muster.agent.config import AgentConfig
from muster.agent.discovery import parse_gpus
from muster.agent.identity import AgentIdentity, load_identity
from muster.agent.users_directory import require_users_directory
from muster.app.account_options import AS_BEFORE, AccountOptions, option_uids, with_accounts
from muster.app.addresses import is_everywhere
from muster.app.agent_process import dump_config
from muster.app.controller_config import ControllerConfig, dump_controller
from muster.app.database_option import named_database, warnings_of
from muster.app.detached import ENVIRONMENT
from muster.app.health_options import HealthOptions, with_health
from muster.app.home import Home, default_home
from muster.app.local import DEFAULT_PORT, agent_port_after
from muster.app.local_agent_settings import amount, check_attributes, some_amount
from muster.app.machine_part import MachinePart, with_part
from muster.core.errors import MusterError
from muster.core.log_options import DEFAULT_LOG, LogOptions
from muster.core.resources import parse_bytes, parse_milli
from muster.core.specs.group import DEFAULT_GROUP
from muster.wire.transport import ServerTls, require_vouched


def run_controller(
    home: Path | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    agent_port: int = 0,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    tls_ca: Path | None = None,
    own_authority_for: Sequence[str] | None = None,
    database: str | None = None,
    uid_range: str | None = None,
    log: LogOptions = DEFAULT_LOG,
) -> None:
    """Be the controller of a cluster whose agents are elsewhere; does not return.

    Args:
        tls_ca: the authority that vouches for ``tls_cert``, for clients of this machine.
        database: a PostgreSQL URL, or a file; None means the environment's, or that of `muster up`,
            or else the home's own.
        own_authority_for: names besides this machine's for which the home's own authority makes a
            certificate; None makes no certificate.
        uid_range: "FIRST-LAST", from which users are given uids; None means that of `muster up`, or
            else the one that follows from the cluster's id.

    Raises:
        MusterError: only one of certificate and key was given, or both together with an own
            authority; the authority did not issue the certificate, or lacks a part; the range of
            uids is none; or somebody else may have prepared the home.
    """
    place = Home(home or default_home())
    place.require_own()
    if own_authority_for is None:
        tls, authority = _given_tls(tls_cert, tls_key, tls_ca)
    elif tls_cert is None and tls_key is None:
        tls, authority = _own_tls(place, host, own_authority_for)
    else:
        raise MusterError(
            "--tls-self-signed makes a certificate: leave --tls-cert and --tls-key out"
        )
    for warning in warnings_of(database):
        _say(f"warning: {warning}")
    last = place.settings()
    uid_range = uid_range or last.agents.accounts.uid_range
    port = port or last.port or DEFAULT_PORT
    agent_port = agent_port or last.agent_port or agent_port_after(port)
    config = ControllerConfig(
        place,
        host=host,
        port=port,
        agent_port=agent_port,
        tls=tls,
        authority=authority,
        database=named_database(database, place),
        uids=option_uids(uid_range) if uid_range is not None else None,
    )
    _become("muster.app.controller_process", dump_controller(config), log)


def _given_tls(
    certificate: Path | None, key: Path | None, authority: Path | None
) -> tuple[ServerTls | None, Path | None]:
    """The certificate that an operator gave, if any, and the authority of clients, which read it
    wherever they are.

    Raises:
        MusterError: one of certificate and key is missing; or the authority did not issue it.
    """
    if (certificate is None) != (key is None):
        raise MusterError("--tls-cert and --tls-key go together: give both, or neither")
    if authority is not None:
        authority = authority.expanduser().absolute()
    if certificate is None or key is None:
        return None, authority
    tls = ServerTls(certificate.expanduser().absolute(), key.expanduser().absolute())
    if authority is not None:
        require_vouched(tls, authority)
    return tls, authority


def _own_tls(home: Home, host: str, names: Sequence[str]) -> tuple[ServerTls, Path]:
    """A certificate of the home's own authority, and that authority.

    Raises:
        MusterError: the authority lacks a part, or a file cannot be written.
    """
    from muster.app.own_authority import own_certificate

    home.create()
    named = names if is_everywhere(host) else [*names, host]
    return own_certificate(home, named, say=_say), home.authority


def run_agent(
    controller: str,
    token: str | None = None,
    token_file: Path | None = None,
    name: str | None = None,
    group: str | None = None,
    directory: Path | None = None,
    cpus: str | None = None,
    memory: str | None = None,
    gpus: str | None = None,
    resources: Mapping[str, str] | None = None,
    attributes: Mapping[str, str] | None = None,
    ca: Path | None = None,
    accounts: AccountOptions | None = None,
    part: MachinePart | None = None,
    health: HealthOptions | None = None,
    log: LogOptions = DEFAULT_LOG,
) -> None:
    """Be an agent of the controller at "host:port"; does not return. One that has joined needs no
    token, and keeps the name and the group with which it did.

    Raises:
        MusterError: an amount, attribute, account or check is wrong, the token file of an agent
            that has not joined cannot be read, or users can have no place in the directory.
    """
    directory = agent_directory(directory, name)
    joined = load_identity(directory)
    joined = joined if joined is not None and joined.has_joined else None
    if token is None and token_file is not None:
        token = _token_in(token_file, joined)
    if gpus is not None:
        parse_gpus(gpus)
    check_attributes(attributes or {})
    _warn_of_what_stays(joined, name, group)
    extra = {
        key: amount(f"--resource {key}", text, parse_milli) or 0
        for key, text in (resources or {}).items()
    }
    config = AgentConfig(
        directory=directory,
        controller=controller,
        name=(joined and joined.name) or name or _own_name(),
        group=(joined and joined.group) or group or DEFAULT_GROUP,
        token=token,
        new_name=name,
        new_group=group,
        certificate_authority=ca,
        gpus=gpus,
        cpu_milli=some_amount("--cpus", cpus, parse_milli),
        memory_bytes=some_amount("--memory", memory, parse_bytes),
        extra=extra,
        attributes=attributes or {},
    )
    config = with_accounts(replace(config, cluster=str(directory)), accounts or AS_BEFORE)
    config = with_part(config, part or MachinePart())
    config = with_health(config, health or HealthOptions())
    require_users_directory(config.users_directory)
    _become("muster.app.agent_process", dump_config(config), log)


def _token_in(file: Path, joined: AgentIdentity | None) -> str | None:
    """The join token in a file; None where it cannot be read and is not needed.

    Raises:
        MusterError: it cannot be read, and the agent has not joined.
    """
    try:
        return file.read_text().strip()
    except OSError as error:
        if joined is None:
            raise MusterError(f"cannot read {file}: {error.strerror}") from None
        sys.stderr.write(
            f"warning: cannot read {file}: {error.strerror}. This agent has joined, and needs a "
            f"token only if its controller no longer knows it\n"
        )
        return None


def _warn_of_what_stays(joined: AgentIdentity | None, name: str | None, group: str | None) -> None:
    """Say which options have no effect, because the agent has joined with others."""
    if joined is None:
        return
    for option, asked, has in (("--name", name, joined.name), ("--group", group, joined.group)):
        if not has and asked is not None and joined.has_joined:
            sys.stderr.write(
                f"warning: {option} {asked} has no effect if this agent ({joined.agent}) has "
                f"joined with another: an earlier version did not note it, and `muster agents` "
                f"tells it\n"
            )
        if has and asked is not None and asked != has:
            sys.stderr.write(
                f"warning: {option} {asked} has no effect unless it joins anew: this agent has "
                f"joined as {joined.name} in group {joined.group}. `muster agents remove "
                f"{joined.name}`, then a start with a join token, has it do so\n"
            )


def agent_directory(directory: Path | None, name: str | None) -> Path:
    """The directory of the agent of this machine with these options."""
    named = directory or default_home() / "agents" / (name or _own_name())
    return named.expanduser().absolute()


def _say(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")


def _own_name() -> str:
    return socket.gethostname().partition(".")[0]


def _become(module: str, settings: str, log: LogOptions) -> NoReturn:
    """Replace this process by the module's, which reads its settings from standard input."""
    environment = os.environ | ENVIRONMENT | log.environment
    descriptor = os.memfd_create("settings")
    os.write(descriptor, settings.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(descriptor, 0)
    os.execve(sys.executable, [sys.executable, "-m", module], environment)
