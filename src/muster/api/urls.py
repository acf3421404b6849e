"""Bounds of URLs: their length, and characters that no part of the controller takes."""

from starlette.types import ASGIApp, Receive, Scope, Send

from muster.api.answers import error_answer
from muster.core.views.base import ErrorCode

MAX_PATH = 1024
MAX_QUERY = 4096


class UrlBounds:
    """Refuses URLs before anything looks at them.

    URLs are decoded as UTF-8 with replacements, so that NUL is the only character to refuse.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if wrong := _wrong(scope):
            await error_answer(400, ErrorCode.REFUSED, wrong)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _wrong(scope: Scope) -> str:
    if len(scope["path"]) > MAX_PATH:
        return f"the path of the URL is longer than {MAX_PATH} characters"
    if len(scope["query_string"]) > MAX_QUERY:
        return f"the query of the URL is longer than {MAX_QUERY} bytes"
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        return "the URL has a NUL character in it"
    return ""
