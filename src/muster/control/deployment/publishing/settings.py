"""Operators' settings about balancers outside Muster: `traffic.yaml` in the data directory.

They are no part of any spec, so that whoever has an administrator's token, but no access to the
controller's files, cannot have the controller write a file or run a program.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from muster.control.engine.settings_file import load_settings_file
from muster.core.errors import InvalidSpec, Problem
from muster.core.specs.amounts import Duration, Flag, PathText, ShortText, Spec, Text
from muster.core.specs.serving import Host, HostSuffix

FILE = "traffic.yaml"
_MAX_WORDS = 100
_PLAIN_PATH = r"^/[A-Za-z0-9._/-]+$"
_AT = (
    r"(?:[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63}){0,9}|\[[0-9a-fA-F:.]{2,45}\])"
    r":(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
)
"""host:port, with a port that can be."""
_ENDPOINT = re.compile(rf"https?://{_AT}")
_SOCKET = re.compile(rf"/[A-Za-z0-9._/-]+|{_AT}")
_LOCAL = ("http://127.", "http://localhost:", "http://[::1]")

PlainPath = Annotated[str, StringConstraints(pattern=_PLAIN_PATH, max_length=200)]
"""An absolute path of letters that need no quoting where HAProxy reads it."""


def _endpoint(text: str) -> str:
    if _ENDPOINT.fullmatch(text) is None:
        raise ValueError("expected http(s)://HOST:PORT")
    return text


def _socket(text: str) -> str:
    if _SOCKET.fullmatch(text) is None:
        raise ValueError("expected an absolute path, or HOST:PORT")
    return text


Endpoint = Annotated[ShortText, AfterValidator(_endpoint)]
Socket = Annotated[ShortText, AfterValidator(_socket)]


class Balance(StrEnum):
    ROUND_ROBIN = "roundrobin"
    LEAST_REQUESTS = "leastconn"


class HaproxySettings(Spec):
    """An HAProxy that Muster drives.

    Args:
        socket: of the runtime API at level admin: an absolute path, or host:port.
        file: of the backends, which Muster writes; a map is written beside it.
        master: the socket of the master CLI, by which HAProxy is reloaded.
        reload: in place of ``master``: a command that reloads HAProxy, started without a shell.
        balance: how a replica is chosen where the deployment has no affinity.
        all: whether services are published that ask for a token: somebody else checks access.
        secrets: whether requests carry their deployment's secret, as those of Muster's proxy do.
            Then ``file`` is for its owner and its group alone to read.
    """

    socket: Socket
    file: Annotated[str, StringConstraints(pattern=r"^/[A-Za-z0-9._/-]+\.cfg$", max_length=200)]
    master: PlainPath | None = None
    reload: Annotated[tuple[Text, ...], Field(max_length=_MAX_WORDS)] = ()
    balance: Balance = Balance.ROUND_ROBIN
    all: Flag = False
    secrets: Flag = False

    def problems(self) -> Iterator[Problem]:
        if self.master is not None and self.reload:
            yield Problem(f"{FILE}: haproxy.reload", self.reload[0], "expected master or this")
        if self.reload and not _is_program(self.reload[0]):
            expected = "expected an absolute path, or a name on the controller's PATH"
            yield Problem(f"{FILE}: haproxy.reload", self.reload[0], expected)
        if not Path(self.file).parent.is_dir():
            yield Problem(f"{FILE}: haproxy.file", self.file, "its folder does not exist")


def _is_program(word: str) -> bool:
    return bool(word) and ("/" not in word or word.startswith("/"))


class EtcdSettings(Spec):
    """An etcd into which routes are written.

    Args:
        endpoints: URLs of its members; one that does not answer is followed by the next.
        prefix: of the keys; whatever else is below it is removed.
        ca: the PEM file of the authority of its certificates; the system's when left out.
        cert, key: PEM files by which Muster shows who it is.
        user, password_file: where etcd's users are enabled.
        lease: how long the keys stay after Muster was heard last. It outlasts a restart of the
            controller, because replicas serve on meanwhile.
        all: as for HAProxy.
    """

    endpoints: Annotated[tuple[Endpoint, ...], Field(min_length=1, max_length=20)]
    prefix: Annotated[
        str, StringConstraints(pattern=r"^/[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*$", max_length=200)
    ] = "/muster/routes"
    ca: PathText | None = None
    cert: PathText | None = None
    key: PathText | None = None
    user: ShortText | None = None
    password_file: PathText | None = None
    lease: Annotated[Duration, Field(ge=5, le=86_400)] = 600.0
    all: Flag = False

    def problems(self) -> Iterator[Problem]:
        if (self.cert is None) is not (self.key is None):
            yield Problem(
                f"{FILE}: etcd.cert", self.cert or "", "expected cert and key, or neither"
            )
        if (self.user is None) is not (self.password_file is None):
            expected = "expected user and password_file, or neither"
            yield Problem(f"{FILE}: etcd.user", self.user or "", expected)
        for endpoint in self.endpoints:
            if not endpoint.startswith("https:"):
                if self.ca or self.cert:
                    expected = "expected https where there are certificates"
                    yield Problem(f"{FILE}: etcd.endpoints", endpoint, expected)
                if self.user and not endpoint.startswith(_LOCAL):
                    expected = "expected https where a password is sent"
                    yield Problem(f"{FILE}: etcd.endpoints", endpoint, expected)
        paths = {
            "ca": self.ca,
            "cert": self.cert,
            "key": self.key,
            "password_file": self.password_file,
        }
        for name, path in paths.items():
            if path is not None and not (path.startswith("/") and Path(path).is_file()):
                expected = "expected the absolute path of a file"
                yield Problem(f"{FILE}: etcd.{name}", path, expected)


class TrafficSettings(Spec):
    """The balancers that are told of services; none by default.

    Args:
        hosts: names under which they, and Muster's own proxy, are reached: no deployment gets one
            as its host, and with it the requests for all others.
        domain: below which each deployment may have its own name as its host, as ``NAME.DOMAIN``,
            whatever its project may use besides.
    """

    kind: Literal["traffic"] = "traffic"
    hosts: Annotated[frozenset[Host], Field(max_length=_MAX_WORDS)] = frozenset()
    domain: HostSuffix | None = None
    haproxy: HaproxySettings | None = None
    etcd: EtcdSettings | None = None


def load_settings(folder: Path | None) -> TrafficSettings:
    """The operators' settings, with defaults for the rest.

    Raises:
        InvalidSpec: the file cannot be read, or is wrong; with every problem.
    """
    if folder is None:
        return TrafficSettings()
    settings = load_settings_file(TrafficSettings, folder / FILE)
    found = [each for each in (settings.haproxy, settings.etcd) if each is not None]
    if problems := [problem for each in found for problem in each.problems()]:
        raise InvalidSpec(problems)
    return settings
