"""The settings with which a proxy starts, their form as text, and the files of its directory.

``lock`` is held by the proxy that runs, ``proxy.json`` tells its process and where it listens, and
``services.json`` holds the services that it knew last.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import msgspec

from muster.agent.supervisor import lock_file
from muster.app.home import Home
from muster.wire.transport import ServerTls

DEFAULT_PORT = 8282
PROXY_NAME = "the proxy"
"""Its name in sentences on trouble."""
LOCK_FILE = "lock"
LOG_FILE = "proxy.log"
RUNNING_FILE = "proxy.json"
SERVICES_FILE = "services.json"


@dataclass(frozen=True, slots=True)
class ProxyConfig:
    """
    Args:
        directory: the proxy's own.
        controller: a file with the URL of the controller and a token, as the home's client.json.
        port: 0 means any.
        tls: needed for every address but loopback.
        logs_requests: whether each request makes a line in the log.
        ports_tried: the first free one of so many ports from ``port`` on is taken. A proxy that was
            killed is followed by one at its port, if that is free.
    """

    directory: Path
    controller: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    tls: ServerTls | None = None
    logs_requests: bool = False
    ports_tried: int = 1


@dataclass(frozen=True, slots=True)
class RunningProxy:
    """A proxy that runs on a directory, or was killed there; ``url`` is its own for clients."""

    pid: int
    port: int
    url: str


def proxy_directory(home: Home) -> Path:
    """The directory of the proxy for the cluster of a home."""
    return home.path / "proxy"


def proxy_beside(
    home: Home,
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    certificate: Path | None = None,
    key: Path | None = None,
    ports_tried: int = 1,
) -> ProxyConfig:
    """The settings of a proxy for the cluster of a home."""
    tls = None
    if certificate is not None and key is not None:
        tls = ServerTls(certificate.absolute(), key.absolute())
    return ProxyConfig(
        proxy_directory(home), home.client_file, host, port, tls, ports_tried=ports_tried
    )


def running_proxy(directory: Path) -> RunningProxy | None:
    """The proxy that runs on a directory; None if none does, or it does not listen yet."""
    last = last_proxy(directory)
    if last is None or lock_file.holder_of(directory / LOCK_FILE) != last.pid:
        return None
    return last


def last_proxy(directory: Path) -> RunningProxy | None:
    """The proxy that runs on a directory, or was the last one and was killed."""
    try:
        content = (directory / RUNNING_FILE).read_bytes()
        return msgspec.json.decode(content, type=RunningProxy)
    except (OSError, msgspec.MsgspecError):
        return None


def dump_proxy(config: ProxyConfig) -> str:
    """The settings as text, for ``load_proxy``."""
    return json.dumps(
        {
            "directory": str(config.directory),
            "controller": str(config.controller),
            "host": config.host,
            "port": config.port,
            "tls": [str(config.tls.certificate), str(config.tls.key)] if config.tls else None,
            "logs_requests": config.logs_requests,
            "ports_tried": config.ports_tried,
        }
    )


def load_proxy(text: str) -> ProxyConfig:
    kept = json.loads(text)
    return ProxyConfig(
        directory=Path(kept["directory"]),
        controller=Path(kept["controller"]),
        host=kept["host"],
        port=kept["port"],
        tls=ServerTls(*map(Path, kept["tls"])) if kept["tls"] else None,
        logs_requests=kept["logs_requests"],
        ports_tried=kept["ports_tried"],
    )
