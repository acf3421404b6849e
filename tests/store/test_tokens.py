"""Tokens: what is kept of them, and what they open."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert, select, text
from tests.control.world import ADA, World
from tests.databases import ON_BOTH, empty_url_at

from muster.control.accounts import ensure_user
from muster.control.engine.module import Parts
from muster.control.engine.sweeps import SWEEP_S
from muster.control.engine.work import Work
from muster.control.identity.tokens import (
    KEPT_EXPIRED_S,
    create_join_token,
    create_open_join_token,
    create_token,
    revoke_token,
    verify,
)
from muster.core.errors import Ambiguous, Conflict, InvalidSpec, NotFound
from muster.core.owner import Owner, Principal, Role
from muster.core.specs.account import JoinTokenSpec, TokenSpec
from muster.store import schema
from muster.store.database import open_engine
from muster.store.database.address import parsed
from muster.store.store import Store
from muster.store.tokens import Token, token_hash

pytestmark = ON_BOTH

ROOT = Principal(Owner("default", "default", "root"), Role.ADMIN)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A cluster that knows its administrator and Ada."""
    world = World(tmp_path, {})
    world.ask(lambda work, _: ensure_user(work, ROOT.owner))
    world.ask(lambda work, _: ensure_user(work, ADA.owner))
    yield world
    world.close()


def make(world: World, by: Principal = ROOT, **fields: object) -> tuple[Token, str]:
    """A new token, Ada's unless it is said whose."""
    spec = TokenSpec.model_validate({"user": "ada", **fields})
    made: tuple[Token, str] = world.ask(lambda work, _: create_token(work, by, spec))
    return made


def opens(world: World, secret: str) -> Principal | None:
    return verify(world.plane.live, secret, world.clock.now())


def kept(world: World, table: str = "tokens") -> list[object]:
    with world.store.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(f"SELECT * FROM {table}"))]


def test_token_opens_what_its_owner_and_role_may(world: World) -> None:
    token, secret = make(world, role=Role.VIEWER)
    assert opens(world, secret) == Principal(ADA.owner, Role.VIEWER, ("default",), token.id)
    assert opens(world, secret + "x") is None
    assert opens(world, "") is None
    assert opens(world, "\udcff") is None


def test_join_token_is_not_an_api_token_nor_the_other_way_round(world: World) -> None:
    join = world.ask(lambda work, _: create_open_join_token(work, "root"))
    _, secret = make(world)
    assert opens(world, join) is None
    assert world.plane.live.accounts.join_tokens.of_secret(secret) is None


def test_secrets_are_not_in_the_database(world: World) -> None:
    _, secret = make(world)
    join = world.ask(lambda work, _: create_open_join_token(work, "root"))
    assert secret not in str(kept(world))
    assert join not in str(kept(world, "join_tokens"))
    assert token_hash(secret) in str(kept(world))


def test_tokens_and_users_are_there_after_a_restart(world: World) -> None:
    token, secret = make(world, name="laptop", expires="30d")
    world.restart_controller()
    again = world.plane.live.accounts.tokens.get(token.id)
    assert again is not None
    assert (again.name, again.expires_at) == ("laptop", token.expires_at)
    assert opens(world, secret) == Principal(ADA.owner, Role.USER, ("default",), token.id)


def test_token_opens_nothing_from_the_moment_of_its_end(world: World) -> None:
    _, secret = make(world, expires=60)
    world.clock.advance(59.9)
    assert opens(world, secret) is not None
    world.clock.advance(0.1)
    assert opens(world, secret) is None


def test_revoked_token_opens_nothing_also_after_a_restart(world: World) -> None:
    token, secret = make(world)
    world.ask(lambda work, _: revoke_token(work, ROOT, token.id))
    assert opens(world, secret) is None
    world.restart_controller()
    assert opens(world, secret) is None
    assert kept(world) == []


def test_when_a_token_was_last_used_is_written_with_the_next_sweep(world: World) -> None:
    token, secret = make(world)
    world.run(2 * SWEEP_S)
    commits: list[object] = []
    world.plane.watch(commits.append)
    used_at = world.clock.now()
    for _ in range(1000):
        assert opens(world, secret) is not None
    world.settle()
    with world.store.engine.connect() as connection:
        assert connection.execute(select(schema.tokens.c.last_used_at)).scalar() is None
    assert token.last_used_at == used_at
    world.run(SWEEP_S + 1)
    with world.store.engine.connect() as connection:
        assert connection.execute(select(schema.tokens.c.last_used_at)).scalar() == used_at
    world.restart_controller()
    again = world.plane.live.accounts.tokens.get(token.id)
    assert again is not None
    assert again.last_used_at == used_at


