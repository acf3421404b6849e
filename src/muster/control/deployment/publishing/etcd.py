"""etcd as a sink: a key for each replica, below a prefix and under a lease.

It speaks etcd's own JSON gateway, because no client library of it is alive that needs no grpcio of
its own. As with HAProxy, what etcd has is compared with what is wished; between two comparisons,
what this sink has written stands for what etcd has.
"""

import base64
import json
import ssl
import time
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx
import msgspec

from muster.control.deployment.publishing.published import published, sound
from muster.control.deployment.publishing.settings import EtcdSettings
from muster.control.deployment.publishing.sink import Sink, SinkError, Tended
from muster.core.serving.traffic import TrafficService

ANSWER_S = 5.0
PERIOD_S = 10.0
"""How often etcd is compared with what is wished where nothing changes."""
BATCH = 100
"""Keys of a transaction; etcd takes 128."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024


class _Row(msgspec.Struct):
    """A key of etcd; bytes are written in base 64, as all are."""

    key: bytes
    value: bytes = b""
    lease: int = 0


class _Range(msgspec.Struct):
    kvs: tuple[_Row, ...] = ()


class _Left(msgspec.Struct):
    TTL: int = 0


class _Kept(msgspec.Struct):
    result: _Left = msgspec.field(default_factory=_Left)


class _Granted(msgspec.Struct):
    ID: int


class _Shown(msgspec.Struct):
    token: str


class _Done(msgspec.Struct):
    """An answer of which nothing is of interest."""


class _Value(NamedTuple):
    """The value of a replica's key, and whether the replica takes requests."""

    text: str
    takes_requests: bool


A = TypeVar("A", bound=msgspec.Struct)


