"""Which cluster a client talks to, and as whom.

Explicit arguments come first, then MUSTER_URL and MUSTER_TOKEN, then ``client.json`` in the data
directory (``$MUSTER_HOME``, else ``~/.muster``), which ``muster up`` writes for its owner only.
"""

from __future__ import annotations

import ipaddress
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from muster.client.errors import NoConnection, NotAUrl, NoToken


@dataclass(frozen=True, slots=True)
class Connection:
    """``token_remedy`` says where the token was found, and what to do if it is not accepted."""

    url: str
    token: str = field(repr=False)
    ca: Path | None = None
    token_remedy: str = field(default="", compare=False)

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


def find_connection(url: str | None, token: str | None, ca: Path | str | None = None) -> Connection:
    """The cluster that is meant.

    The file's token goes to the file's URL only: a token is not shown to another cluster. A URL
    with "localhost" is taken for the file's where that names a loopback address.

    Raises:
        NotAUrl: the URL is none.
        NoToken: no token is known for it.
        NoConnection: no URL is known, or the URL would carry the token over a network
            unencrypted (DESIGN section 13).
    """
    path = default_home() / "client.json"
    stored = _read(path)
    named = url or os.environ.get("MUSTER_URL")
    where = "the URL given" if url else "MUSTER_URL" if named else f"the URL in {path}"
    url = (named or (stored.url if stored else "")).rstrip("/")
    if not url:
        raise NoConnection(
            f"no cluster is known: start one with `muster up`, or set MUSTER_URL and MUSTER_TOKEN "
            f"({path} does not exist)"
        )
    scheme = _scheme(url)
    if scheme is None:
        raise NotAUrl(
            f"{where} is {url!r}, which is not a URL: expected one such as http://127.0.0.1:7600"
        )
    if scheme == "http" and not is_loopback(url):
        raise NoConnection(
            f"{url} would carry your token over the network for all to read: use https"
        )
    if stored and _is_localhost_of(url, stored.url):
        url = stored.url
    own = stored.token if stored and stored.url == url else None
    file = f", or leave it out: {path} has one" if own else ""
    if token:
        remedy = f"the token given: give another, in its place or in MUSTER_TOKEN{file}"
    elif token := os.environ.get("MUSTER_TOKEN"):
        remedy = f"the token in MUSTER_TOKEN: set it to one of this cluster{file}"
    elif token := own:
        remedy = f"the token read from {path}: set MUSTER_TOKEN to one of this cluster"
    else:
        raise NoToken(f"no token for {url}: set MUSTER_TOKEN, or give --token")
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise NoConnection("the token contains characters that no token has: check MUSTER_TOKEN")
    return Connection(url, token, Path(ca) if ca else None, remedy)


def _is_localhost_of(url: str, stored: str) -> bool:
    """Whether both mean this machine, and ``url`` only leaves open by which address."""
    asked, known = urlsplit(url), urlsplit(stored)
    return (
        asked.hostname == "localhost"
        and is_loopback(stored)
        and (asked.scheme, asked.port, asked.path) == (known.scheme, known.port, known.path)
    )


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
