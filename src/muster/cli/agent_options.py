"""Options of ``muster up`` and ``muster agent``: an agent's capacity, and the accounts of its
kernels."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from muster.cli.parameters import Option
from muster.cli.request import ATTRIBUTE, pairs

if TYPE_CHECKING:
    from muster.app.account_options import AccountOptions
    from muster.app.health_options import HealthOptions
    from muster.app.machine_part import MachinePart


class AccountSource(StrEnum):
    """The source of accounts for users that were not mapped to one."""

    RANGE = "range"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """An agent's capacity and attributes, in place of those that it finds."""

    cpus: Annotated[
        str | None, Option("--cpus", metavar="N", help="Processors of an agent; else as found.")
    ] = None
    memory: Annotated[
        str | None,
        Option("--memory", metavar="SIZE", help="Memory of an agent, as 16GiB; else as found."),
    ] = None
    gpus: Annotated[
        str | None,
        Option(
            "--gpus", metavar="NxMODEL", help="GPUs of an agent, as 4xH100, or 4; else as found."
        ),
    ] = None
    attribute: Annotated[
        list[str] | None,
        Option(
            "--attribute",
            metavar="NAME=VALUE",
            help="Give agents an attribute, as zone=a; may be repeated.",
        ),
    ] = None

    def attributes(self) -> dict[str, str] | None:
        """The given attributes by name; None where none were given.

        Raises:
            click.BadParameter: an attribute is not NAME=VALUE.
        """
        return _pairs_or_none(self.attribute, "--attribute", ATTRIBUTE)


@dataclass(frozen=True, slots=True)
class AgentAccountOptions:
    """The accounts of kernels, and their limits, on a machine whose agent is root."""

    map_user: Annotated[
        list[str] | None,
        Option(
            "--map-user",
            metavar="USER=ACCOUNT",
            help="Run a user's kernels as this account; as root only.",
        ),
    ] = None
    accounts: Annotated[
        AccountSource | None,
        Option(
            "--accounts",
            help="Give users uids of a range, or the machine's accounts. [default: range]",
        ),
    ] = None
    uid_range: Annotated[
        str | None,
        Option(
            "--uid-range",
            metavar="FIRST-LAST",
            show_default=False,
            help="Let users have uids of this range alone. [default: those that clusters choose]",
        ),
    ] = None
    users_dir: Annotated[
        Path | None,
        Option(
            "--users-dir",
            metavar="DIR",
            help="Directory of users' homes. [default: /var/lib/muster/users]",
        ),
    ] = None
    pids_max: Annotated[
        int | None,
        Option("--pids-max", metavar="N", help="Most processes of a kernel. [default: 4096]"),
    ] = None
    scratch_max: Annotated[
        str | None,
        Option(
            "--scratch-max",
            metavar="SIZE",
            help="Most that a kernel without `disk` keeps. [default: half of the disk]",
        ),
    ] = None

    def options(self) -> "AccountOptions":
        """
        Raises:
            click.BadParameter: a mapping is not USER=ACCOUNT.
        """
        from muster.app.account_options import AccountOptions

        return AccountOptions(
            mapped=_pairs_or_none(self.map_user, "--map-user", "USER=ACCOUNT, such as ann=annb"),
            source=self.accounts,
            uid_range=self.uid_range,
            users_directory=str(self.users_dir.expanduser().absolute()) if self.users_dir else None,
            pids_max=self.pids_max,
            scratch_max=self.scratch_max,
        )


@dataclass(frozen=True, slots=True)
class Part:
    """The part that an agent has of a machine with several."""

    disk: Annotated[
        str | None, Option("--disk", metavar="SIZE", help="Disk of an agent; else as found.")
    ] = None
    gpu_memory: Annotated[
        str | None, Option("--gpu-memory", metavar="SIZE", help="Memory of each device of --gpus.")
    ] = None
    ports: Annotated[
        str | None,
        Option(
            "--ports",
            metavar="FIRST-LAST",
            help="Range of ports given to kernels. [default: 20000-29999]",
        ),
    ] = None
    boot_id: Annotated[
        str | None,
        Option(
            "--boot-id",
            metavar="TEXT",
            help="Boot of a machine that shares an operating system; another says that all its "
            "processes have ended.",
        ),
    ] = None
    cluster: Annotated[
        str | None,
        Option(
            "--cluster",
            metavar="TEXT",
            help="Share users' accounts with the agents of this cluster here. [default: with none]",
        ),
    ] = None
    accounts_file: Annotated[
        Path | None,
        Option(
            "--accounts-file",
            metavar="FILE",
            help="Share users' accounts with the agents of the home with this file.",
        ),
    ] = None

    def options(self) -> "MachinePart":
        from muster.app.machine_part import MachinePart

        return MachinePart(
            self.disk, self.gpu_memory, self.ports, self.boot_id, self.cluster, self.accounts_file
        )


@dataclass(frozen=True, slots=True)
class AgentHealthOptions:
    """The checks of an agent's machine, and how it is rebooted."""

    check: Annotated[
        list[str] | None,
        Option(
            "--check",
            metavar="NAME=COMMAND",
            help="Add a health check of your own; may be repeated.",
        ),
    ] = None
    check_limit: Annotated[
        list[str] | None,
        Option(
            "--check-limit",
            metavar="NAME=NUMBER",
            help="Set a limit of a health check, as disk_free=0.05; may be repeated.",
        ),
    ] = None
    reboot_command: Annotated[
        str | None,
        Option(
            "--reboot-command",
            metavar="COMMAND",
            help="Reboot a faulty machine so. [default: systemctl reboot]",
        ),
    ] = None

    def options(self) -> "HealthOptions":
        """
        Raises:
            click.BadParameter: a check is not NAME=COMMAND, or a limit not NAME=NUMBER.
        """
        from muster.app.health_options import HealthOptions

        return HealthOptions(
            pairs(self.check or [], "--check", "NAME=COMMAND, such as fans=/opt/check-fans"),
            pairs(self.check_limit or [], "--check-limit", "NAME=NUMBER, such as disk_free=0.05"),
            self.reboot_command,
        )


def _pairs_or_none(texts: list[str] | None, option: str, form: str) -> dict[str, str] | None:
    """The given pairs; none where the only text is "none", as in `muster up --attribute none`."""
    if not texts:
        return None
    return {} if texts == ["none"] else pairs(texts, option, form)
