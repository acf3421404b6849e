"""API tokens and join tokens: kept as hashes, looked up without SQL (DESIGN section 13)."""

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import Connection, Engine, Row, insert, select

from muster.core.owner import Owner, Principal, Role
from muster.store import schema


class TokenKind(StrEnum):
    USER = "user"  # a person or program that uses the API
    JOIN = "join"  # an agent's first contact


@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of a token; the secret itself is known to its holder only."""

    kind: TokenKind
    name: str
    owner: Owner
    role: Role
    created_at: float


def token_hash(secret: str) -> str:
    """How a token is stored. It is random and long, so a plain hash will do."""
    return hashlib.sha256(secret.encode()).hexdigest()


class Tokens:
    """All tokens of a cluster. Few and read by every request, so they are kept in memory.

    Args:
        new_secret: makes tokens.

    Whoever writes tokens with another ``Tokens`` has this one ``reload``.
    """

    def __init__(
        self, engine: Engine, new_secret: Callable[[], str] = lambda: secrets.token_urlsafe(32)
    ) -> None:
        self._engine = engine
        self._new_secret = new_secret
        self._by_hash: dict[str, Token] = {}
        self.reload()

    def reload(self) -> None:
        """Read them again."""
        with self._engine.connect().execution_options(readonly=True) as connection:
            self._by_hash = _read(connection)

    def create(self, kind: TokenKind, name: str, owner: Owner, role: Role, now: float) -> str:
        """A new token: its secret, which cannot be had again."""
        secret = self._new_secret()
        token = Token(kind, name, owner, role, now)
        row = {
            "hash": token_hash(secret),
            "kind": kind.value,
            "name": name,
            "domain": owner.domain,
            "project": owner.project,
            "user": owner.user,
            "role": role.value,
            "created_at": now,
        }
        with self._engine.begin() as connection:
            connection.execute(insert(schema.tokens), row)
        self._by_hash[token_hash(secret)] = token
        return secret

    def all(self) -> list[Token]:
        """Every token, oldest first."""
        return sorted(self._by_hash.values(), key=lambda token: token.created_at)

    def verify(self, secret: str) -> Principal | None:
        """Whose API token this is; None if it is none."""
        token = self._by_hash.get(token_hash(secret))
        if token is None or token.kind is not TokenKind.USER:
            return None
        return Principal(token.owner, token.role)

    def may_join(self, secret: str) -> bool:
        """Whether this is a join token."""
        token = self._by_hash.get(token_hash(secret))
        return token is not None and token.kind is TokenKind.JOIN


def _read(connection: Connection) -> dict[str, Token]:
    return {row.hash: _token(row) for row in connection.execute(select(schema.tokens))}


def _token(row: Row[tuple[object, ...]]) -> Token:
    return Token(
        kind=TokenKind(row.kind),
        name=row.name,
        owner=Owner(row.domain, row.project, row.user),
        role=Role(row.role),
        created_at=row.created_at,
    )
