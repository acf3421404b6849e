"""The typed client of the HTTP API: ``Client``, its errors, and where it finds the cluster.

Importing it is cheap; what talks HTTP and what parses answers is imported with the first request.
"""

from muster.client.client import Client
from muster.client.errors import (
    AgentUnreachable,
    ControllerFailed,
    Forbidden,
    NoConnection,
    NotAUrl,
    NoToken,
    Unauthenticated,
    Unavailable,
    Unreachable,
)

__all__ = [
    "AgentUnreachable",
    "Client",
    "ControllerFailed",
    "Forbidden",
    "NoConnection",
    "NoToken",
    "NotAUrl",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
]
