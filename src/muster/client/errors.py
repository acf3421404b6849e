"""Errors of a caller: the server's errors as exceptions, with the server's sentences.

``NotFound``, ``Ambiguous``, ``Conflict``, ``Busy`` and ``InvalidSpec`` are those of
``core.errors``; the errors here occur only at the client's end of a connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.core.errors import (
    Ambiguous,
    Busy,
    Conflict,
    InvalidSpec,
    MusterError,
    NotFound,
    Problem,
)

if TYPE_CHECKING:
    from muster.core.views.base import ErrorView


class NoConnection(MusterError):
    """The cluster is not known: no URL is given, or no token for it."""


class NotAUrl(NoConnection):
    """The text in place of a URL is no URL."""


class NoToken(NoConnection):
    """The cluster is known, and no token for it."""


class Unreachable(MusterError):
    """Nothing answers at the URL, or the server there is no Muster controller."""


class Silent(Unreachable):
    """Nothing answers at the URL."""


class Untrusted(Unreachable):
    """The controller's certificate is not accepted: of an unknown authority, for another name, or
    expired."""


class Unauthenticated(MusterError):
    """The token is missing or wrong."""


class Forbidden(MusterError):
    """The token's role does not allow the request."""


class Unavailable(MusterError):
    """The controller cannot carry the request out at the moment."""


class ControllerFailed(MusterError):
    """The controller failed inside: it has a defect, or is being stopped at this moment."""


class AgentUnreachable(MusterError):
    """The output of a kernel is on an agent that does not answer."""


class OutputRemoved(MusterError):
    """The output of a kernel is no longer there; the text says since when, and why."""


def error_of(answer: ErrorView) -> MusterError:
    """The exception for an error answer of the server."""
    from muster.core.views.base import ErrorCode

    if answer.problems:
        return InvalidSpec([Problem(p.field, p.value, p.expected) for p in answer.problems])
    kinds: dict[ErrorCode, type[MusterError]] = {
        ErrorCode.UNAUTHENTICATED: Unauthenticated,
        ErrorCode.FORBIDDEN: Forbidden,
        ErrorCode.NOT_FOUND: NotFound,
        ErrorCode.AMBIGUOUS: Ambiguous,
        ErrorCode.CONFLICT: Conflict,
        ErrorCode.BUSY: Busy,
        ErrorCode.UNAVAILABLE: Unavailable,
        ErrorCode.AGENT_UNREACHABLE: AgentUnreachable,
        ErrorCode.OUTPUT_REMOVED: OutputRemoved,
        ErrorCode.INTERNAL: ControllerFailed,
    }
    return kinds.get(answer.code, MusterError)(answer.error)
