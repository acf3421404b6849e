"""The base of the agent protocol that both ends share: limits, keepalive, TLS."""

import ipaddress
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from muster.core.errors import MusterError
from muster.core.host_port import parted
from muster.core.origins import origin_of
from muster.tls_handshake import refused_pair

MAX_TO_AGENT_BYTES = 16 * 1024 * 1024
"""No message to an agent is longer; a kernel whose command and files are cannot be started on Linux
anyway."""
MAX_TO_CONTROLLER_BYTES = 256 * 1024
"""No message to the controller is longer: gRPC reads one whole message of each call before anybody
has looked at who sent it."""
PIECE_TO_CONTROLLER_BYTES = 128 * 1024
"""Longer messages to the controller are cut into pieces of about this size."""

PIECE_BYTES = 2 * 1024 * 1024
"""Batches of commands are cut into messages of about this size."""

HANDSHAKE_TIMEOUT_S = 10.0
"""How long TLS and the first frames of HTTP/2 may take."""

IDLE_S = 60.0
"""A connection without a call for so long is closed; an agent's connection always has its
streams."""

MAX_STREAMS = 16
"""Calls of one connection at a time."""

MAX_METADATA_BYTES = 8 * 1024

MAX_CONNECTIONS = 10_000
"""Connections of agents, and of whoever else finds the port."""

LOG_WINDOW_BYTES = 128 * 1024
"""How much output one log request may ask for, and so how much a slow reader keeps in memory."""

MAX_SHORT_OUTPUTS = 200
"""How many outputs one request for those that are short may name."""

SHORT_OUTPUT_BYTES = 16 * 1024
"""How much an output has at most that is short. All in one reply have ``LOG_WINDOW_BYTES`` at
most."""

LOG_WAIT_S = 15.0
"""How long an agent holds a log request that waits for output before it answers with nothing."""

MAX_LOG_READS = 64
"""Log requests that one agent serves at a time."""


DISMISSED = "NOT_FOUND"
"""The gRPC status that means ``Dismissed``: there is no such agent any more."""
NOT_NOW = "FAILED_PRECONDITION"
"""The gRPC status that means ``NotNow``. Agents of earlier versions take it for a connection that
broke, and ask again."""
OCCUPIED = "ALREADY_EXISTS"
"""The gRPC status that means ``Occupied``: another machine or directory uses the credential."""


class InsecureAddress(MusterError):
    """An address that others can reach, without TLS (design: Access)."""


class UnreadableCertificate(MusterError):
    """A certificate or key file that is missing, may not be read, or is no certificate or key."""


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """A peer that answers no ping within ``timeout_s`` is gone; pings leave each ``interval_s``."""

    interval_s: float = 4.0
    timeout_s: float = 4.0


@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM files of the controller's certificate chain and its private key."""

    certificate: Path
    key: Path


Options = list[tuple[str, int]]


def channel_options(keepalive: KeepAlive) -> Options:
    """gRPC settings of an agent's channel."""
    return [
        *_common_options(keepalive, MAX_TO_AGENT_BYTES, MAX_TO_CONTROLLER_BYTES),
        # A proxy that is meant for the outside world must not stand between an agent and its
        # controller.
        ("grpc.enable_http_proxy", 0),
        # The caller backs off by itself; a shared subchannel would add its own waiting to that.
        ("grpc.use_local_subchannel_pool", 1),
    ]


def server_options(keepalive: KeepAlive) -> Options:
    """gRPC settings of the controller's server."""
    return [
        *_common_options(keepalive, MAX_TO_CONTROLLER_BYTES, MAX_TO_AGENT_BYTES),
        # A second controller on a port that is taken must fail, not share it.
        ("grpc.so_reuseport", 0),
        # Unauthenticated callers must send little, and must not hold what agents need.
        ("grpc.compression_enabled_algorithms_bitset", 1),  # none: a small message may unpack large
        # Else the window of a fast sender grows to megabytes, whoever it is.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.server_handshake_timeout_ms", round(HANDSHAKE_TIMEOUT_S * 1000)),
        ("grpc.max_connection_idle_ms", round(IDLE_S * 1000)),
        ("grpc.max_concurrent_streams", MAX_STREAMS),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS),
        # Agents ping as often as the controller; gRPC's default would take that for an attack.
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
        ("grpc.http2.max_ping_strikes", 0),
    ]


