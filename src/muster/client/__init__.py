"""The typed client of the HTTP API: ``Client``, its twin ``AsyncClient``, their errors, and where
they find the cluster.

Importing it is cheap: the libraries of ``AsyncClient`` are imported with its first request.
"""

from muster.client.client import AsyncClient, Client
from muster.client.errors import (
    AgentUnreachable,
    ControllerFailed,
    Forbidden,
    NoConnection,
    NotAUrl,
    NoToken,
    OutputRemoved,
    Unauthenticated,
    Unavailable,
    Unreachable,
    Untrusted,
)
from muster.core.errors import (
    Ambiguous,
    Busy,
    Conflict,
    InvalidSpec,
    MusterError,
    NotFound,
    Problem,
)

__all__ = [
    "AgentUnreachable",
    "Ambiguous",
    "AsyncClient",
    "Busy",
    "Client",
    "Conflict",
    "ControllerFailed",
    "Forbidden",
    "InvalidSpec",
    "MusterError",
    "NoConnection",
    "NoToken",
    "NotAUrl",
    "NotFound",
    "OutputRemoved",
    "Problem",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "Untrusted",
]
