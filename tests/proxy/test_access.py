"""The rights of those who send requests."""

import asyncio

import pytest
from tests.proxy.around import (
    ADMIN,
    ANN,
    CALLERS,
    EVE,
    LOOKER,
    Backend,
    Request,
    saying,
    service,
    serving,
)

from muster.core.errors import MusterError
from muster.core.origins import origin_of
from muster.core.serving.traffic import Identity
from muster.proxy.access import Access, may_be_ours
from muster.proxy.answers import Refused
from muster.proxy.limits import Limits
from muster.store.tokens import new_secret


@pytest.mark.parametrize(
    ("token", "own", "eves", "projects", "nothing"),
    [
        (None, 401, 401, 401, 401),
        ("z" * 43, 401, 401, 401, 401),
        ("short", 401, 401, 401, 401),
        (ANN, 200, 200, 200, 404),
        (LOOKER, 403, 403, 403, 404),
        (EVE, 404, 200, 200, 404),
        (ADMIN, 200, 200, 200, 404),
    ],
)
async def test_who_may_not_know_of_a_service_learns_nothing_of_it(
    token: str | None, own: int, eves: int, projects: int, nothing: int
) -> None:
    async with Backend(saying("hello")).running() as web, serving() as served:
        served.set(
            service(web.target(), name="own", public=False),
            service(web.target(), name="eves", public=False, users=("eve",)),
            service(web.target(), name="projects", public=False, projects=("q",)),
            service(web.target(), name="public"),
        )
        headers = [f"Authorization: Bearer {token}"] if token else []
        names = ("own", "eves", "projects", "nothing", "public")
        replies = [await served.get(f"/{name}/", *headers) for name in names]
    assert [each.status for each in replies] == [own, eves, projects, nothing, 200]
    unknown = replies[3]
    for reply in replies[:3]:
        if reply.status == unknown.status:
            assert reply == unknown
        assert ("www-authenticate" in reply.headers) == (reply.status == 401)


async def test_token_in_a_header_of_its_own_leaves_authorization_to_the_service() -> None:
    async with Backend(saying("hello")).running() as web, serving() as served:
        served.set(
            service(web.target(), name="own", public=False),
            service(web.target(), name="public"),
        )

        async def asked(name: str, *headers: str) -> tuple[int, str | None]:
            """The status, and the header Authorization that the replica got, if it got one."""
            web.requests.clear()
            status = (await served.get(f"/{name}/", *headers)).status
            assert all(each["x-muster-token"] is None for each in web.requests)
            return status, web.requests[0]["authorization"] if web.requests else None

        key, ours = "Authorization: Basic YTpi", f"X-Muster-Token: {ANN}"
        assert await asked("own", ours, key) == (200, "Basic YTpi")
        assert await asked("own", ours) == (200, None)
        assert await asked("own", ours, "Authorization: Bearer sk-1") == (200, "Bearer sk-1")
        assert await asked("own", ours, f"Authorization: Bearer {ANN}") == (200, None)
        for token, status in (("z" * 43, 401), ("short", 401), ("", 401), (EVE, 404)):
            assert await asked("own", f"X-Muster-Token: {token}", key) == (status, None)
        both = "X-Muster-Token: ", f"Authorization: Bearer {ANN}"
        assert await asked("own", *both) == (401, None), "the header of its own counts alone"
        assert await asked("public", ours, key) == (200, "Basic YTpi")
        assert await asked("public", "X-Muster-Token: other", key) == (200, "Basic YTpi")
        assert await asked("own", ours, ours) == (400, None)


def test_token_of_muster_is_known_by_its_form() -> None:
    assert all(may_be_ours(new_secret()) for _ in range(100))


class Asked:
    """A controller that tells whose a token is, and how often it was asked."""

    def __init__(self) -> None:
        self.count = 0
        self.is_away = False

    async def __call__(self, token: str) -> Identity | None:
        self.count += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise MusterError("away")
        return CALLERS.get(token)


async def test_answer_is_remembered_for_a_while_and_longer_while_nobody_can_be_asked() -> None:
    asked = Asked()
    access = Access(asked, Limits(identity_s=10, identity_away_s=100))
    assert access.known(ANN, 0) is None
    assert await access.ask(ANN, "a", 0) == CALLERS[ANN]
    known = access.known(ANN, 9.9)
    assert known is not None
    assert known.identity == CALLERS[ANN]
    assert access.known(ANN, 10) is None
    asked.is_away = True
    assert await access.ask(ANN, "a", 109) == CALLERS[ANN]
    for token, now_s in ((ANN, 111), (EVE, 111)):
        with pytest.raises(Refused) as refused:
            await access.ask(token, "a", now_s)
        assert refused.value.status == 503


async def test_who_guesses_tokens_is_slowed_down_and_nobody_else() -> None:
    asked = Asked()
    access = Access(asked, Limits(guesses=5, guess_s=1))
    for number in range(5):
        assert await access.ask(f"{number}" * 43, "a", 0) is None
    with pytest.raises(Refused) as refused:
        await access.ask("6" * 43, "a", 0)
    assert refused.value.status == 429
    assert asked.count == 5
    assert await access.ask(ANN, "b", 0) == CALLERS[ANN]
    assert await access.ask(ANN, "a", 2) == CALLERS[ANN], "a while later"
    for _ in range(10):
        assert await access.ask(EVE, "a", 2) == CALLERS[EVE], "good tokens are no guesses"