def test_use_of_a_token_is_not_forgotten_with_a_wake_that_is_undone(world: World) -> None:
    def fails(work: Work, _: Parts) -> None:
        create_join_token(work, ROOT, JoinTokenSpec(expires=60.0))  # so there is a change to undo
        raise ZeroDivisionError

    token, secret = make(world)
    world.run(2 * SWEEP_S)
    used_at = world.clock.now()
    assert opens(world, secret) is not None
    with pytest.raises(ZeroDivisionError):
        world.ask(fails)
    again = world.plane.live.accounts.tokens.get(token.id)
    assert again is not None
    assert again is not token, "the state was read again"
    assert again.last_used_at == used_at
    world.run(SWEEP_S + 1)
    with world.store.engine.connect() as connection:
        assert connection.execute(select(schema.tokens.c.last_used_at)).scalar() == used_at


def test_token_that_ended_long_ago_is_forgotten(world: World) -> None:
    make(world, expires=60)
    world.ask(lambda work, _: create_join_token(work, ROOT, JoinTokenSpec(expires=60.0)))
    world.run(3600.0, step_s=60.0)
    assert len(kept(world)) == len(kept(world, "join_tokens")) == 1
    world.clock.advance(KEPT_EXPIRED_S)
    world.run(2 * SWEEP_S)
    assert kept(world) == kept(world, "join_tokens") == []


def test_last_admin_token_that_is_good_is_not_revoked(world: World) -> None:
    first, _ = make(world, user="root", role=Role.ADMIN)
    make(world, user="root", role=Role.ADMIN, expires=60)
    world.clock.advance(61)
    with pytest.raises(Conflict, match="last admin token"):
        world.ask(lambda work, _: revoke_token(work, ROOT, first.id))
    make(world, user="root", role=Role.ADMIN)
    world.ask(lambda work, _: revoke_token(work, ROOT, first.id))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"role": "admin"}, "role"),
        ({"user": "root"}, "user"),
        ({"domain": "other"}, "domain"),
        ({"project": "secret"}, "project"),
    ],
)
def test_user_makes_no_token_that_opens_more_than_their_own(
    world: World, fields: dict[str, str], field: str
) -> None:
    _, secret = make(world)
    ada = opens(world, secret)
    assert ada is not None
    with pytest.raises(InvalidSpec) as refused:
        make(world, ada, **fields)
    assert field in [problem.field for problem in refused.value.problems]
    made, _ = make(world, ada, role="viewer")
    assert made.role is Role.VIEWER


def test_token_that_ends_makes_none_that_outlives_it(world: World) -> None:
    own, secret = make(world, expires=60)
    ada = opens(world, secret)
    assert ada is not None
    made, _ = make(world, ada)
    assert made.expires_at == own.expires_at, "as long as its maker, where nothing is said"
    with pytest.raises(InvalidSpec, match="no later than your own"):
        make(world, ada, expires=61)


def test_token_of_a_name_that_several_have_is_not_guessed(world: World) -> None:
    first, _ = make(world, name="laptop")
    make(world, name="laptop")
    with pytest.raises(Ambiguous, match=first.id):
        world.ask(lambda work, _: revoke_token(work, ROOT, "laptop"))
    world.ask(lambda work, _: revoke_token(work, ROOT, first.id))
    revoked: Token = world.ask(lambda work, _: revoke_token(work, ROOT, "laptop"))
    assert revoked is not first
    with pytest.raises(NotFound):
        world.ask(lambda work, _: revoke_token(work, ROOT, "laptop"))


def test_token_whose_making_could_not_be_stored_opens_nothing(world: World) -> None:
    spec = TokenSpec(user="ada")
    made: list[tuple[Token, str]] = []

    def fails(work: Work, _: Parts) -> None:
        made.append(create_token(work, ROOT, spec))
        duplicate = {"name": "default", "created_at": 0.0}
        work.unit.also(insert(schema.domains), duplicate)

    with pytest.raises(Exception, match="cannot be carried out"):
        world.ask(fails)
    world.clock.advance(2.0)
    world.settle()
    assert opens(world, made[0][1]) is None


def test_tokens_of_before_there_were_users_make_their_owners_users(tmp_path: Path) -> None:
    url = empty_url_at(tmp_path)
    engine = _former_database(url)
    with engine.begin() as connection:
        for kind, user, project in (
            ("user", "ada", "vision"),
            ("user", "ada", "speech"),
            ("join", "agents", "default"),
        ):
            row = {"kind": kind, "user": user, "project": project, "hash": project[0] * 64}
            connection.execute(
                text(
                    "INSERT INTO tokens VALUES "
                    "(:hash, :kind, 'up', 'default', :project, :user, 'user', 7.0)"
                ),
                row,
            )
    engine.dispose()
    store = Store(open_engine(url))
    accounts = store.live.accounts
    store.close()
    assert list(accounts.users) == [("default", "ada")]
    assert accounts.users["default", "ada"].projects == ("vision", "speech")
    assert set(accounts.projects) == {("default", "vision"), ("default", "speech")}
    assert [token.hash for token in accounts.tokens] == ["v" * 64, "s" * 64]
    assert [(token.hash, token.uses_left) for token in accounts.join_tokens] == [("d" * 64, None)]


def _former_database(url: str) -> Engine:
    """A database as it was before there were users."""
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine

    from muster.store import database

    engine = create_engine(parsed(url))
    config = Config()
    config.set_main_option("script_location", str(database.MIGRATIONS))
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        connection.commit()
    return engine
