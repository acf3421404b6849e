"""Tokens: finding the principal of a token, and requests that make and revoke tokens.

A token is known by its hash from the commit on, and its secret is told once.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import fields
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, TypeVar

from muster.control.engine.setting_changes import note_change
from muster.control.engine.work import Work
from muster.core.errors import Ambiguous, Conflict, InvalidSpec, NotFound, Problem
from muster.core.ids import IdKind, TokenId, prefix_range
from muster.core.owner import Owner, Principal, Role
from muster.core.settings import SettingKind
from muster.core.specs.account import JoinTokenSpec, TokenSpec
from muster.store import schema
from muster.store.accounts import Accounts, User
from muster.store.batch import deleting, inserting, updating
from muster.store.live import Live
from muster.store.tokens import JoinToken, Token, new_secret, token_hash

MAX_OF_ONE = 100
"""API tokens of one user."""
MAX_JOIN_TOKENS = 10_000
KEPT_EXPIRED_S = 7 * 86400.0
"""How long an expired token is still listed."""

_TOKEN = tuple(each.name for each in fields(Token))
_ADD_TOKEN = inserting(schema.tokens, _TOKEN, {"role": str})
_NOTE_USE = updating(schema.tokens, ("last_used_at",), ("id",))
_DROP_TOKEN = deleting(schema.tokens, ("id",))
_JOIN_TOKEN = tuple(column.name for column in schema.join_tokens.columns)
_ADD_JOIN_TOKEN = inserting(schema.join_tokens, _JOIN_TOKEN)
_CHARGE_JOIN_TOKEN = updating(schema.join_tokens, ("uses_left",), ("id",))
_DROP_JOIN_TOKEN = deleting(schema.join_tokens, ("id",))

K = TypeVar("K", Token, JoinToken)


def verify(live: Live, secret: str, now: float) -> Principal | None:
    """The principal of an API token; None if the token is not good. The call costs a hash and a few
    look-ups, and notes that the token was used."""
    token = live.accounts.tokens.of_secret(secret)
    if token is None:
        return None
    principal = principal_now(live, token.id, now)
    if principal is not None:
        token.last_used_at = now
    return principal


def principal_now(live: Live, id_: TokenId | None, now: float) -> Principal | None:
    """The principal of a token at this moment; None if the token is not good."""
    token = live.accounts.tokens.get(id_)
    if token is None or token.has_expired(now):
        return None
    user = live.accounts.users.get((token.domain, token.user))
    if user is None:
        return None
    projects = user.projects if token.project is None else (token.project,)
    return Principal(Owner(user.domain, projects[0], user.name), token.role, projects, token.id)


def create_token(
    work: Work, by: Principal, spec: TokenSpec, secret: str | None = None
) -> tuple[Token, str]:
    """Make an API token; the answer has its secret, which cannot be had again.

    Raises:
        InvalidSpec: there is no such user or project; the token would have more rights than that of
            ``by``, who is no administrator; or it is for discovery, and for one project.
        Conflict: the user has too many.
    """
    domain, name = spec.domain or by.owner.domain, spec.user or by.owner.user
    project = spec.project
    expires_at = None if spec.expires is None else work.now + spec.expires
    if not by.is_admin:
        mine = work.live.accounts.tokens.get(by.token)
        project = project or (mine.project if mine else None)
        limit = mine.expires_at if mine else None
        expires_at = limit if expires_at is None else expires_at
        _must_be_worth_less(by, spec, project, expires_at, limit)
    if spec.role is Role.DISCOVERY and project is not None:
        expected = "expected none: a token for discovery reads the routes of the whole cluster"
        raise InvalidSpec([Problem("project", repr(project), expected)])
    user = _known_user(work.live.accounts, domain, name, project)
    tokens = work.live.accounts.tokens
    if sum((token.domain, token.user) == (domain, name) for token in tokens) >= MAX_OF_ONE:
        raise Conflict(f"user {name} has {MAX_OF_ONE} tokens already: revoke some first")
    secret = secret or new_secret()
    token = Token(
        id=work.ids.token(),
        hash=token_hash(secret),
        name=spec.name,
        domain=user.domain,
        user=user.name,
        project=project,
        role=spec.role,
        created_at=work.now,
        expires_at=expires_at,
    )
    tokens.add(token)
    work.unit.also_rows(_ADD_TOKEN, attrgetter(*_TOKEN)(token))
    note_change(work, SettingKind.TOKEN, token.id, None, _token_said(token), by=by)
    return token, secret


def _must_be_worth_less(
    by: Principal,
    spec: TokenSpec,
    project: str | None,
    expires_at: float | None,
    limit: float | None,
) -> None:
    """
    Raises:
        InvalidSpec: the token would have more rights, or a later end, than the asker's own.
    """
    problems = []
    for field, asked, own in (
        ("domain", spec.domain, by.owner.domain),
        ("user", spec.user, by.owner.user),
    ):
        if asked not in (None, own):
            expected = f"expected {own!r}: only an admin's token makes tokens for others"
            problems.append(Problem(field, repr(asked), expected))
    if not by.role.includes(spec.role):
        problems.append(Problem("role", spec.role, f"expected at most your own, {by.role}"))
    if project is not None and project not in by.projects:
        expected = f"expected a project that your token is good for: {', '.join(by.projects)}"
        problems.append(Problem("project", repr(project), expected))
    if limit is not None and (expires_at is None or expires_at > limit):
        problems.append(Problem("expires", "", "expected to end no later than your own token"))
    if problems:
        raise InvalidSpec(problems)


def _known_user(accounts: Accounts, domain: str, name: str, project: str | None) -> User:
    user = accounts.users.get((domain, name))
    if user is None:
        expected = f"there is no such user in domain {domain}: `muster users add` makes one"
        raise InvalidSpec([Problem("user", repr(name), expected)])
    if project is not None and project not in user.projects:
        expected = f"expected a project of {name}: {', '.join(user.projects)}"
        raise InvalidSpec([Problem("project", repr(project), expected)])
    return user


def revoke_token(work: Work, by: Principal, ref: str) -> Token:
    """Revoke a token.

    Args:
        ref: the token's id, its name, or the beginning of its id.

    Raises:
        NotFound: ``by`` may see no such token.
        Ambiguous: there are several.
        Conflict: it is the last administrator's token.
    """
    token = _found(visible_tokens(work.live.accounts, by), ref, lambda each: each.name)
    must_leave_an_admin(work, [token])
    revoke(work, token)
    return token


def revoke(work: Work, token: Token) -> None:
    work.live.accounts.tokens.remove(token)
    work.unit.also_rows(_DROP_TOKEN, (token.id,))
    note_change(work, SettingKind.TOKEN, token.id, _token_said(token), None)


def must_leave_an_admin(work: Work, going: Collection[Token]) -> None:
    """
    Raises:
        Conflict: without these tokens nobody could administer the cluster.
    """
    admins = {
        token
        for token in work.live.accounts.tokens
        if token.role is Role.ADMIN and not token.has_expired(work.now)
    }
    if admins and admins <= set(going):
        raise Conflict(
            "this would take the last admin token that is good: make another one first, with "
            "`muster tokens create --role admin`"
        )


def visible_tokens(accounts: Accounts, principal: Principal) -> list[Token]:
    """The tokens that a principal may see, oldest first: all for an administrator, for others their
    own tokens that have no more rights than the one they came with."""
    if principal.is_admin:
        return list(accounts.tokens)
    mine = accounts.tokens.get(principal.token)
    owner = principal.owner
    return [
        token
        for token in accounts.tokens
        if (token.domain, token.user) == (owner.domain, owner.user)
        and principal.role.includes(token.role)
        and (mine is None or mine.project in (None, token.project))
    ]


# -- tokens for agents to join ---------------------------------------------------------------------


def create_join_token(work: Work, by: Principal, spec: JoinTokenSpec) -> tuple[JoinToken, str]:
    """Make a token with which agents join; the answer has its secret, which cannot be had again. A
    former token for the same name is revoked.

    Raises:
        InvalidSpec: there is no such group; several uses for one name.
        Conflict: there are too many.
    """
    if spec.group is not None and spec.group not in work.live.groups:
        known = ", ".join(sorted(work.live.groups))
        expected = f"expected a group that there is: {known}"
        raise InvalidSpec([Problem("group", repr(spec.group), expected)])
    if spec.agent is not None and spec.uses != 1:
        expected = "expected 1 for the token of one agent's name, or no name"
        raise InvalidSpec([Problem("uses", str(spec.uses), expected)])
    if len(invitations(work.live.accounts)) >= MAX_JOIN_TOKENS:
        raise Conflict(f"there are {MAX_JOIN_TOKENS:,} join tokens already: revoke some first")
    for former in [each for each in work.live.accounts.join_tokens if each.agent]:
        if former.agent == spec.agent:
            _drop_join_token(work, former)
    secret = new_secret()
    expires_at = work.now + spec.expires
    by_user = by.owner.user
    token = _add_join_token(work, by_user, secret, spec.agent, spec.group, spec.uses, expires_at)
    note_change(work, SettingKind.JOIN_TOKEN, token.id, None, _join_token_said(token), by=by)
    return token, secret


def create_open_join_token(work: Work, made_by: str) -> str:
    """Make a token with which any number of agents may join, without an end; the answer is its
    secret."""
    secret = new_secret()
    token = _add_join_token(work, made_by, secret, None, None, None, None)
    note_change(work, SettingKind.JOIN_TOKEN, token.id, None, _join_token_said(token))
    return secret


def _add_join_token(
    work: Work,
    made_by: str,
    secret: str,
    agent: str | None,
    group: str | None,
    uses: int | None,
    expires_at: float | None,
) -> JoinToken:
    token = JoinToken(
        id=work.ids.token(),
        hash=token_hash(secret),
        agent=agent,
        group=group,
        uses_left=uses,
        created_at=work.now,
        expires_at=expires_at,
        made_by=made_by,
    )
    work.live.accounts.join_tokens.add(token)
    work.unit.also_rows(_ADD_JOIN_TOKEN, attrgetter(*_JOIN_TOKEN)(token))
    return token


def charge(work: Work, token: JoinToken) -> None:
    """Count one use of a join token."""
    if token.uses_left is None:
        return
    before = _join_token_said(token)
    token.uses_left -= 1
    work.unit.also_rows(_CHARGE_JOIN_TOKEN, (token.uses_left, token.id))
    note_change(work, SettingKind.JOIN_TOKEN, token.id, before, _join_token_said(token))


def invitations(accounts: Accounts) -> list[JoinToken]:
    """The join tokens that people made. Those of slices come and go with them."""
    return [each for each in accounts.join_tokens if not each.names]


def revoke_join_token(work: Work, ref: str) -> JoinToken:
    """Revoke a join token; agents that have joined with it stay.

    Args:
        ref: the token's id, the beginning of its id, or the name of the agent that it is for.

    Raises:
        NotFound: there is none.
        Ambiguous: there are several.
    """
    token = _found(invitations(work.live.accounts), ref, lambda each: each.agent)
    _drop_join_token(work, token)
    return token


def _drop_join_token(work: Work, token: JoinToken) -> None:
    work.live.accounts.join_tokens.remove(token)
    work.unit.also_rows(_DROP_JOIN_TOKEN, (token.id,))
    note_change(work, SettingKind.JOIN_TOKEN, token.id, _join_token_said(token), None)


def _token_said(token: Token) -> dict[str, Any]:
    """The properties of a token, without its hash."""
    who = f"{token.domain}/{token.user}"
    said = {"name": token.name, "user": who, "project": token.project, "role": str(token.role)}
    return {**said, "expires": _moment(token.expires_at)}


def _join_token_said(token: JoinToken) -> dict[str, Any]:
    said = {"agent": token.agent, "group": token.group, "uses_left": token.uses_left}
    return {**said, "expires": _moment(token.expires_at)}


def _moment(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


# -- of both kinds ---------------------------------------------------------------------------------


def keep_tokens(work: Work, since: float) -> None:
    """Store when tokens were used since that moment, and forget tokens that ended long ago.

    A crash before the commit loses nothing but these times.
    """
    accounts = work.live.accounts
    used = [
        (token.last_used_at, token.id)
        for token in accounts.tokens
        if token.last_used_at is not None and token.last_used_at >= since
    ]
    if used:
        work.unit.also_rows(_NOTE_USE, *used)
    ended_before = work.now - KEPT_EXPIRED_S
    for token in [t for t in accounts.tokens if t.has_expired(ended_before)]:
        revoke(work, token)
    for join in list(accounts.join_tokens):
        if join.expires_at is not None and join.expires_at <= ended_before:
            _drop_join_token(work, join)


def remember_uses(accounts: Accounts, before: Accounts) -> None:
    """Take over when tokens were used last from the accounts ``before`` the state was read
    again."""
    for token in accounts.tokens:
        if (former := before.tokens.get(token.id)) is not None:
            token.last_used_at = former.last_used_at


def _found(tokens: Iterable[K], ref: str, name_of: Callable[[K], Any]) -> K:
    """
    Raises:
        NotFound, Ambiguous: none, or several, have this id, name, or beginning of an id.
    """
    low, high = prefix_range(IdKind.TOKEN, ref)
    known = list(tokens)
    for means in (
        [each for each in known if each.id == ref],
        [each for each in known if name_of(each) == ref],
        [each for each in known if low <= each.id < high],
    ):
        if len(means) > 1:
            several = ", ".join(each.id for each in means[:5])
            raise Ambiguous(f"{ref!r} means several tokens: {several}; type more of the id")
        if means:
            return means[0]
    raise NotFound(f"there is no token {ref!r}")
