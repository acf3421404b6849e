"""The accounts of users on a controller's own machine, in a file by which the machines of local
pools have them as the home's own agents do."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from muster.agent.config import AgentConfig
from muster.agent.users_directory import given_by_machine
from muster.app.account_options import AS_BEFORE, with_accounts
from muster.app.home import Home, write_private
from muster.core.errors import MusterError
from muster.core.owner import Owner


def own_accounts(accounts: Mapping[str, str], user: Owner) -> dict[str, str]:
    """The accounts of the home's own agents. Where agents are root, the kernels of ``user`` are
    root's too: ``user`` has the home's token, and only root can read that file. An account to which
    the operator mapped ``user`` comes first."""
    whole = dict(accounts)
    if user.user not in whole:
        whole.setdefault(f"{user.domain}/{user.user}", "root")
    return whole


def write_accounts(home: Home, user: Owner, uids: range | None = None) -> Path:
    """Write the file anew, for its owner alone; the answer is where it is.

    Args:
        uids: from which the controller gives uids to users, where an operator chose that.

    Raises:
        UnusableHome: it cannot be written.
    """
    plain = AgentConfig(home.path, "", "")
    try:
        config = with_accounts(plain, home.settings().agents.accounts)
    except MusterError:  # an account is gone since `up` looked
        config = with_accounts(plain, AS_BEFORE)
    allowed = uids or config.cluster_uids
    written = {
        "accounts": own_accounts(config.accounts, user),
        "system_accounts": config.system_accounts,
        "uids": [config.uids.start, config.uids.stop],
        "cluster_uids": [allowed.start, allowed.stop],
        "users_directory": str(config.users_directory),
        "pids_max": config.pids_max,
        "scratch_max_bytes": config.scratch_max_bytes,
        "cluster": str(home.path),
    }
    write_private(home.accounts_file, json.dumps(written))
    return home.accounts_file


def with_accounts_of(config: AgentConfig, file: Path) -> AgentConfig:
    """The agent's settings with the accounts in a file of ``write_accounts``.

    Raises:
        MusterError: it cannot be read, or is another file.
    """
    try:
        kept = json.loads(file.read_text())
        return replace(
            config,
            accounts={str(user): str(account) for user, account in kept["accounts"].items()},
            system_accounts=bool(kept["system_accounts"]),
            uids=range(*map(int, kept["uids"])),
            cluster_uids=_cluster_uids(kept) or config.cluster_uids,
            users_directory=Path(kept["users_directory"]),
            pids_max=int(kept["pids_max"]),
            scratch_max_bytes=kept["scratch_max_bytes"],
            cluster=str(kept["cluster"]),
        )
    except OSError as error:
        raise MusterError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise MusterError(f"{file} is not the accounts of a controller's own machine") from None


def uids_given(home: Home, agents: Sequence[AgentConfig]) -> dict[str, int]:
    """The uids that the home's own agents gave to users by themselves, by "domain/user", before the
    controller allotted any.

    Args:
        agents: the home's own.
    """
    found: dict[str, int] = {}
    if os.geteuid() == 0 and agents:
        with suppress(OSError):  # none of the users has been here
            found = given_by_machine(agents[0].users_directory, str(home.path))
    return found


def _cluster_uids(kept: Mapping[str, Any]) -> range | None:
    """The range in a file of this version; None in one of an older version."""
    ends = kept.get("cluster_uids")
    return range(*map(int, ends)) if ends else None


def users_directory_in(file: Path) -> Path | None:
    """The directory of users in a file of ``write_accounts``; None if that cannot be read."""
    try:
        return with_accounts_of(AgentConfig(file.parent, "", ""), file).users_directory
    except MusterError:
        return None
