"""systemd units that run a controller, an agent or a proxy, and start them again when they fail.

What ends in order, as by `muster down` or `muster agent --end`, stays down until the next boot or
`systemctl start`; so does what would only fail again: a controller that another one has followed,
an agent that the controller has removed. An agent's unit kills the agent alone
(``KillMode=process``): its supervisor and kernels survive a restart, and the next agent finds them
again. See systemd.service(5), systemd.kill(5).
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from muster.core.errors import MusterError, Superseded, Unwelcome
from muster.files import make_directory, write_whole

SYSTEMD_RUNS = Path("/run/systemd/system")
SYSTEMCTL_TIMEOUT_S = 90.0
MAX_WORD = 4096


class UnitRole(StrEnum):
    CONTROLLER = "controller"
    AGENT = "agent"
    PROXY = "proxy"


_KILL_MODES = {
    UnitRole.CONTROLLER: "mixed",
    UnitRole.AGENT: "process",
    UnitRole.PROXY: "mixed",
}
_NOT_AGAIN = {
    UnitRole.CONTROLLER: f"RestartPreventExitStatus={Superseded.exit_code}\n",
    UnitRole.AGENT: f"RestartPreventExitStatus={Unwelcome.exit_code}\n",
    UnitRole.PROXY: "",
}
"""The exit codes of processes that would end in the same way again."""


@dataclass(frozen=True, slots=True)
class SystemUnit:
    """A unit of the system, or with ``of_user`` of one person."""

    role: UnitRole
    of_user: bool

    @property
    def name(self) -> str:
        return f"muster-{self.role}.service"

    @property
    def file(self) -> Path:
        if not self.of_user:
            return Path("/etc/systemd/system") / self.name
        base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        return Path(base) / "systemd" / "user" / self.name

    def commands(self, *actions: str) -> list[list[str]]:
        """The commands that have systemd reload its units and carry out ``actions`` on this one."""
        systemctl = ["systemctl", *(["--user"] if self.of_user else [])]
        acting = [[*systemctl, *actions, self.name]] if actions else []
        return [[*systemctl, "daemon-reload"], *acting]


def unit_text(service: SystemUnit, words: Sequence[str], home: Path, directory: Path) -> str:
    """The unit that runs ``muster ROLE WORDS`` in ``directory``.

    Raises:
        MusterError: a word cannot stand in a unit, or the program is not where it should be.
    """
    program = Path(sys.executable).with_name("muster")
    if not program.is_file():
        raise MusterError(f"{program} is not there: install Muster for {sys.executable}")
    command = " ".join(_quoted(word) for word in (str(program), service.role, *words))
    after = " muster-controller.service" if service.role is UnitRole.PROXY else ""
    wanted_by = "default.target" if service.of_user else "multi-user.target"
    return f"""\
[Unit]
Description=Muster {service.role}
Documentation=man:systemd.service(5)
After=network-online.target{after}
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart={command}
WorkingDirectory={_path(directory)}
Environment={_quoted(f"MUSTER_HOME={home}")}
Restart=on-failure
RestartSec=1
{_NOT_AGAIN[service.role]}KillMode={_KILL_MODES[service.role]}
TimeoutStopSec=60
{_limits(service.role)}UMask=0077

[Install]
WantedBy={wanted_by}
"""


def unit_of(process: int) -> SystemUnit | None:
    """The unit of Muster's that systemd runs as this process; None if it is another, or none."""
    with suppress(OSError):
        text = Path(f"/proc/{process}/cgroup").read_text()
        return unit_in(text)
    return None


def unit_in(cgroups: str) -> SystemUnit | None:
    """The unit of Muster's in the text of /proc/PID/cgroup (cgroups(7))."""
    for line in cgroups.splitlines():
        path = line.split(":", 2)[-1]
        parts = path.split("/")
        for role in UnitRole:
            unit = SystemUnit(role, of_user=any(part.startswith("user@") for part in parts))
            if unit.name in parts:
                return unit
    return None


def starts_again(unit: SystemUnit) -> bool:
    """Whether systemd starts the unit again also after it was told to end, as units of earlier
    versions say."""
    with suppress(OSError):
        return "\nRestart=always\n" in unit.file.read_text()
    return False


def _limits(role: UnitRole) -> str:
    if role is not UnitRole.AGENT:
        return "LimitNOFILE=65536\n"
    from muster.providers.starting import AGENT_LIMITS  # takes long, and `muster up` needs it not

    return AGENT_LIMITS


def install(service: SystemUnit, words: Sequence[str], home: Path, directory: Path) -> list[str]:
    """Write the unit, and have systemd run it from now on; the answer is the commands that are left
    to a person.

    Raises:
        MusterError: the unit cannot be written, or systemd refuses it.
    """
    text = unit_text(service, words, home, directory)
    try:
        make_directory(service.file.parent, 0o755)
        write_whole(service.file, text, 0o644)
    except OSError as error:
        raise MusterError(
            f"cannot write {service.file}: {error.strerror}; --user makes a unit of your own"
        ) from None
    left = _carried_out(service.commands("enable", "--now"))
    if service.of_user:
        left.append("loginctl enable-linger  # so that it runs while you are not logged in")
    return left


def uninstall(service: SystemUnit) -> list[str]:
    """Stop the unit and remove it; the answer is the commands that are left to a person.

    Raises:
        MusterError: there is no such unit, or it cannot be removed.
    """
    if not service.file.exists():
        raise MusterError(f"{service.file} is not there: nothing to remove")
    left = _carried_out(service.commands("disable", "--now")[1:])
    try:
        service.file.unlink()
    except OSError as error:
        raise MusterError(f"cannot remove {service.file}: {error.strerror}") from None
    return left + _carried_out(service.commands())


def show(service: SystemUnit) -> str:
    """The text of the installed unit.

    Raises:
        MusterError: there is no such unit.
    """
    try:
        return service.file.read_text()
    except OSError as error:
        raise MusterError(f"cannot read {service.file}: {error.strerror}") from None


def _carried_out(commands: Sequence[Sequence[str]]) -> list[str]:
    """Run the commands where systemd runs; else answer with them, as left to a person.

    Raises:
        MusterError: a command failed.
    """
    if not SYSTEMD_RUNS.is_dir():
        return [" ".join(command) for command in commands]
    for command in commands:
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=SYSTEMCTL_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MusterError(f"`{' '.join(command)}` failed: {error}") from None
        if done.returncode:
            raise MusterError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")
    return []


def _quoted(word: str) -> str:
    """One word of a command line in a unit (systemd.syntax(7), "Quoting").

    Raises:
        MusterError: the word has a character that no unit can hold.
    """
    if len(word) > MAX_WORD or not word.isprintable():
        raise MusterError(f"{word[:80]!r} cannot stand in a unit: it is too long, or not printable")
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'


def _path(path: Path) -> str:
    """The value of a setting that takes a path, which is not quoted."""
    _quoted(str(path))
    return str(path).replace("%", "%%")
