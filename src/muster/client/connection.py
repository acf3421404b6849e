"""Which cluster a client talks to, and as whom.

Explicit arguments come first, then MUSTER_URL and MUSTER_TOKEN, then ``client.json`` in the data
directory (``$MUSTER_HOME``, else ``~/.muster``), which ``muster up`` writes for its owner only.
"""

from __future__ import annotations

import ipaddress
import json
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from muster.client.errors import NoConnection


@dataclass(frozen=True, slots=True)
class Connection:
    url: str
    token: str

    @property
    def loopback(self) -> bool:
        return is_loopback(self.url)


def is_loopback(url: str) -> bool:
    """Whether the URL can mean this machine only."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def find_connection(url: str | None, token: str | None) -> Connection:
    """The cluster that is meant.

    The file's token goes to the file's URL only: a token is not shown to another cluster.

    Raises:
        NoConnection: no URL or no token is known, the URL is none, or it would carry the token
            over a network unencrypted (DESIGN section 13).
    """
    path = default_home() / "client.json"
    stored = _read(path)
    url = (url or os.environ.get("MUSTER_URL") or (stored.url if stored else "")).rstrip("/")
    if not url:
        raise NoConnection(
            f"no cluster is known: start one with `muster up`, or set MUSTER_URL and MUSTER_TOKEN "
            f"({path} does not exist)"
        )
    scheme = _scheme(url)
    if scheme is None:
        raise NoConnection(f"{url!r} is not a URL such as http://127.0.0.1:7600")
    if scheme == "http" and not is_loopback(url):
        raise NoConnection(
            f"{url} would carry your token over the network for all to read: use https"
        )
    token = token or os.environ.get("MUSTER_TOKEN")
    if not token and stored and stored.url == url:
        token = stored.token
    if not token:
        raise NoConnection(f"no token for {url}: set MUSTER_TOKEN")
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise NoConnection("the token contains characters that no token has: check MUSTER_TOKEN")
    return Connection(url, token)


def _scheme(url: str) -> str | None:
    """``http`` or ``https``; None if it is no URL of these."""
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts.scheme if usable and parts.scheme in ("http", "https") else None


def default_home() -> Path:
    return Path(os.environ.get("MUSTER_HOME") or Path.home() / ".muster")


def _read(path: Path) -> Connection | None:
    try:
        found = json.loads(path.read_text())
        return Connection(str(found["url"]).rstrip("/"), str(found["token"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NoConnection(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise NoConnection(f"{path} is damaged: start the cluster again with `muster up`") from None
