"""An agent of an attacker's, which has joined the cluster with its open join token."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from tests.attacks.target import Target
from tests.wire.test_gateway import hello

from muster.core.ids import AgentId
from muster.wire.calls import (
    JoinRequest,
)
from muster.wire.client import ControllerChannel


@dataclass(frozen=True, slots=True)
class HostileAgent:
    id: AgentId
    name: str
    credential: str
    channel: ControllerChannel

    async def greet(self, **wrong: Any) -> None:
        """Say Hello with these fields, and listen until the controller closes the stream.

        Raises:
            Refused, Disconnected: it did.
        """
        stream = self.channel.connect(self.credential)
        try:
            await stream.send(replace(hello(self.id), **{"name": self.name, **wrong}))
            async for _ in stream:
                pass
        finally:
            stream.close()


@asynccontextmanager
async def hostile_agent(target: Target, name: str) -> AsyncIterator[HostileAgent]:
    token = target.cluster.home.join_token()
    assert token is not None
    credential = secrets.token_urlsafe(32)
    async with ControllerChannel(target.agent_address) as channel:
        reply = await channel.join(JoinRequest(token, name, "default", credential))
        yield HostileAgent(reply.agent, name, credential, channel)
