"""Tokens that are guessed, and tokens without end."""

import secrets

import pytest
from tests.attacks.target import Target

from muster.control.identity.tokens import MAX_OF_ONE
from muster.core.errors import Conflict

GUESSES = 1000


def test_guessed_tokens_are_refused_and_counted_and_fill_no_log(target: Target) -> None:
    with target.client() as admin:
        before = admin.cluster().unauthenticated
    size = target.cluster.home.log.stat().st_size
    with target.raw("mallory") as http:
        for _ in range(GUESSES):
            headers = {"Authorization": f"Bearer {secrets.token_urlsafe(32)}"}
            assert http.get("/v1/jobs", headers=headers).status_code == 401
    with target.client() as admin:
        assert admin.cluster().unauthenticated == before + GUESSES
    assert target.cluster.home.log.stat().st_size - size < 10_000


def test_user_makes_so_many_tokens_and_no_more(target: Target) -> None:
    with target.client("mallory") as mallory:
        made = len(mallory.tokens())
        for _ in range(MAX_OF_ONE - made):
            mallory.create_token("more")
        with pytest.raises(Conflict, match="revoke some first"):
            mallory.create_token("more")
        for token in mallory.tokens():
            if token.name == "more":
                mallory.revoke_token(token.id)
