"""The hollow twin of the agents' gateway (``wire.server``), between the streams of agents and
control."""

from collections.abc import Callable
from dataclasses import dataclass, field

from muster.core.ids import AgentId
from muster.wire.calls import (
    Dismissed,
)
from muster.wire.messages import (
    AgentEvents,
    AgentMessage,
    ControllerMessage,
    Disk,
    HealthSeen,
    Heartbeat,
    Hello,
    Leases,
    Occupied,
    Overtaken,
    ProbesSeen,
    Renew,
    Reports,
)
from proving.hollow.network import Stream, Way
from proving.hollow.timeline import Timeline
from proving.hollow.witness import Witness

DISMISSED, UNKNOWN = "dismissed", "unknown"
"""The reasons of closing a stream for which its agent gives up its identity."""


@dataclass(eq=False, slots=True)
class _Connection:
    stream: Stream
    agent: AgentId
    hello: Hello | None = None
    is_welcome: bool = False


@dataclass(eq=False)
class HollowGateway:
    """Control's ``AgentLink``; it ends with the controller.

    Args:
        authenticate: the agent of a credential; raises Dismissed for a former one.
        witness: hears of all messages that pass.
    """

    _timeline: Timeline
    events: AgentEvents
    leases: Leases
    authenticate: Callable[[str], AgentId | None]
    witness: Witness
    _streams: dict[AgentId, _Connection] = field(default_factory=dict)
    _opening: dict[Stream, None] = field(default_factory=dict)  # in order
    is_up: bool = True

    # -- streams ---------------------------------------------------------------------------------

    def accept(self, stream: Stream, credential: str) -> None:
        """Take a new stream of whoever shows the credential."""
        try:
            agent = self.authenticate(credential)
        except Dismissed:
            stream.close(Way.DOWN, DISMISSED)
            return
        if agent is None:
            stream.close(Way.DOWN, UNKNOWN)
            return
        connection = _Connection(stream, agent)
        self._opening[stream] = None
        stream.listen(
            Way.UP,
            lambda message: self._heard(connection, message),
            lambda why: self._left(connection),
        )

    def close_all(self) -> None:
        """The controller is killed."""
        self.is_up = False
        for connection in self._streams.values():
            connection.stream.reset()
        for stream in self._opening:
            stream.reset()
        self._streams.clear()
        self._opening.clear()

    def _heard(self, connection: _Connection, message: AgentMessage) -> None:
        if not self.is_up:
            return
        agent = connection.agent
        match message:
            case Hello() if connection.hello is None:
                self._greeted(connection, message)
            case Heartbeat():
                self.witness.heard(agent, message)
                renewal = self.leases.renew(agent, message)
                if renewal is not None:
                    self._carry(agent, renewal)
            case Hello() | Reports() | Disk() | HealthSeen() | ProbesSeen():
                self.leases.heard(agent)
                self.witness.heard(agent, message)
                self.events.agent_said(agent, message)

    def _greeted(self, connection: _Connection, hello: Hello) -> None:
        connection.hello = hello
        self._opening.pop(connection.stream, None)
        try:
            renewal = self.leases.admit(hello, beside=False)
        except (Occupied, Overtaken) as refusal:
            connection.stream.close(Way.DOWN, str(refusal))
            return
        if (older := self._streams.get(connection.agent)) is not None:
            older.stream.close(Way.DOWN, "the agent opened a newer stream")
        self._streams[connection.agent] = connection
        if renewal is not None:
            connection.stream.send(Way.DOWN, renewal)
        self.witness.heard(connection.agent, hello)
        self.events.agent_said(connection.agent, hello)

    def _left(self, connection: _Connection) -> None:
        self._opening.pop(connection.stream, None)
        if self.is_up and self._streams.get(connection.agent) is connection:
            del self._streams[connection.agent]
            self.events.agent_left(connection.agent)

    # -- AgentLink -------------------------------------------------------------------------------

    def welcome(self, hello: Hello) -> None:
        connection = self._streams.get(hello.agent)
        if connection is not None and connection.hello is hello:
            connection.is_welcome = True

    def send(self, agent: AgentId, message: ControllerMessage) -> None:
        self._carry(agent, message)

    def _carry(self, agent: AgentId, message: ControllerMessage) -> None:
        connection = self._streams.get(agent)
        if connection is not None and (connection.is_welcome or isinstance(message, Renew)):
            self.witness.sent(agent, message)
            connection.stream.send(Way.DOWN, message)

    def close(self, agent: AgentId, why: str) -> None:
        connection = self._streams.get(agent)
        if connection is not None:
            connection.stream.close(Way.DOWN, why)
            self._timeline.after(0.0, lambda: self._left(connection))
