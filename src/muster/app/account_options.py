"""An operator's options for the accounts that kernels run as, and their limits on a machine."""

import pwd
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from muster.agent.config import AgentConfig
from muster.core.errors import MusterError
from muster.core.resources import parse_bytes
from muster.core.uids import parse_uids

LEAST_PIDS = 16


@dataclass(frozen=True, slots=True)
class AccountOptions:
    """The options as they were written; None is the default.

    Args:
        mapped: user of the cluster -> account of the machine.
        source: "range", or "system": users have the machine's account of the same name.
        uid_range: "FIRST-LAST", of users without an account: nobody else's uids are given to them,
            by whomever.
        users_directory: an absolute path.
    """

    mapped: Mapping[str, str] | None = None
    source: str | None = None
    uid_range: str | None = None
    users_directory: str | None = None
    pids_max: int | None = None
    scratch_max: str | None = None

    def over(self, others: "AccountOptions") -> "AccountOptions":
        """These options, completed by ``others`` where nothing was written here."""
        return replace(others, **self.written())

    def written(self) -> dict[str, Any]:
        """The options that were written, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}


AS_BEFORE = AccountOptions()
"""Options of which none was written."""


def with_accounts(config: AgentConfig, options: AccountOptions) -> AgentConfig:
    """The agent's settings with these options.

    Raises:
        MusterError: an option is wrong.
    """
    mapped = options.mapped or {}
    for user, account in mapped.items():
        _check_account(user, account)
    if options.uid_range is not None:
        uids = option_uids(options.uid_range)
        config = replace(config, uids=uids, cluster_uids=uids)
    if options.users_directory is not None:
        config = replace(config, users_directory=Path(options.users_directory))
    if options.pids_max is not None:
        if options.pids_max < LEAST_PIDS:
            raise MusterError(f"--pids-max is {options.pids_max}: expected at least {LEAST_PIDS}")
        config = replace(config, pids_max=options.pids_max)
    if options.scratch_max is not None:
        try:
            config = replace(config, scratch_max_bytes=parse_bytes(options.scratch_max))
        except ValueError as error:
            raise MusterError(f"--scratch-max is {options.scratch_max!r}: {error}") from None
    return replace(config, accounts=dict(mapped), system_accounts=options.source == "system")


def _check_account(user: str, account: str) -> None:
    try:
        entry = pwd.getpwnam(account)
    except KeyError:
        raise MusterError(
            f"--map-user {user}={account}: this machine has no account {account}"
        ) from None
    if entry.pw_uid == 0 or entry.pw_name == "nobody":
        raise MusterError(
            f"--map-user {user}={account}: no kernel runs as root or nobody, choose another account"
        )


def option_uids(text: str) -> range:
    """The uids of ``--uid-range``.

    Raises:
        MusterError: it is no range of uids that users may have.
    """
    try:
        return parse_uids(text)
    except ValueError as error:
        raise MusterError(f"--uid-range is {text!r}: {error}") from None
