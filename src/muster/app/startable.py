"""Checks before systemd is given a unit: whether its command could ever start."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from muster.agent.identity import UnusableDirectory, load_identity
from muster.app.foreground import agent_directory
from muster.app.service import UnitRole
from muster.core.errors import MusterError
from muster.core.host_port import joined
from muster.wire.transport import (
    ServerTls,
    read_authority,
    require_pair,
    require_secure,
    require_vouched,
)


def require_startable(role: UnitRole, options: Mapping[str, Any]) -> None:
    """Refuse options of ``muster ROLE`` with which a unit could never start: files that are not
    there or are no certificates, an address that needs TLS, an agent that cannot join.

    Args:
        options: the parameters of the command by name.

    Raises:
        MusterError: they are such.
    """
    if role is UnitRole.AGENT:
        _require_agent(options)
        return
    certificate, key = options["tls_cert"], options["tls_key"]
    if (certificate is None) != (key is None):
        raise MusterError("--tls-cert and --tls-key go together: give both, or neither")
    has_own = bool(options.get("tls_self_signed") or options.get("tls_name"))
    require_secure(joined(options["host"], 0), tls=certificate is not None or has_own)
    if certificate is None:
        return
    tls = ServerTls(certificate, key)
    if (authority := options.get("tls_ca")) is not None:
        require_vouched(tls, authority)
    else:
        require_pair(tls)


def _require_agent(options: Mapping[str, Any]) -> None:
    authority, token_file = options["ca"], options["token_file"]
    remedy = "name the controller's authority: `--ca FILE`"
    require_secure(options["address"], tls=authority is not None, remedy=remedy)
    if authority is not None:
        read_authority(authority)
    if token_file is not None:
        try:
            text = token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise MusterError(f"cannot read {token_file}: {error}") from None
        if not text:
            raise MusterError(f"{token_file} is empty: it has to hold a join token")
        return
    directory = agent_directory(options["directory"], options["name"])
    kept = None
    with suppress(UnusableDirectory):
        kept = load_identity(directory)
    if kept is None or not kept.agent:
        raise MusterError(
            f"this agent has not joined yet (there is no credential in {directory}): name the file "
            f"of a join token with --token-file; `muster agents invite --unit` prints it all"
        )
