"""Tokens over HTTP: API tokens of people and programs, and join tokens of agents."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from muster.api.answers import answer
from muster.api.bodies import read_spec
from muster.api.context import Call
from muster.api.openapi import spec_body
from muster.control.identity.tokens import (
    create_join_token,
    create_token,
    invitations,
    revoke_join_token,
    revoke_token,
    visible_tokens,
)
from muster.core.specs.account import JoinTokenSpec, TokenSpec
from muster.core.views.accounts import (
    JoinTokenPage,
    JoinTokenView,
    NewJoinTokenView,
    NewTokenView,
    TokenPage,
    TokenView,
)
from muster.core.views.projection import view_of
from muster.store.tokens import JoinToken, Token

router = APIRouter(prefix="/v1", tags=["tokens"])


@router.get("/tokens", response_model=TokenPage)
async def get_tokens(call: Call) -> Response:
    """API tokens, oldest first: all for an admin, else the caller's own. Not for viewers."""
    call.must_change()
    now = call.api.clock.now()
    tokens = visible_tokens(call.api.plane.live.accounts, call.principal)
    return answer(TokenPage(items=tuple(token_view(token, now) for token in tokens)))


@router.post(
    "/tokens", status_code=201, response_model=NewTokenView, openapi_extra=spec_body(TokenSpec)
)
async def post_token(request: Request, call: Call) -> Response:
    """Make an API token. An admin may make one for anybody, others for themselves, with no more
    rights and no later end than their own. Its secret is told here and never again."""
    call.must_change()
    spec, by = await read_spec(request, TokenSpec), call.principal
    token, secret = await call.change(lambda work, _: create_token(work, by, spec))
    view = token_view(token, call.api.clock.now())
    return answer(NewTokenView(token=view, secret=secret), 201)


@router.delete("/tokens/{ref}", response_model=TokenView)
async def delete_token(call: Call, ref: str) -> Response:
    """Revoke an API token, at once: by id, by a unique prefix of it, or by name."""
    call.must_change()
    by = call.principal
    token = await call.change(lambda work, _: revoke_token(work, by, ref))
    return answer(token_view(token, call.api.clock.now()))


@router.get("/join-tokens", response_model=JoinTokenPage)
async def get_join_tokens(call: Call) -> Response:
    """Tokens with which agents join, oldest first; for admins."""
    call.must_be_admin("see join tokens")
    now = call.api.clock.now()
    tokens = invitations(call.api.plane.live.accounts)
    return answer(JoinTokenPage(items=tuple(_join_token_view(token, now) for token in tokens)))


@router.post(
    "/join-tokens",
    status_code=201,
    response_model=NewJoinTokenView,
    openapi_extra=spec_body(JoinTokenSpec),
)
async def post_join_token(request: Request, call: Call) -> Response:
    """Make a token with which one agent of a given name, or several of any name, may join; for
    admins. Its secret is told here and never again."""
    call.must_be_admin("invite agents")
    spec, by = await read_spec(request, JoinTokenSpec), call.principal
    token, secret = await call.change(lambda work, _: create_join_token(work, by, spec))
    view = _join_token_view(token, call.api.clock.now())
    made = NewJoinTokenView(token=view, secret=secret, agent_address=call.api.agent_address)
    return answer(made, 201)


@router.delete("/join-tokens/{ref}", response_model=JoinTokenView)
async def delete_join_token(call: Call, ref: str) -> Response:
    """Revoke a join token: by id, by a unique prefix of it, or by the agent's name; for admins.
    Agents that have joined with it stay."""
    call.must_be_admin("revoke join tokens")
    token = await call.change(lambda work, _: revoke_join_token(work, ref))
    return answer(_join_token_view(token, call.api.clock.now()))


def token_view(token: Token, now: float) -> TokenView:
    return view_of(TokenView, token, expired=token.has_expired(now))


def _join_token_view(token: JoinToken, now: float) -> JoinTokenView:
    return view_of(JoinTokenView, token, good=token.is_good(now))
