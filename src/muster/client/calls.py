"""The parts of both clients' methods: requests, and answers read as views."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from muster.client.connection import find_connection
from muster.client.encoding import Value, json_of, plain_of, query_of
from muster.client.environment import with_environment
from muster.client.errors import Unreachable
from muster.client.exchange import Answer, Exchange, Request
from muster.client.moments import with_absolute_moments
from muster.client.patience import PATIENCE_S, Patience
from muster.client.points import with_points
from muster.client.workdir import with_absolute_workdirs

if TYPE_CHECKING:
    from pathlib import Path

V = TypeVar("V")

PAGE = 1000


class Calls:
    """The base of all methods; a client carries out their steps."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        ca: Path | str | None = None,
        timeout_s: float = 30.0,
        on_contact: Callable[[bool], None] | None = None,
        comes_back: Callable[[str], bool] = lambda url: False,
    ) -> None:
        self._connection = find_connection(url, token, ca)
        self._patience = Patience(self._connection, timeout_s, on_contact, comes_back)

    @property
    def url(self) -> str:
        return self._connection.url

    @property
    def ca(self) -> Path | None:
        """The file of the authority that vouches for the controller, if one was named."""
        return self._connection.ca

    def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Value] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        repeat: bool = True,
        patience_s: float = PATIENCE_S,
        extra_s: float = 0.0,
    ) -> Exchange[Answer]:
        """The answer to a request.

        Args:
            repeat: whether the request may be sent again when it had no answer.
            patience_s: how long it is repeated.
            extra_s: how much longer than usual the answer may take.

        Raises:
            MusterError: no answer, or the server's refusal.
        """
        query = query_of(params or {})
        sent = {"Content-Type": "application/json"} if body else {}
        request = Request(
            method, f"{path}?{query}" if query else path, body, {**sent, **(headers or {})}
        )
        return self._patience.ask(
            request, patience_s=patience_s if repeat else 0.0, extra_s=extra_s
        )

    def _open(self, request: Request, patience_s: float) -> Exchange[Answer]:
        return self._patience.ask(request, patience_s=patience_s)

    def _get(self, view: type[V], path: str, **params: Value) -> Exchange[V]:
        return self._read(view, self._send("GET", path, params=params))

    def _read(self, view: type[V], asked: Exchange[Answer]) -> Exchange[V]:
        """The answer to a request, as this view.

        Raises:
            MusterError: see ``_send``; or what answers is no controller of this version.
        """
        answer = yield from asked
        try:
            return msgspec.json.decode(answer.content, type=view)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Unreachable(
                f"what answers at {self.url} is not a Muster controller, or of another version "
                f"than this client: its {view.__name__} cannot be read"
            ) from None


def body_of(spec: Any, fields: Mapping[str, Any] | None = None) -> tuple[str, bytes]:
    """The kind and the JSON of a spec; or of the keys of one, the ``fields``, if it is None. Work
    takes variables of the caller's environment along (``with_environment``).

    Raises:
        TypeError: neither is given, both are, or it is no spec.
        InvalidSpec: as ``plain_of``.
    """
    if spec is not None and fields:
        raise TypeError(f"give a spec or its keys, not both: put {', '.join(fields)} into the spec")
    if spec is None and not fields:
        raise TypeError("expected a spec, or the keys of one, such as command=['python', 'x.py']")
    spec = fields if spec is None else spec
    if isinstance(spec, Mapping):
        keys = with_absolute_workdirs(plain_of(with_absolute_moments(spec)))
        keys = with_points(keys)
    elif hasattr(spec, "model_dump"):
        keys = {"kind": spec.kind, **spec.model_dump(mode="json", exclude_defaults=True)}
    else:
        raise TypeError(_no_spec(spec))
    return str(keys.get("kind", "job")), json_of(with_environment(keys))


def _no_spec(given: object) -> str:
    """The sentence about something that is neither a spec nor the keys of one."""
    if isinstance(given, str | list | tuple):
        return f"a command is given by its name, as command={given!r:.80}"
    if callable(given):
        return (
            f"{given!r:.80} is a Python function, and these are not sent: write a program into a "
            "file, and give the command that runs it, as command=['python', 'train.py']"
        )
    return f"expected a spec, or the keys of one as a mapping, not {given!r:.80}"
