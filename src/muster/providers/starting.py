"""How a machine becomes an agent by itself: the command for it, and a script that writes the files
which the command needs and keeps it running, for machines that take one at their first boot or over
a connection."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from muster.providers.provider import SliceOrder

_PATH = re.compile(r"(?:/[A-Za-z0-9._-]{1,100}){1,20}")
_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
AGENT_SCRIPT, KEEP_SCRIPT, KEEP_LOCK = "agent.sh", "keep.sh", "keep.lock"
"""Files in an agent's directory by which it is started, and kept where there is no systemd."""
PAUSE_S = 5
"""Seconds between the end of an agent and its next start."""
AGENT_LIMITS = """\
LimitNOFILE=65536
LimitMEMLOCK=infinity
TasksMax=infinity
OOMPolicy=continue
Delegate=yes
DelegateSubgroup=agent
"""
"""Settings of an agent's unit, so that its kernels have what the machine has, and the end of one
does not concern the others (systemd.exec(5), systemd.resource-control(5)). Memory can be locked, as
RDMA needs it; a unit's usual limit of tasks, and its end when a process is killed for memory, do
not hold; the supervisor may make cgroups below the unit. From systemd 254 on the agent has a cgroup
of its own there, as version 2 needs it."""


@dataclass(frozen=True, slots=True)
class AgentPlace:
    """The place where a machine keeps its agent.

    Args:
        directory: the agent's own; the files that it starts with are in it, and are for its owner
            alone. Absolute, of letters, digits and ``. _ -``.
        program: the words that start ``muster`` there.
        unit: the name of the service; another agent on the same machine needs another.

    Raises:
        ValueError: the directory or the unit has another form.
    """

    directory: str = "/var/lib/muster/agent"
    program: tuple[str, ...] = ("muster",)
    unit: str = "muster-agent"

    def __post_init__(self) -> None:
        parts = self.directory.split("/")
        if not _PATH.fullmatch(self.directory) or {".", ".."}.intersection(parts):
            raise ValueError(
                f"{self.directory[:100]!r}: expected an absolute path of letters, digits and . _ -"
            )
        if not _UNIT.fullmatch(self.unit):
            raise ValueError(f"{self.unit[:100]!r}: expected a name of letters, digits and . _ -")

    @property
    def token_file(self) -> str:
        return f"{self.directory}/join-token"

    @property
    def authority_file(self) -> str:
        return f"{self.directory}/authority.pem"


def agent_command(order: SliceOrder, name: str, place: AgentPlace) -> list[str]:
    """The command that makes a machine of a slice an agent. There is no secret in it: the token is
    in ``place.token_file`` and the authority, if there is one, in ``place.authority_file``.

    The machine's capacity is left to the agent to find out, and what it finds counts; its extra
    resources are declared, because no agent can find those.

    Args:
        name: of the agent; one of ``order.names``.
    """
    options = agent_options(order, name, place.directory, place.token_file, place.authority_file)
    return [*place.program, "agent", *options]


def agent_options(
    order: SliceOrder, name: str, directory: str, token_file: str, authority_file: str
) -> list[str]:
    """The options of ``muster agent`` in ``agent_command``, with paths of any form."""
    setup = order.setup
    words = ["--controller", setup.controller, "--name", name, "--group", setup.group]
    words += ["--dir", directory, "--token-file", token_file]
    if setup.authority is not None:
        words += ["--ca", authority_file]
    if setup.uids is not None:
        words += ["--uid-range", setup.uids]
    for resource, milli in order.shape.extra.items():
        words += ["--resource", f"{resource}={milli}m"]
    return words


