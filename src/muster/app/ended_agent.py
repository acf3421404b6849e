"""The end of an agent of this machine with all its work, which takes the machine out of a
cluster."""

import asyncio
import shutil
from pathlib import Path

from muster.agent.accounts import MachineAccounts
from muster.agent.config import AgentConfig, default_users_directory
from muster.agent.identity import AGENT_LOG, CREDENTIAL_FILE, LOCK_FILE, require_own
from muster.agent.supervisor.cgroup_places import cgroups_name, find_cgroups
from muster.agent.supervisor.shutdown import LOCK_NAME, shut_down
from muster.app.local_agents import holder, stop_agent
from muster.app.own_accounts import users_directory_in
from muster.core.errors import MusterError
from muster.providers.starting import AGENT_SCRIPT, KEEP_LOCK, KEEP_SCRIPT

_OWN_FILES = (LOCK_FILE, AGENT_LOG, CREDENTIAL_FILE, LOCK_NAME)
_MARKS = (*_OWN_FILES, AGENT_SCRIPT, KEEP_SCRIPT, KEEP_LOCK)
"""Files by which a directory is known to be an agent's: one of them is there from the beginning."""
GRACE_S = 5.0
TIMEOUT_S = 20.0
"""Seconds for the end of kernels, added to their grace."""


def end_agent(
    directory: Path,
    *,
    wipe: bool = False,
    users_directory: Path | None = None,
    accounts_file: Path | None = None,
    grace_s: float = GRACE_S,
) -> bool:
    """End the agent on ``directory``, its supervisor and all their kernels, and wait until they are
    gone; what ended before, or is not there, is gone. The answer is whether the directory was an
    agent's.

    Args:
        wipe: whether the files of agent and kernels are removed too. Homes and accounts of users
            stay.
        users_directory: where scratch directories of users are; None means as ``accounts_file``
            says (see ``own_accounts``), or the default.
        grace_s: seconds that kernels have to end by themselves.

    Raises:
        MusterError: something is left; it may be tried again. Or somebody else may have prepared
            the directory, or its files are none of an agent's.
    """
    if not directory.is_dir():
        return False
    require_own(directory)
    is_agents = any((directory / each).exists() for each in _MARKS)
    if wipe and not is_agents and any(directory.iterdir()):
        raise MusterError(
            f"{directory} is no agent's directory, and was left as it is: name that of the agent "
            "by --dir, or its agent by --name"
        )
    asyncio.run(stop_agent(directory))
    if (process := holder(directory)) is not None:
        raise MusterError(f"the agent on {directory} (process {process}) does not end")
    try:
        shut_down(directory, grace_s=grace_s, timeout_s=grace_s + TIMEOUT_S)
        if wipe:
            users = users_directory or (accounts_file and users_directory_in(accounts_file))
            _wipe(directory, users or default_users_directory())
    except OSError as error:  # a TimeoutError is one
        raise MusterError(f"{error}; try again") from None
    return is_agents


def _wipe(directory: Path, users_directory: Path) -> None:
    """
    Raises:
        OSError: something cannot be removed.
    """
    # A supervisor that was killed before it listened may have left these.
    cgroups = find_cgroups(cgroups_name(str(directory)))
    if cgroups is not None:
        cgroups.close()
    config = AgentConfig(directory, "", "", users_directory=users_directory)
    for scratch in MachineAccounts(config).scratch_directories():
        shutil.rmtree(scratch)
    marked_last = sorted(directory.iterdir(), key=lambda each: each.name in _MARKS)
    for each in marked_last:  # what fails half-way can be tried again
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()
    directory.rmdir()
