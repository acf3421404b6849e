"""Hosts for tests: OpenSSH servers on loopback, each a host of its own with its own directory."""

import getpass
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from tests.patience import until
from tests.providers.conformance import SETUP, SHAPE
from tests.providers.fake_muster import FAKE_MUSTER

from muster.core.specs.pool import MachineShape, PoolSpec
from muster.providers.provider import Provider, ProviderError, Scope, SliceOrder
from muster.providers.ssh.hosts import SshHosts

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
REAL_MUSTER = Path(__file__).parents[2] / ".venv" / "bin" / "muster"
_PRIVILEGES = Path("/run/sshd")  # where OpenSSH shuts the process in that speaks with strangers


class Sshd:
    """A host.

    Args:
        number: tells it from others; from 1 to 250.
        place: of this host, in a folder that all hosts have in common.
        forced: what it runs in place of what it is asked to.
    """

    def __init__(self, number: int, place: Path, forced: str | None = None) -> None:
        assert SSHD is not None
        self.address = f"127.0.77.{number}"
        self.second_address = f"127.0.78.{number}"
        self.place = place / self.address
        self.forced = forced
        self.place.mkdir()
        with socket.socket() as free:
            free.bind((self.address, 0))
            self.port: int = free.getsockname()[1]
        self.new_key()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def id(self) -> str:
        return f"{self.address}:{self.port}"

    @property
    def directory(self) -> Path:
        """The directory of the claim."""
        return self.place / "machine"

    @property
    def known(self) -> str:
        """The line of the host in a file of known hosts."""
        names = f"[{self.address}]:{self.port},[{self.second_address}]:{self.port}"
        return f"{names} {(self.place / 'key.pub').read_text().strip()}"

    def new_key(self) -> None:
        """Give the host another key, as if it was installed anew."""
        for file in ("key", "key.pub"):
            (self.place / file).unlink(missing_ok=True)
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(self.place / "key")
        key.write_public_key(self.place / "key.pub")
        (self.place / "key").chmod(0o600)

    def start(self) -> None:
        assert SSHD is not None
        if os.geteuid() == 0:
            _PRIVILEGES.mkdir(mode=0o755, exist_ok=True)
        programs = self.place.parent / "bin"
        environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(self.place)}
        if "MUSTER_USERS_DIR" in os.environ:
            environment["MUSTER_USERS_DIR"] = os.environ["MUSTER_USERS_DIR"]
        lines = {
            "ListenAddress": self.id,
            "HostKey": self.place / "key",
            "AuthorizedKeysFile": self.place.parent / "authorized",
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "yes",
            "MaxStartups": "1000",
            "SetEnv": " ".join(f"{name}={value}" for name, value in environment.items()),
        }
        if self.forced is not None:
            lines["ForceCommand"] = self.forced
        config = self.place / "sshd_config"
        second = f"ListenAddress {self.second_address}:{self.port}\n"
        config.write_text(second + "".join(f"{key} {value}\n" for key, value in lines.items()))
        deadline_s = time.monotonic() + 10.0
        while not self._listens(SSHD, config):
            # Its port may be that of a connection, for as long as the host is down.
            said = (self.place / "sshd.log").read_text()
            assert "Address already in use" in said, said
            assert time.monotonic() < deadline_s, said
            time.sleep(0.1)

    def _listens(self, sshd: str, config: Path) -> bool:
        """Start the server; False if it ends at once."""
        with (self.place / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sshd, "-D", "-e", "-f", str(config)], stderr=log, start_new_session=True
            )
        deadline_s = time.monotonic() + 10.0
        while self._process.poll() is None:
            with suppress(OSError), socket.create_connection((self.address, self.port), 1.0):
                return True
            assert time.monotonic() < deadline_s, (self.place / "sshd.log").read_text()
            time.sleep(0.01)
        return False

    def restart(self, forced: str | None) -> None:
        """Start the host again, with another command that it runs in place of all others."""
        if self.forced != forced or self._process is None:
            self.stop()
            self.forced = forced
            self.start()

    def claim(self) -> dict[str, Any] | None:
        """The claim on the host."""
        try:
            found: dict[str, Any] = json.loads((self.directory / "claim.json").read_text())
        except FileNotFoundError:
            return None
        return found

    def stop(self) -> None:
        """Take the host from the net; what runs on it runs on."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


class Hosts:
    """Hosts with a user's key, and programs that they all have.

    Args:
        place: an empty folder.
        count: how many hosts.
    """

    def __init__(self, place: Path, count: int) -> None:
        self.place = place
        self.program("crontab", '#!/bin/sh\n[ "$1" = -l ] || cat >/dev/null\n')
        self.program("reboot-it", f'#!/bin/sh\necho "$@" >>{place}/reboots\n')
        self.muster = self.program("muster", FAKE_MUSTER)
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(place / "user_key")
        (place / "user_key").chmod(0o600)
        key.write_public_key(place / "authorized")
        self.all = [Sshd(number, place) for number in range(1, count + 1)]
        self.write_known()

    def __enter__(self) -> "Hosts":
        try:
            for each in self.all:
                each.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Give all hosts back, and stop them."""
        try:
            for host in self.all:
                host.restart(forced=None)
                if (claim := host.claim()) is not None:
                    provider = self.provider(claim["pool"], claim["cluster"], self.all)
                    until(lambda: provider.delete(claim["slice"]))  # noqa: B023 - called at once
                assert not host.directory.exists()
        finally:
            self.stop()

    def stop(self) -> None:
        for each in self.all:
            each.stop()

    def program(self, name: str, text: str) -> str:
        """A program that all hosts have."""
        path = self.place / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def write_known(self) -> None:
        known = "".join(f"{each.known}\n" for each in self.all)
        (self.place / "known_hosts").write_text(known)

    def settings(self, listed: Sequence[Sshd]) -> dict[str, Any]:
        """Settings of a pool with these hosts."""
        return {
            "hosts": [each.id for each in listed],
            "user": getpass.getuser(),
            "key_file": str(self.place / "user_key"),
            "known_hosts": str(self.place / "known_hosts"),
            "muster": self.muster,
            "python": sys.executable,
            "directory": f"{self.place}/{{host}}/machine",
            "connect_timeout": 3,
            "reboot_command": [f"{self.place}/bin/reboot-it"],
        }

    def provider(
        self,
        pool: str = "one",
        cluster: str = "c-1",
        listed: Sequence[Sshd] | None = None,
        notes: str | None = None,
        **more: object,
    ) -> SshHosts:
        """A pool's provider.

        Args:
            notes: the folder of its notes; None is an empty one, as a controller has it on another
                machine.
        """
        listed = self.all if listed is None else listed
        spec = PoolSpec(
            name=pool,
            provider="ssh",
            settings=self.settings(listed) | more,
            machine=MachineShape(cpu=1000, memory=2**30),
            max_slices=10,
        )
        directory = self.place / "notes" / (notes or str(next(_NUMBERS)))
        return SshHosts(spec, Scope(cluster, pool, directory))

    def claims(self) -> dict[str, str]:
        """The slices that have hosts, by the hosts' ids."""
        found = {host.id: host.claim() for host in self.all}
        return {id_: claim["slice"] for id_, claim in found.items() if claim is not None}


_NUMBERS = itertools.count()


def order(slice_: str = "sl-1", machines: int = 1) -> SliceOrder:
    """An order that hosts can carry out."""
    names = tuple(f"{slice_}-{number}" for number in range(machines))
    return SliceOrder(slice_, names, SHAPE, False, {}, SETUP)


def refused(provider: Provider, wanted: SliceOrder) -> ProviderError:
    """The error with which an order is refused."""
    with pytest.raises(ProviderError) as raised:
        provider.create(wanted)
    return raised.value


def deleted(provider: Provider, slice_: str = "sl-1") -> None:
    """Delete a slice until it is gone."""
    until(lambda: provider.delete(slice_))


def processes(of: str) -> dict[int, str]:
    """The command lines of processes that name a text."""
    found = {}
    for each in Path("/proc").glob("[0-9]*"):
        try:
            words = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if of in words and int(each.name) != os.getpid():
            found[int(each.name)] = words
    return found