async def test_right_of_a_request_under_way_is_asked_for_whatever_else_its_address_tries() -> None:
    access = Access(Asked(), Limits(guesses=1, guess_s=1))
    await access.ask("0" * 43, "a", 0)
    with pytest.raises(Refused):
        await access.ask("1" * 43, "a", 0)
    assert await access.ask("2" * 43, "a", 0, is_guess=False) is None


async def test_memory_of_tokens_is_bounded() -> None:
    access = Access(Asked(), Limits(identities=3, guesses=100))
    for number in range(9):
        await access.ask(f"{number}" * 43, f"address {number}", 0)
    assert [access.known(f"{number}" * 43, 0) is not None for number in (0, 5, 6, 8)] == [
        False, False, True, True,
    ]  # fmt: skip
    assert len(access._guesses) == 3


@pytest.mark.parametrize("is_away", [False, True])
async def test_requests_that_come_at_once_with_one_token_share_a_question(*, is_away: bool) -> None:
    """They are no guesses, and need no room for questions of their own."""
    asked = Asked()
    access = Access(asked, Limits(guesses=1, asked=1))
    if is_away:
        await access.ask(ANN, "a", 0)
        asked.is_away = True
    before = asked.count
    answers = await asyncio.gather(*(access.ask(ANN, "a", 11) for _ in range(50)))
    assert answers == [CALLERS[ANN]] * 50
    assert asked.count == before + 1


async def test_controller_that_hangs_is_waited_for_by_one_request_only() -> None:
    asked = Asked()
    access = Access(asked, Limits(identity_s=10, identity_away_s=100))
    await access.ask(ANN, "a", 0)
    asked.is_away = True
    assert await access.ask(ANN, "a", 50) == CALLERS[ANN]
    known = access.known(ANN, 59)
    assert known is not None
    assert known.identity == CALLERS[ANN]
    assert access.known(ANN, 61) is None
    await access.ask(ANN, "a", 109)
    assert access.known(ANN, 109.9) is not None
    assert access.known(ANN, 110.1) is None, "no answer is good for longer than that"


async def test_question_outlives_the_client_that_asked_it_first() -> None:
    asked = Asked()
    access = Access(asked, Limits())
    first = asyncio.create_task(access.ask(ANN, "a", 0))
    second = asyncio.create_task(access.ask(ANN, "a", 0))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == CALLERS[ANN]
    assert asked.count == 1


async def goes_on(request: Request, writer: asyncio.StreamWriter) -> None:
    """Answers with a stream, or a web socket, that says something now and then."""
    head = "200 OK\r\nContent-Type: text/event-stream"
    if request["upgrade"]:
        head = "101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade"
    writer.write(f"HTTP/1.1 {head}\r\n\r\n".encode())
    while True:
        writer.write(b"data: 1\n\n")
        await writer.drain()
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("upgrades", [False, True])
@pytest.mark.parametrize(
    ("caller", "becomes", "users", "ends"),
    [
        (ANN, None, (), True),
        (ANN, CALLERS[LOOKER], (), True),
        (ANN, CALLERS[ANN], (), False),
        (EVE, CALLERS[EVE], (), True),
        (EVE, CALLERS[EVE], ("eve",), False),
        (None, None, (), True),
        (ANN, MusterError("away"), (), False),
    ],
)
async def test_stream_ends_soon_after_its_callers_right(
    caller: str | None,
    becomes: Identity | MusterError | None,
    users: tuple[str, ...],
    *,
    upgrades: bool,
    ends: bool,
) -> None:
    """The service is public at first where the caller has no token."""
    answers: list[Identity | MusterError | None] = [CALLERS[caller] if caller else None]

    async def authorise(_token: str) -> Identity | None:
        if isinstance(answers[0], MusterError):
            raise answers[0]
        return answers[0]

    limits = {"identity_s": 0.05, "identity_away_s": 0.05, "recheck_s": 0.03}
    headers = [f"Authorization: Bearer {caller}"] if caller else []
    if upgrades:
        headers += ["Upgrade: websocket", "Connection: Upgrade"]
    head = "\r\n".join(["GET /web/ HTTP/1.1", "Host: proxy", *headers, "", ""])
    async with Backend(goes_on).running() as web, serving(authorise, **limits) as served:
        served.set(service(web.target(), public=caller is None, users=("eve",)))
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(head.encode())
        await reader.readuntil(b"data: 1\n\n")
        await asyncio.sleep(0.1)
        await reader.readuntil(b"data: 1\n\n")  # it goes on while nothing changes
        answers[0] = becomes
        served.set(service(web.target(), public=False, users=users))
        try:
            async with asyncio.timeout(10 if ends else 0.3):
                while await reader.read(1000):
                    pass
        except ConnectionResetError:
            assert ends
        except TimeoutError:
            assert not ends
        else:
            assert ends
        writer.close()


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_addresses_of_a_site_count_as_one(address: str, origin: str) -> None:
    assert origin_of(address) == origin
