"""Deployments that can do nothing but fail, changed and scaled without end; and deployments under
other people's names."""

import socket
import time
from contextlib import suppress

import pytest
from tests.attacks.target import Target

from muster.client import Client, Forbidden
from muster.core.errors import InvalidSpec, MusterError

FLOOD_S = 4.0


def test_deployments_that_fail_and_change_without_end_harm_nobody_else(target: Target) -> None:
    fails = {"kind": "deployment", "command": ["false"], "resources": {"cpu": "1m"}}
    with target.client("mallory") as mallory:
        names = [f"flood{number}" for number in range(3)]
        for name in names:
            mallory.deploy({**fails, "name": name, "replicas": 1000})
        turn, until_s = 0, time.monotonic() + FLOOD_S
        while time.monotonic() < until_s:
            turn += 1
            for name in names:
                with suppress(MusterError):
                    mallory.deploy({**fails, "name": name, "replicas": 1000, "env": {"T": turn}})
                    mallory.scale(name, 500 + turn % 7)
        assert turn
        for name in names:
            mallory.cancel(name)


IDLE = {"kind": "deployment", "command": ["sleep", "600"], "resources": {"cpu": "1m"}}
NOT_MALLORYS = (
    "com",
    "example.org",
    "grafana.example.org",
    "shop.example.org.evil.example",
    "127.0.0.1.nip.io",
    socket.gethostname().lower(),
)


def test_user_takes_no_host_that_an_operator_did_not_give_to_their_project(target: Target) -> None:
    with target.client() as admin, target.client("mallory") as mallory:
        mallory.deploy({**IDLE, "name": "taker"})
        try:
            for host in NOT_MALLORYS:
                for name in ("taker", "another"):
                    with pytest.raises(InvalidSpec, match="may use no host"):
                        mallory.deploy({**IDLE, "name": name, "host": host})
            with pytest.raises(Forbidden):
                mallory.set_hosts("default", ["com"])

            admin.set_hosts("default", ["shop.example.org"])
            for host in NOT_MALLORYS:
                with pytest.raises(InvalidSpec, match=r"may use shop\.example\.org, and"):
                    mallory.deploy({**IDLE, "name": "taker", "host": host})
            mallory.deploy({**IDLE, "name": "taker", "host": "a.shop.example.org"})
        finally:
            admin.set_hosts("default", [])
            mallory.cancel("taker")
        assert {each.host for each in admin.deployments()} <= {None, "a.shop.example.org"}


def test_token_of_a_balancer_that_was_stolen_shows_routes_and_nothing_else(target: Target) -> None:
    with target.client() as admin:
        made = admin.create_token("prometheus", role="discovery")
        try:
            with Client(target.url, made.secret) as thief:
                for attempt in (
                    thief.whoami,
                    thief.jobs,
                    thief.deployments,
                    thief.tokens,
                    thief.users,
                    thief.cluster,
                    lambda: thief.submit(command=["true"]),
                    lambda: thief.create_token(role="admin"),
                    lambda: thief.create_token(role="discovery"),
                    lambda: next(iter(thief.events())),
                ):
                    with pytest.raises(Forbidden, match="your token is for discovery"):
                        attempt()
        finally:
            admin.revoke_token(made.token.id)
