"""Answers: views as JSON, and every error as one sentence with a status (design: Access)."""

from collections.abc import Collection, Mapping, Sequence

import msgspec
from starlette.responses import Response
from starlette.types import Scope

from muster.control.inbox import NotStored
from muster.core.errors import (
    Ambiguous,
    Busy,
    Conflict,
    InvalidSpec,
    MusterError,
    NotFound,
    Problem,
)
from muster.core.owner import Principal
from muster.core.views.base import ErrorCode, ErrorView, ProblemView, View
from muster.wire.log_reading import LogUnreadable, OutputNotKept, OutputUnreachable


class RoleForbids(MusterError):
    """The caller's role does not allow the request, whatever thing it is about."""


class TokenRefused(MusterError):
    """The request's token is not, or no longer, a token of this cluster."""

    def __init__(self) -> None:
        super().__init__(
            "the token is missing or wrong, has expired or was revoked: send "
            "`Authorization: Bearer TOKEN` with an API token of this cluster"
        )


class TooLarge(MusterError):
    """A body exceeds its limit; it was not read to its end."""


_KINDS: tuple[tuple[type[Exception], int, ErrorCode], ...] = (
    (InvalidSpec, 422, ErrorCode.INVALID),
    (TooLarge, 413, ErrorCode.TOO_LARGE),
    (TokenRefused, 401, ErrorCode.UNAUTHENTICATED),
    (RoleForbids, 403, ErrorCode.FORBIDDEN),
    (NotFound, 404, ErrorCode.NOT_FOUND),
    (Ambiguous, 409, ErrorCode.AMBIGUOUS),
    (Conflict, 409, ErrorCode.CONFLICT),
    (Busy, 429, ErrorCode.BUSY),
    (NotStored, 503, ErrorCode.UNAVAILABLE),
    (OutputUnreachable, 502, ErrorCode.AGENT_UNREACHABLE),
    (LogUnreadable, 502, ErrorCode.AGENT_UNREACHABLE),
    (OutputNotKept, 410, ErrorCode.OUTPUT_REMOVED),
    (MusterError, 400, ErrorCode.REFUSED),
)
_RETRY_AFTER_S = "1"
_LAST = frozenset({401, 413})
"""Statuses after which the connection is closed, so that the rest of the request is not read."""


def answer(view: View, status: int = 200) -> Response:
    """A view as JSON."""
    return json_answer(msgspec.json.encode(view), status)


def json_answer(
    text: str | bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(text, status, headers, media_type="application/json")


def error_answer(
    status: int, code: ErrorCode, sentence: str, problems: Sequence[Problem] = ()
) -> Response:
    view = ErrorView(error=sentence, code=code, problems=tuple(map(ProblemView.of, problems)))
    headers = {}
    if status in _LAST:
        headers["Connection"] = "close"
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    elif status in (429, 503):
        headers["Retry-After"] = _RETRY_AFTER_S
    return json_answer(msgspec.json.encode(view), status, headers)


def refusal(scope: Scope, error: Exception) -> Response:
    """The answer to a request that failed. That of a defect, which is the answer to every error
    that is no refusal, does not say more than that there is one."""
    if isinstance(error, MusterError):
        return _refused(scope, error)
    if isinstance(error, TimeoutError):
        return _timed_out()
    return _defect(scope)


def is_defect(error: Exception) -> bool:
    """Whether an error is none of those by which requests are refused."""
    return not isinstance(error, MusterError | TimeoutError)


def nothing_there(scope: Scope, allowed: Collection[str] = ()) -> Response:
    """The answer to a request for which the API has no endpoint; ``allowed`` are the methods for
    which it has the path."""
    asked = f"{scope['method']} {scope['path']}"
    sentence = f"the API has no {asked}; see GET /v1/openapi.json for what it has"
    if allowed:
        response = error_answer(405, ErrorCode.REFUSED, sentence)
        response.headers["Allow"] = ", ".join(sorted(allowed))
        return response
    return error_answer(404, ErrorCode.NOT_FOUND, sentence)


def _refused(scope: Scope, error: MusterError) -> Response:
    status, code = next((s, c) for kind, s, c in _KINDS if isinstance(error, kind))
    problems = error.problems if isinstance(error, InvalidSpec) else ()
    sentence = str(error)
    if isinstance(error, NotStored):
        principal: Principal | None = scope.get("principal")
        if principal is None or not principal.is_admin:
            sentence = error.in_short
    return error_answer(status, code, sentence, problems)


def _timed_out() -> Response:
    sentence = "the controller did not get to it in time; it may still be carried out"
    return error_answer(503, ErrorCode.UNAVAILABLE, sentence)


def _defect(scope: Scope) -> Response:
    sentence = (
        f"{scope['method']} {scope['path']} failed inside the controller; its log says more. "
        f"This is a defect of Muster; please report it."
    )
    return error_answer(500, ErrorCode.INTERNAL, sentence)
