"""Requests that two servers might read in two ways, or that are larger than any server takes: the
proxy and the controller refuse them alike."""

GOOD = "GET /web/ HTTP/1.1\r\nHost: a\r\n"

BAD_HEADS: list[tuple[str, int]] = [
    (GOOD + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (GOOD + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400),
    (GOOD + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400),
    (GOOD + "Content-Length: 3, 3\r\n\r\nabc", 400),
    (GOOD + "Content-Length: +3\r\n\r\nabc", 400),
    (GOOD + "Content-Length: 99999999999999999999999\r\n\r\nabc", 400),
    (GOOD + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501),
    (GOOD + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
    (GOOD + "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n", 501),
    (GOOD + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (GOOD + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400),
    (GOOD + "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", 400),
    ("GET /web/ HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
    (GOOD + "X: a\r\n folded\r\n\r\n", 400),
    (GOOD + " X: a\r\n\r\n", 400),
    (GOOD + "X: a\nY: b\r\n\r\n", 400),
    (GOOD + "X: a\rY: b\r\n\r\n", 400),
    (GOOD + "X: a\0b\r\n\r\n", 400),
    (GOOD + "X\0: a\r\n\r\n", 400),
    (GOOD + "X y: a\r\n\r\n", 400),
    (GOOD + ": a\r\n\r\n", 400),
    (GOOD + "Host: a\r\n\r\n", 400),
    (GOOD + "Authorization: a\r\nAuthorization: b\r\n\r\n", 400),
    ("GET /web/ HTTP/1.1\r\n\r\n", 400),
    ("GET /web/ HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
    ("GET /web/ HTTP/1.1\r\nHost: a@b\r\n\r\n", 400),
    ("GET /web/ HTTP/1.1\r\nHost: \r\n\r\n", 400),
    ("GET http://b/web/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /web/#f HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /web/ x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /web/\xff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    ("TRACE /web/ HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    ("FROB /web/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ("GET /web/\r\n\r\n", 505),
    ("GET /web/ HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    (GOOD + "Expect: everything\r\n\r\n", 417),
    ("POST" + GOOD[3:] + "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", 400),
    (GOOD + "X: " + "a" * 40_000 + "\r\n\r\n", 431),
    (GOOD + "X: a\r\n" * 101 + "\r\n", 431),
    ("GET /web/" + "a" * 20_000 + GOOD[9:] + "X: " + "a" * 20_000 + "\r\n\r\n", 431),
    ("GET /web/" + "a" * 40_000 + " HTTP/1.1\r\nHost: a\r\n\r\n", 431),
]  # fmt: skip
"""Heads with the status of the answer."""

BAD_CHUNKS = ["x\r\n", "3\nabc\r\n", "3 \r\nabc\r\n", "-1\r\n", "0x3\r\nabc\r\n", "3\r\nabcd\r\n",
             "3\r\nabc\n0\r\n\r\n", "f" * 17 + "\r\n", '3;a="\r\nabc']  # fmt: skip
"""Bodies that are no chunks."""

ENDLESS = ["0\r\nX: ", "3;ext="]
"""The beginnings of a trailer and of an extension that have no end."""
