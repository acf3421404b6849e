"""The settings with which an agent starts."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from muster.core.uids import UIDS_OF_CLUSTERS
from muster.wire.transport import KeepAlive

USERS_DIRECTORY = Path("/var/lib/muster/users")
GIB = 2**30
DAY_S = 86400.0


def default_users_directory() -> Path:
    """The default directory of users, outside the agent's own directory, which is root's alone."""
    return Path(os.environ.get("MUSTER_USERS_DIR") or USERS_DIRECTORY)


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The settings of one agent; ``None`` and empty mean "find out".

    Args:
        directory: everything the agent keeps: identity, journal, scratch directories, logs.
        controller: "host:port" of the controller's agent gateway.
        name: of the agent, for people.
        group: the scaling group it joins.
        new_name, new_group: those with which it joins anew, if it has to: an agent that has joined
            keeps ``name`` and ``group`` until then.
        token: a join token, needed at first contact and when the controller forgot the agent.
        certificate_authority: PEM file that the controller's certificate descends from.
        host: where kernels of other agents reach this machine.
        gpus: devices declared for a machine without NVML, such as "4xH100" or "2xA100,1xT4".
        cpu_milli, memory_bytes, disk_bytes: declared capacity, in place of the machine's.
        extra: named extra resources, in thousandths.
        attributes: for constraints, added to those that are found out.
        ports: the range in which ports for kernels are reserved.
        log_max_bytes: a kernel's log is rotated at this size; the last two files of it are kept.
        logs_max_age_s: logs and scratch directories of ended kernels that are older are removed.
        logs_max_bytes: of all logs. Where they take more, owners lose their oldest logs of ended
            kernels, those with the most first; nobody loses any of an equal share.
        kept_scratch_max_bytes: of all scratch directories of ended kernels, likewise; None is half
            of the file system.
        tidy_period_s: how often it is looked for what is to be removed.
        keepalive: how soon a frozen or unreachable controller is noticed.
        accounts: users of the cluster ("user", or "domain/user" outside of the default domain) by
            name -> accounts of this machine. This and the next five settings apply to an agent that
            is root.
        system_accounts: whether users of the default domain have the machine's account of the same
            name, if there is one.
        uids: the range from which the agent gives uids by itself to users without an account, one
            to each, where the controller tells none.
        cluster_uids: the range in which the controller may tell uids of users, besides ``uids``.
        users_directory: homes of users without an account, and scratch directories of all but root.
        cluster: tells the users of this cluster from those of another on the same machine.
        pids_max: how many processes a kernel may have.
        scratch_max_bytes: the limit of a kernel's scratch directory if it asked for no disk; None
            is half of the file system.
        gpu_memory_bytes: of each of the declared devices.
        boot_id: the name of the present boot, where several machines share an operating system; it
            changes only when all processes of the machine have ended.
        checks: the operator's own health checks by name, each as a command line.
        check_limits: limits of health checks by their names, where they differ.
        reboot_command: the command line that reboots the machine; without one it is "systemctl
            reboot", and nothing where the controller is on the same machine.
    """

    directory: Path
    controller: str
    name: str
    group: str = "default"
    token: str | None = None
    new_name: str | None = None
    new_group: str | None = None
    certificate_authority: Path | None = None
    host: str | None = None
    gpus: str | None = None
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    extra: Mapping[str, int] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)
    ports: range = range(20_000, 30_000)
    log_max_bytes: int = GIB // 16
    logs_max_age_s: float = 7 * DAY_S
    logs_max_bytes: int = 10 * GIB
    kept_scratch_max_bytes: int | None = None
    tidy_period_s: float = 120.0
    keepalive: KeepAlive = field(default_factory=KeepAlive)
    accounts: Mapping[str, str] = field(default_factory=dict)
    system_accounts: bool = False
    uids: range = range(200_000, 265_536)
    cluster_uids: range = UIDS_OF_CLUSTERS
    users_directory: Path = field(default_factory=default_users_directory)
    cluster: str = ""
    pids_max: int = 4096
    scratch_max_bytes: int | None = None
    gpu_memory_bytes: int = 0
    boot_id: str | None = None
    checks: Mapping[str, str] = field(default_factory=dict)
    check_limits: Mapping[str, float] = field(default_factory=dict)
    reboot_command: str = ""

    def joining_anew(self) -> "AgentConfig":
        """The configuration of an agent that has to join anew."""
        return replace(self, name=self.new_name or self.name, group=self.new_group or self.group)
