"""Deployments that can do nothing but fail, changed and scaled without end."""

import time
from contextlib import suppress

from tests.attacks.target import Target

from muster.core.errors import MusterError

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
