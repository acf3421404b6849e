"""Who asks: bearer tokens, checked before anything else looks at a request."""

from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from muster.api.answers import error_answer
from muster.core.owner import Principal
from muster.core.views import ErrorCode

PUBLIC = frozenset({"/health"})


class BearerAuth:
    """Refuses requests without a good token; the others carry their ``principal`` in the scope.

    Args:
        verify: whose a token is; called for every request, so it must not wait.
    """

    def __init__(self, app: ASGIApp, verify: Callable[[str], Principal | None]) -> None:
        self._app = app
        self._verify = verify

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in PUBLIC:
            principal = self._principal(scope)
            if principal is None:
                sentence = (
                    "the token is missing or wrong: send `Authorization: Bearer TOKEN` with an API "
                    "token of this cluster"
                )
                refusal = error_answer(401, ErrorCode.UNAUTHENTICATED, sentence)
                await refusal(scope, receive, send)
                return
            scope["principal"] = principal
        await self._app(scope, receive, send)

    def _principal(self, scope: Scope) -> Principal | None:
        for name, value in scope["headers"]:
            if name == b"authorization":
                scheme, _, token = value.decode("latin-1").partition(" ")
                if scheme.lower() == "bearer":
                    return self._verify(token.strip())
        return None
