"""The proxy's own answers: refusals, in the form of the API's errors."""

import msgspec

from muster.core.errors import MusterError
from muster.core.views.base import ErrorCode, ErrorView

_REASONS = {
    308: (b"Permanent Redirect", ErrorCode.REFUSED),
    400: (b"Bad Request", ErrorCode.REFUSED),
    401: (b"Unauthorized", ErrorCode.UNAUTHENTICATED),
    403: (b"Forbidden", ErrorCode.FORBIDDEN),
    404: (b"Not Found", ErrorCode.NOT_FOUND),
    405: (b"Method Not Allowed", ErrorCode.REFUSED),
    408: (b"Request Timeout", ErrorCode.REFUSED),
    417: (b"Expectation Failed", ErrorCode.REFUSED),
    429: (b"Too Many Requests", ErrorCode.BUSY),
    431: (b"Request Header Fields Too Large", ErrorCode.TOO_LARGE),
    500: (b"Internal Server Error", ErrorCode.INTERNAL),
    501: (b"Not Implemented", ErrorCode.REFUSED),
    502: (b"Bad Gateway", ErrorCode.UNAVAILABLE),
    503: (b"Service Unavailable", ErrorCode.UNAVAILABLE),
    504: (b"Gateway Timeout", ErrorCode.UNAVAILABLE),
    505: (b"HTTP Version Not Supported", ErrorCode.REFUSED),
    508: (b"Loop Detected", ErrorCode.REFUSED),
}

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Refused(MusterError):
    """A request that gets the proxy's own answer; the text tells a person why.

    Args:
        status: of the answer.
        retry_s: in how many seconds the same request may pass.
        at: path and query of the same request as it is answered, with 308.
    """

    def __init__(
        self, status: int, sentence: str, retry_s: int | None = None, at: bytes | None = None
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.retry_s = retry_s
        self.at = at

    def written(self, *, closes: bool, bodiless: bool) -> bytes:
        """The whole answer.

        Args:
            closes: whether the connection ends after it.
            bodiless: whether it answers HEAD.
        """
        reason, code = _REASONS[self.status]
        content = msgspec.json.encode(ErrorView(error=str(self), code=code))
        lines = [
            b"HTTP/1.1 %d %b\r\n" % (self.status, reason),
            b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(content),
        ]
        if self.status == 401:
            lines.append(b"WWW-Authenticate: Bearer\r\n")
        if self.status == 405:
            lines.append(b"Allow: DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT\r\n")
        if self.at is not None:
            lines.append(b"Location: %b\r\n" % self.at)
        if self.retry_s is not None:
            lines.append(b"Retry-After: %d\r\n" % self.retry_s)
        if closes:
            lines.append(b"Connection: close\r\n")
        return b"".join((*lines, b"\r\n", b"" if bodiless else content))
