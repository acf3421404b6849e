"""The choice of the cluster that a client talks to, and of its token.

Explicit arguments come first; then MUSTER_URL, MUSTER_TOKEN and MUSTER_CA, or the data directory
that MUSTER_HOME names; then the current context (``muster login``); then the cluster of this
machine. A data directory holds ``client.json``, which ``muster up`` and ``muster controller`` write
for their owner only. SSL_CERT_FILE counts where nothing names an authority (``ssl``'s own rule).
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from muster.client.contexts import NamedCluster, read_contexts
from muster.client.errors import NoConnection, NotAUrl, NoToken

_CONTEXT = "context "
_Kept = tuple[NamedCluster, str]
"""The kept context of a cluster, and the place where it is kept."""


class Connection(msgspec.Struct, frozen=True, eq=False):
    """A cluster's address and a token. ``token_remedy`` says where the token was found, and what to
    do if it is not accepted; ``context`` which of the user's contexts names the URL, if one does.
    Connections may be equal without these two."""

    url: str
    token: str
    ca: Path | None = None
    token_remedy: str = ""
    context: str = ""

    def __repr__(self) -> str:
        return f"Connection(url={self.url!r}, ca={self.ca!r})"  # without the token

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Connection):
            return NotImplemented
        return (self.url, self.token, self.ca) == (other.url, other.token, other.ca)

    def __hash__(self) -> int:
        return hash((self.url, self.token, self.ca))

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
    """The cluster that the arguments and the environment name.

    A stored token goes only to the URL with which it is stored, and to no other cluster. A URL with
    "localhost" is taken for the stored one if that names a loopback address.

    Raises:
        NotAUrl: the text is no URL.
        NoToken: no token is known for it.
        NoConnection: no URL is known, or the URL would carry the token over a network
            unencrypted (design: Access).
    """
    named = url or os.environ.get("MUSTER_URL")
    used, known = _kept()
    context = ""
    if named:
        source = "the URL given" if url else "MUSTER_URL"
        url = named.rstrip("/")
    elif used:
        source = f"the URL in {used[1]}"
        url = used[0].url
        context = used[1] if used[1].startswith(_CONTEXT) else ""
    else:
        raise NoConnection(
            f"no cluster is known: start one with `muster up`, log in to one with `muster login`, "
            f"or set MUSTER_URL and MUSTER_TOKEN ({default_home() / 'client.json'} does not exist)"
        )
    _check(url, source)
    nowhere: tuple[NamedCluster | None, str] = (None, "")
    kept, where = next((each for each in known if _means(url, each[0].url)), nowhere)
    url = kept.url if kept else url
    file = f", or leave it out: {where} has one" if kept else ""
    if token:
        remedy = f"the token given: give another, in its place or in MUSTER_TOKEN{file}"
    elif token := os.environ.get("MUSTER_TOKEN"):
        remedy = f"the token in MUSTER_TOKEN: set it to one of this cluster{file}"
    elif kept:
        token = kept.token
        remedy = f"the token read from {where}: log in again, or set MUSTER_TOKEN to one of its"
    else:
        raise NoToken(f"no token for {url}: `muster login`, set MUSTER_TOKEN, or give --token")
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise NoToken("the token contains characters that no token has: check where it is from")
    authority = ca or os.environ.get("MUSTER_CA") or (kept.ca if kept else None)
    return Connection(url, token, Path(authority) if authority else None, remedy, context)


def _kept() -> tuple[_Kept | None, list[_Kept]]:
    """The context that is used where no URL is named, and all contexts, the foremost first."""
    path = default_home() / "client.json"
    local, contexts = _read(path), read_contexts()
    known = [(local, str(path))] if local else []
    known += [(each, f"{_CONTEXT}{name}") for name, each in sorted(contexts.contexts.items())]
    if contexts.chosen is not None and not os.environ.get("MUSTER_HOME"):
        used = (contexts.chosen, f"{_CONTEXT}{contexts.current}")
        return used, [used, *known]
    return (known[0] if local else None), known


def _check(url: str, source: str) -> None:
    """
    Raises:
        NotAUrl, NoConnection: no token should be sent there.
    """
    scheme = _scheme(url)
    if scheme is None:
        raise NotAUrl(
            f"{source} is {url!r}, which is not an http or https URL: expected one such as "
            "http://127.0.0.1:7600"
        )
    if scheme == "http" and not is_loopback(url):
        raise NoConnection(
            f"{url} would carry your token over the network for all to read: use https"
        )


def _means(url: str, stored: str) -> bool:
    return url == stored or _is_localhost_of(url, stored)


def _is_localhost_of(url: str, stored: str) -> bool:
    """Whether both URLs mean this machine: ``url`` says "localhost", and the other names a loopback
    address."""
    asked, known = urlsplit(url), urlsplit(stored)
    return (
        asked.hostname == "localhost"
        and is_loopback(stored)
        and (asked.scheme, asked.port, asked.path) == (known.scheme, known.port, known.path)
    )


def _scheme(url: str) -> str | None:
    """``http`` or ``https``; None if the URL has neither scheme."""
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts.scheme if usable and parts.scheme in ("http", "https") else None


def default_home() -> Path:
    return Path(os.environ.get("MUSTER_HOME") or Path.home() / ".muster")


def _own_text(path: Path) -> str:
    """The text of a file of this user's, or of root's: whoever else wrote it would have commands,
    and what goes with them, sent to a controller of their own.

    Raises:
        NoConnection: it is somebody else's.
        OSError: it cannot be read.
    """
    with path.open() as file:
        owner = os.fstat(file.fileno()).st_uid
        if owner not in (os.geteuid(), 0):
            raise NoConnection(
                f"{path} belongs to another user (uid {owner}): run this as that user, or name "
                f"the cluster with --url and --token"
            )
        return file.read()


def _read(path: Path) -> NamedCluster | None:
    try:
        found = msgspec.json.decode(_own_text(path))
        return NamedCluster(str(found["url"]).rstrip("/"), str(found["token"]), found.get("ca"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NoConnection(f"cannot read {path}: {error.strerror}") from None
    except (msgspec.DecodeError, ValueError, KeyError, TypeError):
        raise NoConnection(
            f"{path} is damaged: `muster down --keep` and then `muster up` write it anew, and what "
            f"runs goes on"
        ) from None
