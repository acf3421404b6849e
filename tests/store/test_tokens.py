"""Tokens: what is kept of them, and what they open."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from muster.core.owner import Owner, Principal, Role
from muster.store import schema
from muster.store.database import open_engine, sqlite_url
from muster.store.tokens import TokenKind, Tokens

ADA = Owner("default", "default", "ada")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(sqlite_url(tmp_path / "muster.db"))
    yield engine
    engine.dispose()


def test_token_opens_what_its_owner_and_role_may(engine: Engine) -> None:
    tokens = Tokens(engine)
    secret = tokens.create(TokenKind.USER, "laptop", ADA, Role.VIEWER, 1.0)
    assert tokens.verify(secret) == Principal(ADA, Role.VIEWER)
    assert tokens.verify(secret + "x") is None
    assert tokens.verify("") is None


def test_join_token_is_not_an_api_token_nor_the_other_way_round(engine: Engine) -> None:
    tokens = Tokens(engine)
    join = tokens.create(TokenKind.JOIN, "agents", ADA, Role.VIEWER, 1.0)
    user = tokens.create(TokenKind.USER, "laptop", ADA, Role.USER, 2.0)
    assert tokens.may_join(join)
    assert tokens.verify(join) is None
    assert not tokens.may_join(user)


def test_secrets_are_not_in_the_database(engine: Engine) -> None:
    tokens = Tokens(engine)
    secret = tokens.create(TokenKind.USER, "laptop", ADA, Role.USER, 1.0)
    with engine.connect() as connection:
        kept = connection.execute(select(schema.tokens)).one()
    assert secret not in str(tuple(kept))


def test_tokens_are_there_after_a_restart_oldest_first(engine: Engine) -> None:
    first = Tokens(engine)
    later = first.create(TokenKind.USER, "later", ADA, Role.USER, 2.0)
    first.create(TokenKind.USER, "earlier", ADA, Role.USER, 1.0)
    again = Tokens(engine)
    assert again.verify(later) == Principal(ADA, Role.USER)
    assert [token.name for token in again.all()] == ["earlier", "later"]


def test_token_of_another_process_is_known_after_a_reload(engine: Engine) -> None:
    mine, other = Tokens(engine), Tokens(engine)
    secret = other.create(TokenKind.USER, "laptop", ADA, Role.USER, 1.0)
    assert mine.verify(secret) is None
    mine.reload()
    assert mine.verify(secret) is not None