def start_script(
    order: SliceOrder, name: str, place: AgentPlace, prepare: Sequence[str] = ()
) -> str:
    """A POSIX shell script that makes a machine of a slice an agent: now, whenever the agent has
    ended, and after each boot. It may run again.

    The script holds the join token, so whoever can read the script can join. A machine gets it as
    cloud-init's user data (which must not be larger than 16 KiB at EC2), or on standard input of
    ``sh``; never as an argument.

    Root's agent becomes a service where systemd runs. Otherwise a shell in the background keeps it,
    which cron starts after a boot; where there is no cron either, the script says so.

    Args:
        name: of the agent; one of ``order.names``.
        prepare: lines that an operator wrote, run before all else, as root if the script is: they
            install what is missing. One that fails ends the script.
    """
    secrets = [(place.token_file, order.setup.token)]
    if order.setup.authority is not None:
        secrets.append((place.authority_file, order.setup.authority))
    parent = place.directory.rpartition("/")[0] or "/"
    lines = [
        "#!/bin/sh",
        "set -eu",
        *prepare,
        # Users must be able to pass the directories above, where their homes may be too.
        f"(umask 022 && mkdir -p {parent})",
        "umask 077",
        f"mkdir -p {place.directory}",
        f"cd {place.directory}",
        "rm -f leaving",
    ]
    for path, text in [
        *secrets,
        (f"{place.directory}/{AGENT_SCRIPT}", _agent_script(agent_command(order, name, place))),
        (f"{place.directory}/{KEEP_SCRIPT}", _keep_script(place)),
    ]:
        lines += _written(path, text)
    unit_file = f"/etc/systemd/system/{place.unit}.service"
    lines += [
        'if [ "$(id -u)" = 0 ] && [ -d /run/systemd/system ]; then',
        *_written(unit_file, _unit(place), mode="644"),
        "systemctl daemon-reload",
        f"systemctl enable {place.unit}.service",
        # Not waited for: user data runs while the machine boots, and the unit starts after that.
        f"systemctl --no-block start {place.unit}.service",
        "else",
        *_in_background(place),
        "fi",
    ]
    return "\n".join(lines) + "\n"


def stop_script(place: AgentPlace) -> str:
    """A POSIX shell script that ends the agent of ``start_script`` with all its work, and removes
    its files. It succeeds once nothing is left, and where there was nothing."""
    end = [*place.program, "agent", "--end", "--dir", place.directory]
    unit_file = f"/etc/systemd/system/{place.unit}.service"
    return "\n".join(
        [
            "#!/bin/sh",
            "set -eu",
            f'if [ "$(id -u)" = 0 ] && [ -e {unit_file} ]; then',
            f"systemctl disable --now {place.unit}.service",
            f"rm -f {unit_file}",
            "systemctl daemon-reload",
            "fi",
            "if command -v crontab >/dev/null 2>&1; then",
            f"{{ {_other_cron_lines(place)}; }} | crontab -",
            "fi",
            f"if [ -d {place.directory} ]; then",
            f"touch {place.directory}/leaving",
            shlex.join(end),
            # The shell that keeps the agent ends after it. It has the lock until then.
            shlex.join(["flock", "-w", "30", f"{place.directory}/{KEEP_LOCK}", *end, "--wipe"]),
            "fi\n",
        ]
    )


def _written(path: str, text: str, mode: str = "600") -> list[str]:
    """Lines that write a file, whole or not at all. ``printf`` is part of the shell: its arguments
    show in no list of processes."""
    return [
        f"rm -f {path}.new",
        f"printf %s {shlex.quote(text)} >{path}.new",
        f"chmod {mode} {path}.new",
        f"mv -f {path}.new {path}",
    ]


def _agent_script(command: Sequence[str]) -> str:
    return f"#!/bin/sh\nexec {shlex.join(command)}\n"


def _unit(place: AgentPlace) -> str:
    """The unit of the agent, which kills the agent alone: kernels outlive a restart of it."""
    return f"""\
[Unit]
Description=Muster agent
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart=/bin/sh {place.directory}/{AGENT_SCRIPT}
WorkingDirectory={place.directory}
Restart=always
RestartSec={PAUSE_S}
KillMode=process
TimeoutStopSec=60
{AGENT_LIMITS}UMask=0077

[Install]
WantedBy=multi-user.target
"""


def _keep_script(place: AgentPlace) -> str:
    """Keeps an agent where systemd does not, one at a time, until the agent is to leave."""
    return f"""\
#!/bin/sh
cd {place.directory} || exit
exec 9>{KEEP_LOCK}
flock -n 9 || exit 0
while [ -e {AGENT_SCRIPT} ] && [ ! -e leaving ]; do
sh {AGENT_SCRIPT} </dev/null >>agent.log 2>&1 9>&-
sleep {PAUSE_S} 9>&-
done
"""


def _in_background(place: AgentPlace) -> list[str]:
    keep = f"{place.directory}/{KEEP_SCRIPT}"
    return [
        f"nohup sh {keep} </dev/null >/dev/null 2>&1 &",
        "if command -v crontab >/dev/null 2>&1; then",
        f"{{ {_other_cron_lines(place)}; echo '@reboot sh {keep}'; }} | crontab -",
        "else",
        "echo 'no agent will start after a boot: neither systemd nor cron is here' >&2",
        "fi",
    ]


def _other_cron_lines(place: AgentPlace) -> str:
    return f"crontab -l 2>/dev/null | grep -vF ' {place.directory}/{KEEP_SCRIPT}' || :"
