"""Bytes mean the same in whatever pieces they come, and none of them break the proxy."""

import asyncio

from hypothesis import assume, given
from hypothesis import strategies as st
from tests.proxy.around import Reply
from tests.proxy.wires import cut, wired

from muster.proxy.answers import Refused
from muster.proxy.heads import RequestHead

_PLACES = st.lists(st.integers(0, 2000), max_size=12)
_NOISE = st.sampled_from([b"\n", b"\r", b"\r\n", b" ", b" folded\r\n", b"\0", b"\xff", b"0"])
_NOISE |= st.binary(max_size=4)

_REQUEST = st.tuples(
    st.sampled_from([
        b"GET /web/ HTTP/1.1\r\nHost: a\r\n",
        b"POST http://a/web/x?y HTTP/1.1\r\nHost: a\r\n",
        b"HEAD /web/ HTTP/1.0\r\nConnection: keep-alive\r\n",
    ]),
    st.lists(
        st.sampled_from([
            b"Content-Length: 5\r\n",
            b"Content-Length: 0\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Connection: close\r\n",
            b"Connection: upgrade\r\nUpgrade: h2c\r\n",
            b"Expect: 100-continue\r\n",
            b"X: a\r\n",
        ]),
        max_size=3,
    ).map(b"".join),
    st.just(b"\r\n"),
    st.sampled_from([
        b"",
        b"hello",
        b"5\r\nhello\r\n0\r\n\r\n",
        b"5;a=b\r\nhello\r\n0\r\nX: trailer\r\n\r\n",
    ]),
).map(b"".join)  # fmt: skip

_ANSWER = st.tuples(
    st.sampled_from([b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 \r\nX: a\r\n\r\n"]),
    st.sampled_from([b"HTTP/1.1 ", b"HTTP/1.0 "]),
    st.sampled_from([b"200 OK", b"204 ", b"304 ", b"503 ", b"101 ", b"000 "]),
    st.just(b"\r\n"),
    st.lists(
        st.sampled_from([
            b"Content-Length: 5\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Connection: close\r\n",
            b"Connection: upgrade\r\nUpgrade: websocket\r\n",
            b"X: a\r\n",
        ]),
        max_size=2,
    ).map(b"".join),
    st.just(b"\r\n"),
    st.sampled_from([b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"5\r\nhello\r\n"]),
).map(b"".join)  # fmt: skip


@st.composite
def _with_noise(draw: st.DrawFn, streams: st.SearchStrategy[bytes]) -> bytes:
    data = b"".join(draw(st.lists(streams, min_size=1, max_size=4)))
    for place, noise in draw(st.lists(st.tuples(st.integers(0, 600), _NOISE), max_size=2)):
        place %= len(data) + 1
        data = data[:place] + noise + data[place:]
    return data


def _told(head: RequestHead) -> tuple[object, ...]:
    return head.method, head.target, head.host, head.keeps, head.length, head.chunked, *head.lines


async def _requests(pieces: list[bytes]) -> tuple[list[object], bytes]:
    """The requests that were read, with their bodies, and all that the proxy said; each request
    is refused once it is there."""
    seen: list[object] = []
    with wired() as wire:
        for piece in pieces:
            wire.front.data_received(piece)
            while (exchange := wire.complete) is not None:
                assert exchange.kept is not None
                seen.append((_told(exchange.head), bytes(exchange.kept)))
                exchange.refuse(Refused(503, "as the test wants it"))
                await asyncio.sleep(0)
        wire.client.abort()
        await asyncio.sleep(0)
        assert not wire.proxy.hold.count
        assert not wire.proxy._fronts
        return seen, wire.client.sent


@given(_with_noise(_REQUEST), _PLACES)
def test_requests_mean_the_same_in_any_pieces(data: bytes, places: list[int]) -> None:
    runs = [
        asyncio.run(_requests(pieces))
        for pieces in ([data], cut(data, places), [bytes([byte]) for byte in data])
    ]
    # What nobody may ask for is refused before its body has come, if that comes later.
    assume(not any(b" 401 " in sent for _, sent in runs))
    assert runs[0] == runs[1] == runs[2]


async def _answer(method: bytes, pieces: list[bytes]) -> tuple[object, ...]:
    """The client's view of an answer, and whether the replica's connection is kept."""
    with wired(has_replica=True) as wire:
        wire.front.data_received(method + b" /web/ HTTP/1.1\r\nHost: a\r\n\r\n")
        for piece in pieces:
            if not wire.replica.is_closed:
                wire.connection.data_received(piece)
        keeps = not wire.replica.is_closed
        if keeps:
            wire.connection.eof_received()
            wire.replica.close()
        await asyncio.sleep(0)
        sent, is_cut = wire.client.sent, wire.client.is_cut
        wire.client.abort()
        await asyncio.sleep(0)
        (load,) = wire.proxy.take_load().services
        assert [(each.in_flight, each.requests) for each in load.routes] == [(0, 1)]
    assert sent
    head = sent.partition(b"\r\n\r\n")[0]
    return keeps, is_cut, head, b"" if is_cut else Reply.of(sent).body


@given(st.sampled_from([b"GET", b"HEAD", b"POST"]), _with_noise(_ANSWER), _PLACES)
def test_answers_mean_the_same_in_any_pieces(method: bytes, data: bytes, places: list[int]) -> None:
    whole = asyncio.run(_answer(method, [data]))
    assert asyncio.run(_answer(method, cut(data, places))) == whole
    assert asyncio.run(_answer(method, [bytes([byte]) for byte in data])) == whole