def _common_options(keepalive: KeepAlive, receive_bytes: int, send_bytes: int) -> Options:
    interval_ms = round(keepalive.interval_s * 1000)
    timeout_ms = round(keepalive.timeout_s * 1000)
    return [
        ("grpc.max_receive_message_length", receive_bytes),
        ("grpc.max_send_message_length", send_bytes),
        ("grpc.keepalive_time_ms", interval_ms),
        ("grpc.keepalive_timeout_ms", timeout_ms),
        # Without these two options a frozen peer is noticed only after a minute.
        ("grpc.http2.ping_timeout_ms", timeout_ms),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.keepalive_permit_without_calls", 1),
    ]


def require_secure(
    address: str, *, tls: bool, remedy: str = "name a certificate, or use a loopback address"
) -> None:
    """Refuse an unencrypted connection to anything but this machine.

    Raises:
        InsecureAddress: ``address`` ("host:port") is not loopback, and there is no TLS.
    """
    if not tls and not is_loopback(address):
        raise InsecureAddress(
            f"{address} can be reached by other machines: agents and their credentials need TLS "
            f"there; {remedy}"
        )


def is_loopback(address: str) -> bool:
    """Whether "host:port", or a peer as gRPC calls it, is on this machine's loopback interface."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    host = _host_of(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def peer_origin(peer: str) -> str:
    """A peer, as gRPC calls it, as limits count it: those on this machine's sockets are one."""
    if peer.startswith(("unix:", "unix-abstract:")):
        return "unix"
    try:
        return origin_of(_host_of(peer))
    except ValueError:
        return peer


def _host_of(address: str) -> str:
    """The host of "host:port", or of a peer as gRPC calls it."""
    address = unquote(re.sub(r"^ipv[46]:", "", address))
    return parted(address)[0]


def read_pem(path: Path) -> bytes:
    """A certificate or key.

    Raises:
        UnreadableCertificate: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableCertificate(f"cannot read {path}: {error.strerror}") from None


def read_authority(path: Path) -> bytes:
    """Certificates of the authorities that may vouch for a controller.

    Raises:
        UnreadableCertificate: the file cannot be read, or holds no certificate.
    """
    pem = read_pem(path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem.decode())
    except (ssl.SSLError, ValueError):
        raise UnreadableCertificate(
            f"{path} holds no certificate in PEM: give the authority's"
        ) from None
    return pem


def require_pair(tls: ServerTls) -> None:
    """Refuse a certificate and key that no server could use.

    Raises:
        UnreadableCertificate: a file cannot be read, or the two are not a certificate and its key.
    """
    for path in (tls.certificate, tls.key):
        read_pem(path)
    try:  # a password is given, or OpenSSL would ask for one at the terminal
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key, "")
    except ssl.SSLError as error:
        why = (error.reason or "unreadable").lower().replace("_", " ")
        raise UnreadableCertificate(
            f"{tls.certificate} and {tls.key} are not a certificate and its private key, both in "
            f"PEM and without a password: {why}"
        ) from None


def require_vouched(tls: ServerTls, authority: Path) -> None:
    """Refuse a certificate that clients of the authority would refuse, whatever its name.

    Raises:
        UnreadableCertificate: they would, or a file cannot be used.
    """
    require_pair(tls)
    pem = read_authority(authority).decode()
    why = refused_pair(str(tls.certificate), str(tls.key), pem)
    if why is not None:
        raise UnreadableCertificate(
            f"agents and people who trust the authority in {authority} would refuse "
            f"{tls.certificate}: its certificate {why}"
        )


CONNECTION = "muster-connection"
"""The metadata key under which the controller gives an agent's stream a secret, and the agent shows
that its log stream belongs to that stream."""


def bearer(credential: str) -> tuple[tuple[str, str], ...]:
    """The metadata that carries an agent's credential."""
    return (("authorization", f"Bearer {credential}"),)


def value_of(metadata: Iterable[tuple[str, str | bytes]] | None, key: str) -> str:
    """A value in a call's metadata; empty if there is none."""
    return next((str(value) for name, value in metadata or () if name == key), "")


def bearer_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> str | None:
    """The credential in a call's metadata, if there is one."""
    for name, value in metadata or ():
        if name == "authorization" and isinstance(value, str):
            scheme, _, credential = value.partition(" ")
            return credential if scheme == "Bearer" and credential else None
    return None
