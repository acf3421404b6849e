"""The replica that gets a request."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.proxy.around import Backend, saying, service, serving

from muster.proxy.affinity import cookie_in
from muster.proxy.balance import Share, next_by_weight, of_session

WEIGHTS = st.lists(st.integers(1, 20), min_size=1, max_size=6)


def shares(weights: list[int]) -> list[Share]:
    return [Share(f"r{number}", weight) for number, weight in enumerate(weights)]


@given(WEIGHTS, st.integers(1, 3))
def test_each_replica_gets_exactly_its_part(weights: list[int], rounds: int) -> None:
    choice = shares(weights)
    count = Counter(next_by_weight(choice) for _ in range(sum(weights) * rounds))
    assert [count[each] for each in choice] == [weight * rounds for weight in weights]


@given(WEIGHTS)
def test_parts_are_spread_evenly(weights: list[int]) -> None:
    choice, total = shares(weights), sum(weights)
    count: Counter[str] = Counter()
    for number in range(1, total + 1):
        chosen = next_by_weight(choice)
        assert chosen is not None
        count[chosen.route] += 1
        for each in choice:
            assert abs(count[each.route] - number * each.weight / total) < len(weights)


def test_among_equals_the_one_with_the_fewest_requests_is_next() -> None:
    choice = shares([1, 1, 1])
    for share, count in zip(choice, (2, 0, 1), strict=True):
        share.in_flight = count
    routes = [each.route for each in (next_by_weight(choice) for _ in range(3)) if each]
    assert routes == ["r1", "r2", "r0"]
    assert next_by_weight([]) is None


@given(WEIGHTS, st.integers(0, 5), st.lists(st.binary(max_size=20), min_size=1, max_size=30))
def test_sessions_of_a_replica_that_stays_stay_with_it(
    weights: list[int], lost: int, sessions: list[bytes]
) -> None:
    choice = shares(weights)
    left = [each for number, each in enumerate(choice) if number != lost % len(choice)]
    for session in sessions:
        before, after = of_session(session, choice), of_session(session, left)
        assert after is before or before not in left


def test_sessions_are_spread_by_weight() -> None:
    choice = shares([1, 3])
    count = Counter(of_session(b"%d" % number, choice) for number in range(10_000))
    assert 2_300 < count[choice[0]] < 2_700
    assert of_session(b"x", []) is None


async def test_session_s_requests_reach_one_replica() -> None:
    async with (
        Backend(saying("a")).running() as a,
        Backend(saying("b")).running() as b,
        serving() as served,
    ):
        both = a.target("r1"), b.target("r2")
        served.set(service(*both, affinity="X-Session"))
        of = {
            number: {(await served.get("/web/", f"X-Session: {number}")).body for _ in "12"}
            for number in range(20)
        }
        assert all(len(bodies) == 1 for bodies in of.values())
        assert {body for bodies in of.values() for body in bodies} == {b"a", b"b"}
        free = [(await served.get("/web/")).body for _ in range(4)]
    assert sorted(free) == [b"a", b"a", b"b", b"b"]


async def test_client_without_the_cookie_is_given_one_that_keeps_its_replica() -> None:
    async with (
        Backend(saying("a")).running() as a,
        Backend(saying("b")).running() as b,
        serving() as served,
    ):
        both = a.target("r1"), b.target("r2")
        served.set(service(*both, cookie="replica"))
        seen: set[bytes] = set()
        for _ in range(20):
            first = await served.get("/web/")
            given = first.headers["set-cookie"]
            cookie, _, terms = given.partition("; ")
            assert terms == "Path=/web; HttpOnly; SameSite=Lax"
            for sent in (cookie, f"theme=dark; {cookie}"):
                again = await served.get("/web/", f"Cookie: {sent}")
                assert again.body == first.body
                assert "set-cookie" not in again.headers
            seen.add(first.body)
            stays = cookie, first.body
        assert seen == {b"a", b"b"}
        left = {b"a": both[1], b"b": both[0]}[stays[1]]
        served.set(service(left, cookie="replica"))
        assert (await served.get("/web/", f"Cookie: {stays[0]}")).body != stays[1]
        served.set(service(*both, cookie="replica", host="web.example.org"))
        own = await served.get("/", "Host: web.example.org")
        assert "; Path=/; " in own.headers["set-cookie"]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b"replica=x", b"x"),
        (b"a=1; replica=y=z ;b=2", b"y=z"),
        (b"replicas=1; replica=", None),
        (b"replica", None),
        (b"", None),
    ],
)
def test_value_of_a_cookie_is_found_among_others(line: bytes, value: bytes | None) -> None:
    assert cookie_in([(b"Cookie", line)], b"replica") == value
    assert cookie_in([(b"X-Cookie", line)], b"replica") is None


async def test_shares_of_requests_are_exact() -> None:
    async with (
        Backend(saying("a")).running() as a,
        Backend(saying("b")).running() as b,
        serving() as served,
    ):
        served.set(service(a.target("r1", weight=9), b.target("r2", weight=1)))
        bodies = [(await served.get("/web/")).body for _ in range(20)]
    assert Counter(bodies) == {b"a": 18, b"b": 2}


async def test_other_weights_begin_anew() -> None:
    """A surplus that a replica had under large weights is not taken from it under small ones."""
    async with (
        Backend(saying("a")).running() as a,
        Backend(saying("b")).running() as b,
        serving() as served,
    ):
        served.set(service(a.target("ra", weight=10_000), b.target("rb", weight=9_999)))
        assert (await served.get("/web/")).body == b"a"
        served.set(service(a.target("ra"), b.target("rb")))
        bodies = [(await served.get("/web/")).body for _ in range(10)]
    assert bodies.count(b"a") == 5
