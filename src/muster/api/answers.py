"""Answers: views as JSON, and every error as one sentence with a status (design: Access)."""

import logging
from collections.abc import Mapping, Sequence

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

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

log = logging.getLogger(__name__)


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
_CODES = {401: ErrorCode.UNAUTHENTICATED, 404: ErrorCode.NOT_FOUND}
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


def add_error_handlers(app: FastAPI) -> None:
    """Answer every way in which a request can fail in the same form."""
    app.add_exception_handler(MusterError, _refused)
    app.add_exception_handler(TimeoutError, _timed_out)
    app.add_exception_handler(RequestValidationError, _wrong_parameters)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _defect)


async def _refused(request: Request, error: Exception) -> Response:
    status, code = next((s, c) for kind, s, c in _KINDS if isinstance(error, kind))
    problems = error.problems if isinstance(error, InvalidSpec) else ()
    sentence = str(error)
    if isinstance(error, NotStored):
        principal: Principal | None = request.scope.get("principal")
        if principal is None or not principal.is_admin:
            sentence = error.in_short
    return error_answer(status, code, sentence, problems)


async def _timed_out(_request: Request, _error: Exception) -> Response:
    sentence = "the controller did not get to it in time; it may still be carried out"
    return error_answer(503, ErrorCode.UNAVAILABLE, sentence)


async def _wrong_parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError), "registered for this kind only"
    problems = [
        Problem(
            ".".join(str(part) for part in detail["loc"][1:]) or "request",
            repr(detail.get("input"))[:80],
            detail["msg"].replace("Input should be", "expected"),
        )
        for detail in error.errors()
    ]
    return await _refused(request, InvalidSpec(problems))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for this kind only"
    sentence = str(error.detail)
    if error.status_code in (404, 405):
        sentence = (
            f"the API has no {request.method} {request.url.path}; see GET /v1/openapi.json for "
            f"what it has"
        )
    code = _CODES.get(error.status_code, ErrorCode.REFUSED)
    return error_answer(error.status_code, code, sentence)


async def _defect(request: Request, _error: Exception) -> Response:
    # Starlette raises the error again after this answer, so that it is logged with its traceback.
    sentence = (
        f"{request.method} {request.url.path} failed inside the controller; its log says more. "
        f"This is a defect of Muster; please report it."
    )
    return error_answer(500, ErrorCode.INTERNAL, sentence)
