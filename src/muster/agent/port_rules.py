"""Rules of nftables by which the ports reserved for a kernel are its owner's (design: Deployments
and routes).

Kernels share the machine's network, and a port is open to whoever knows its number. The rules
refuse two things to all accounts as which kernels run, but the owner of a port: to connect to it on
this machine, and to accept a connection that came for it. So nobody reaches a replica around the
proxy from its own machine, and whoever binds a port of others first can answer nobody there.
Accounts as which no kernel runs, such as those of root, controllers, proxies and balancers, are let
through, and so is what comes from other machines.

The rules are in a table of this agent alone, which is written whole and at once at each change, and
now and then, in case somebody has emptied it. It outlives the agent, as its kernels do, but for so
long only that an agent which never comes back keeps no port from others.
"""

import asyncio
import logging
import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from muster.core.serving.port_holders import BY_NFTABLES, BY_NOTHING

log = logging.getLogger(__name__)

AGAIN_S = 30.0
"""Seconds after which the rules are written again, or tried again where they were refused."""
KEPT_S = 120
"""Seconds after which a port is nobody's whose agent has not written it again."""
PAUSE_S = 0.05
"""Seconds between two writings, at least: changes that come together are written together."""
WRITE_S = 10.0
_SEARCHED = "/usr/sbin:/sbin:/usr/local/sbin"
_ROOT = 0


class PortRules:
    """The rules of one agent.

    Args:
        directory: the agent's, by which its table is called.
        uids: the ranges of uids for users without an account.
        users_directory: that has a directory for each other uid as which kernels run.
        command: the program with its first arguments; None looks for nft.

    Attributes:
        kind: how ports are kept for their owners: ``BY_NFTABLES``, or ``BY_NOTHING``.
        lack: why they are not, in words; empty where they are.
    """

    def __init__(
        self,
        directory: Path,
        uids: Sequence[range],
        users_directory: Path,
        command: Sequence[str] | None = None,
    ) -> None:
        status = directory.stat()
        self._table = f"muster_{status.st_dev:x}_{status.st_ino:x}"
        self._uids = uids
        self._users_directory = users_directory
        self._command = command
        self._wished: Mapping[int, int] | None = None
        self._changed = asyncio.Event()
        self.kind = BY_NOTHING
        self.lack = "they were not written yet"

    def wish(self, owners: Mapping[int, int]) -> None:
        """Have these ports kept for these uids, and no others. Until this was said once, the rules
        of an earlier agent stand."""
        if owners != self._wished:
            self._wished = owners
            self._changed.set()

    async def run(self) -> None:
        """Write the rules again and again; does not return."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S):
                    await self._changed.wait()
            await self.write()
            await asyncio.sleep(PAUSE_S)

    async def write(self) -> None:
        """Write the rules once. A failure is logged, and told by ``kind`` and ``lack``."""
        self._changed.clear()
        began_s = time.monotonic()
        lack = await asyncio.to_thread(self._write)
        if lack and lack != self.lack and os.geteuid() == _ROOT:
            log.warning("ports of kernels are open to other users of this machine: %s", lack)
        took_s = time.monotonic() - began_s
        if took_s > 1.0:
            log.warning("the rules for ports took %.1f s to be written", took_s)
        self.kind, self.lack = BY_NOTHING if lack else BY_NFTABLES, lack

    def clear(self) -> None:
        """Remove the rules unless they are still needed: the agent ends."""
        if self.kind == BY_NFTABLES and self._wished is not None and not self._wished:
            self._run(f"delete table inet {self._table}\n")

    def _write(self) -> str:
        """Write the rules; the answer is why they cannot be, or empty."""
        if os.geteuid() != _ROOT:
            return "the agent is not root"
        try:
            users = _users(self._uids, self._users_directory)
        except OSError as error:
            return f"{self._users_directory} cannot be read: {error.strerror}"
        if self._wished is None:
            return self._run(f"add table inet {self._table}\n")
        return self._run(rules(self._table, users, self._wished))

    def _run(self, script: str) -> str:
        command = self._command
        if command is None:
            found = find_nft()
            if found is None:
                return "nft is not installed"
            command = (found,)
        try:
            done = subprocess.run(
                [*command, "-f", "-"],
                input=script.encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=WRITE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"nft cannot be run: {error}"
        if done.returncode == 0:
            return ""
        said = done.stderr.decode(errors="replace").split("\n")[0][:200]
        return f"nft refuses them: {said or f'exit code {done.returncode}'}"


def find_nft() -> str | None:
    """The path of nft; None if it is not installed."""
    return shutil.which("nft", path=f"{os.environ.get('PATH', '')}:{_SEARCHED}")


def rules(table: str, users: Sequence[str], owners: Mapping[int, int]) -> str:
    """The script that puts the rules in place of the table's former ones, in one transaction.

    Args:
        users: the uids as which kernels run, as numbers and ranges.
        owners: the owner of each port.
    """
    return f"""
add table inet {table}
delete table inet {table}
add table inet {table}
table inet {table} {{
    set users {{
        type uid; flags interval; auto-merge;
        {_elements(users)}
    }}
    set ports {{
        type inet_service; timeout {KEPT_S}s;
        {_elements([str(port) for port in owners])}
    }}
    set owners {{
        type inet_service . uid; timeout {KEPT_S}s;
        {_elements([f"{port} . {uid}" for port, uid in owners.items()])}
    }}
    chain guard {{
        type filter hook output priority filter; policy accept;
        meta skuid != @users accept
        oif "lo" tcp dport @ports tcp dport . meta skuid != @owners reject with tcp reset
        tcp flags & (syn | ack) == syn | ack tcp sport @ports \
tcp sport . meta skuid != @owners drop
    }}
}}
"""


def _elements(elements: Sequence[str]) -> str:
    return f"elements = {{ {', '.join(elements)} }}" if elements else ""


def _users(uids: Sequence[range], users_directory: Path) -> list[str]:
    """The uids as which kernels run: the ranges, and those of the machine's accounts that have a
    place.

    Raises:
        OSError: the directory cannot be read.
    """
    found = [f"{each.start}-{each.stop - 1}" for each in dict.fromkeys(uids) if each]
    if users_directory.is_dir():
        names = [each.name for each in users_directory.iterdir() if each.name.isdecimal()]
        others = {int(name) for name in names} - {_ROOT}
        found += [str(uid) for uid in sorted(others) if not any(uid in each for each in uids)]
    return found
