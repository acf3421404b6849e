"""API tokens and join tokens: kept as hashes, looked up without SQL."""

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from muster.core.ids import TokenId
from muster.core.owner import Role


def new_secret() -> str:
    """A secret of 256 bits, as text."""
    return secrets.token_urlsafe(32)


def token_hash(secret: str) -> str:
    """The form in which a secret is stored and looked up. A secret is random and long, so a plain
    hash will do, and the time of a look-up by hash tells nothing of the secret."""
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


@dataclass(slots=True, eq=False)
class Token:
    """An API token without its secret, which only its holder knows.

    Args:
        project: the only project that it is good for; None means all of its user's.
        expires_at: when it ends, in seconds since the epoch; None is never.
        last_used_at: moves with each request that carries the token, and is stored now and then.
    """

    id: TokenId
    hash: str
    name: str
    domain: str
    user: str
    project: str | None
    role: Role
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None

    def has_expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now


@dataclass(slots=True, eq=False)
class JoinToken:
    """A token with which agents join, without its secret.

    Args:
        agent: the only name that may join with it; None means any.
        group: the only group that may be joined with it; None means any.
        uses_left: how many agents may still join with it; None is any number.
        expires_at: when it ends, in seconds since the epoch; None is never.
        made_by: the administrator who made it.
        names: the only names that may join with it; empty means any.
        fixed: attributes that its agents have, whatever they say.

    The last two are those of a slice's token, which is stored with its slice alone.
    """

    id: TokenId
    hash: str
    agent: str | None
    group: str | None
    uses_left: int | None
    created_at: float
    expires_at: float | None
    made_by: str
    names: frozenset[str] = frozenset()
    fixed: Mapping[str, str] = field(default_factory=dict)

    def is_good(self, now: float) -> bool:
        """Whether an agent may still join with it."""
        return self.uses_left != 0 and (self.expires_at is None or now < self.expires_at)


class _Kept(Protocol):
    id: TokenId
    hash: str


T = TypeVar("T", bound=_Kept)


class TokensByHash(Generic[T]):
    """Tokens of one kind, found by their hash and by their id."""

    def __init__(self) -> None:
        self._by_hash: dict[str, T] = {}
        self._by_id: dict[TokenId, T] = {}

    def __iter__(self) -> Iterator[T]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, token: T) -> None:
        self._by_hash[token.hash] = token
        self._by_id[token.id] = token

    def remove(self, token: T) -> None:
        del self._by_hash[token.hash]
        del self._by_id[token.id]

    def of_secret(self, secret: str) -> T | None:
        return self._by_hash.get(token_hash(secret))

    def get(self, id_: TokenId | None) -> T | None:
        return self._by_id.get(id_) if id_ is not None else None