class EtcdSink(Sink):
    """Keeps the routes of services in an etcd."""

    name = "etcd"

    def __init__(self, settings: EtcdSettings) -> None:
        self._settings = settings
        self._client: httpx.Client | None = None
        self._turn = 0  # which endpoint is asked
        self._lease = 0
        self._kept_s = -inf  # when the lease was renewed last
        self._made: dict[
            str, tuple[TrafficService, dict[str, _Value]]
        ] = {}  # the keys of each service
        self._written: dict[str, tuple[str, int]] | None = None  # None if that is not known
        self._look_at_s = 0.0

    def publish(self, services: Sequence[TrafficService]) -> Tended:
        wish = self._keys(services)
        self._keep_lease()
        now_s, there = time.monotonic(), self._written
        self._written = None
        if there is None or now_s >= self._look_at_s:
            there = self._there()
            self._look_at_s = now_s + min(PERIOD_S, self._settings.lease / 3)
        requests = self._changes(wish, there)
        for first in range(0, len(requests), BATCH):
            self._ask("/v3/kv/txn", {"success": requests[first : first + BATCH]}, _Done)
        self._written = {key: (value.text, self._lease) for key, value in wish.items()}
        return Tended(max(self._look_at_s - time.monotonic(), 0.0))

    def _changes(
        self, wish: Mapping[str, _Value], there: Mapping[str, tuple[str, int]]
    ) -> list[dict[str, Any]]:
        """The keys to put and to delete. Each may be the last that etcd takes, so replicas that
        get requests come first; those that get none any more follow, and then those that go."""
        different = [
            (key, value)
            for key, value in wish.items()
            if there.get(key) != (value.text, self._lease)
        ]
        different.sort(key=lambda each: not each[1].takes_requests)
        puts = [
            {"key": _encoded(key), "value": _encoded(value.text), "lease": str(self._lease)}
            for key, value in different
        ]
        gone = [{"key": _encoded(key)} for key in there if key not in wish]
        changes = [{"requestPut": each} for each in puts]
        return changes + [{"requestDeleteRange": each} for each in gone]

    def rest(self) -> None:
        if self._lease:
            self._keep_lease()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _keys(self, services: Sequence[TrafficService]) -> dict[str, _Value]:
        """The keys that etcd should have, and their values."""
        made = {}
        for service in published(services, everything=self._settings.all):
            former = self._made.get(service.id)
            if former is None or former[0] is not service:
                former = service, self._keys_of(service)
            made[service.id] = former
        self._made = made
        return {key: value for _, keys in made.values() for key, value in keys.items()}

    def _keys_of(self, service: TrafficService) -> dict[str, _Value]:
        keys = {}
        for target in sound(service.targets):
            value = {
                "address": target.address,
                "weight": target.weight,
                "revision": target.revision,
            }
            key = f"{self._settings.prefix}/{service.name}/{target.route}"
            text = json.dumps(value, separators=(",", ":"))
            keys[key] = _Value(text, target.weight > 0)
        return keys

    def _there(self) -> dict[str, tuple[str, int]]:
        """The keys that etcd has, with their values and leases."""
        first = self._settings.prefix.encode() + b"/"
        end = first[:-1] + bytes([first[-1] + 1])  # the first key that is not below it
        where = {"key": _encoded(first), "range_end": _encoded(end)}
        return {
            row.key.decode(errors="surrogateescape"): (
                row.value.decode(errors="replace"),
                row.lease,
            )
            for row in self._ask("/v3/kv/range", where, _Range).kvs
        }

    def _keep_lease(self) -> None:
        """Renew the lease, or get one."""
        now_s = time.monotonic()
        if self._lease and now_s < self._kept_s + self._settings.lease / 3:
            return
        if self._lease:
            kept = self._ask("/v3/lease/keepalive", {"ID": str(self._lease)}, _Kept)
            if kept.result.TTL > 0:
                self._kept_s = now_s
                return
        granted = self._ask("/v3/lease/grant", {"TTL": str(int(self._settings.lease))}, _Granted)
        self._lease, self._kept_s = granted.ID, now_s

    def _ask(self, path: str, request: Mapping[str, Any], type: type[A]) -> A:
        """The answer of a member.

        Raises:
            SinkError: it does not answer, refuses, or says what no etcd says; the next try is with
                another.
        """
        endpoint = self._settings.endpoints[self._turn % len(self._settings.endpoints)]
        try:
            return _answer(self._opened(endpoint), endpoint + path, request, type)
        except httpx.HTTPStatusError as error:
            self._begin_anew()
            raise SinkError(f"{endpoint} answers {error.response.status_code}") from None
        except (msgspec.MsgspecError, RecursionError):
            self._begin_anew()
            raise SinkError(f"{endpoint}{path} does not answer as etcd does") from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as error:
            self._begin_anew()
            raise SinkError(f"{endpoint} is not reached: {error.__class__.__name__}") from None

    def _opened(self, endpoint: str) -> httpx.Client:
        """The client, which has shown who it is."""
        if self._client is not None:
            return self._client
        settings = self._settings
        tls = ssl.create_default_context(cafile=settings.ca)
        if settings.cert is not None:
            tls.load_cert_chain(settings.cert, settings.key)
        client = httpx.Client(verify=tls, timeout=ANSWER_S, trust_env=False)
        try:
            if settings.user is not None and settings.password_file is not None:
                password = Path(settings.password_file).read_text().strip()
                who = {"name": settings.user, "password": password}
                shown = _answer(client, f"{endpoint}/v3/auth/authenticate", who, _Shown)
                client.headers["Authorization"] = shown.token
        except BaseException:
            client.close()
            raise
        self._client = client
        return client

    def _begin_anew(self) -> None:
        """Have the next request go to another member, with a token of its own, and the lease be
        looked at: it may be what is gone."""
        self.close()
        self._kept_s = -inf
        self._written = None
        self._turn += 1


def _answer(client: httpx.Client, url: str, request: Mapping[str, Any], type: type[A]) -> A:
    """The answer to a request, which has to come whole within ``ANSWER_S``.

    Raises:
        httpx.HTTPError: there is none.
        msgspec.MsgspecError: it cannot be read.
    """
    until_s = time.monotonic() + ANSWER_S
    content = bytearray()
    with client.stream("POST", url, json=request) as answer:
        answer.raise_for_status()
        for part in answer.iter_bytes():
            content += part
            if len(content) > MAX_ANSWER_BYTES or time.monotonic() > until_s:
                raise httpx.ReadError("it does not end")
    return msgspec.json.decode(content, type=type, strict=False)


def _encoded(text: str | bytes) -> str:
    raw = text if isinstance(text, bytes) else text.encode(errors="surrogateescape")
    return base64.b64encode(raw).decode()
