"""The connection with the agent: lines in, events out, within bounded memory.

One connection at a time is the agent's: the last that attached. Events that it does not read stay
in the journal, and are read from there once it reads again.
"""

import socket
import struct
import sys
from collections.abc import Callable, Mapping
from os import getuid

from muster.agent.supervisor import clock
from muster.agent.supervisor.journal import EventBatch, Journal
from muster.agent.supervisor.loop import READABLE, WRITABLE, Loop
from muster.agent.supervisor.protocol import (
    MAX_LINE_BYTES,
    Attach,
    Order,
    ProtocolError,
    encode,
    parse,
)

_RECEIVE_BYTES = 256 << 10
_OUTGOING_HIGH_BYTES = 1 << 20
_MAX_CONNECTIONS = 16


class PeerConnection:
    """One peer of the socket. `hear` is called for each of its lines."""

    def __init__(self, link: "AgentSocket", peer: socket.socket) -> None:
        self._link = link
        self._socket = peer
        self._incoming = bytearray()
        self.outgoing = bytearray()
        self.open = True
        link.loop.watch(peer.fileno(), self._on_ready)

    def write(self, data: bytes) -> None:
        """Send as much as the peer takes, and keep the rest for later."""
        if not self.open:
            return
        if not self.outgoing:
            data = data[self._send(data) :]
            if not data or not self.open:
                return
            self._link.loop.wait_for(self._socket.fileno(), READABLE | WRITABLE)
        self.outgoing += data

    def close(self) -> None:
        if self.open:
            self.open = False
            self.outgoing.clear()
            self._link.loop.close(self._socket.detach())
            self._link.on_closed(self)

    def _on_ready(self) -> None:
        if self.outgoing:
            del self.outgoing[: self._send(self.outgoing)]
            if self.open and not self.outgoing:
                self._link.loop.wait_for(self._socket.fileno(), READABLE)
        if self.open:
            self._receive()

    def _send(self, data: bytes | bytearray) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self.close()
            return 0

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._incoming += data
        begin = 0
        while self.open and (end := self._incoming.find(b"\n", begin)) >= 0:
            self._link.hear(self, self._incoming[begin:end])
            begin = end + 1
        del self._incoming[:begin]
        if len(self._incoming) > MAX_LINE_BYTES:
            self.write(_error(f"a line is longer than {MAX_LINE_BYTES} bytes"))
            self.close()


class AgentSocket:
    """The listening socket, its connections, and the events that the attached one was sent."""

    def __init__(
        self,
        loop: Loop,
        listener: socket.socket,
        journal: Journal,
        env_defaults: Mapping[str, str],
        obey: Callable[[Order], None],
        state: Callable[[], dict[str, object]],
    ) -> None:
        self.loop = loop
        self._listener = listener
        self._journal = journal
        self._env_defaults = env_defaults
        self._obey = obey
        self._state = state
        self._connections: set[PeerConnection] = set()
        self._agent: PeerConnection | None = None
        self._greeted = False  # the agent was told the state
        self._told_seq = 0  # the last event that the agent was sent, or that waits in _batch
        self._batch: list[str] = []
        self._sent_s = 0.0
        self._batching_s = 0.0
        self._behind = False  # events after _told_seq are read from the journal, from _offset
        self._offset = 0
        self._compactions = 0
        self.alone_since_s: float | None = clock.now_s()  # None: an agent is attached
        loop.watch(listener.fileno(), self._accept)

    def hear(self, connection: PeerConnection, line: bytes | bytearray) -> None:
        """Obey one line, or answer with the reason why not."""
        try:
            op = parse(line, self._env_defaults)
            if isinstance(op, Attach):
                self._attach(connection)
            elif connection is not self._agent:
                raise ProtocolError("attach first")
            else:
                self._obey(op)
        except ProtocolError as error:
            connection.write(_error(str(error)))
        except Exception:  # a defect here must not cost the kernels that run
            import traceback  # a megabyte, for what should never happen

            trace = traceback.format_exc()
            sys.stderr.write(trace)
            connection.write(_error(f"the supervisor has a defect: {trace}"))

    def deliver(self, batches: list[EventBatch], now_s: float, batching_s: float) -> None:
        """Send just journalled events to the agent, together with later ones of the next
        ``batching_s``."""
        agent = self._agent
        if agent is None:
            return
        if not self._greeted:
            # Only here, after the journal was written: sent events must not be forgotten.
            self._greeted = True
            agent.write((encode({"state": self._state()}) + "\n").encode())
            self._fall_behind(self._journal.acked_seq)
        if batches and not self._behind:
            self._told_seq = batches[-1].last_seq
            self._batch += [batch.text for batch in batches]
        self._batching_s = batching_s
        if self._batch and now_s >= self._sent_s + batching_s:
            self._send_batch(agent)
            self._sent_s = now_s
        if self._behind and not agent.outgoing:
            self._catch_up(agent)
        elif len(agent.outgoing) > _OUTGOING_HIGH_BYTES and not self._behind:
            self._fall_behind(self._told_seq)

    def idle_s(self, now_s: float) -> float:
        """The time in seconds until `deliver` has something to do, unless something happens
        first."""
        if self._agent is None:
            return float("inf")
        if self._behind and not self._agent.outgoing:
            return 0.0
        return max(0.0, self._sent_s + self._batching_s - now_s) if self._batch else float("inf")

    def on_closed(self, connection: PeerConnection) -> None:
        self._connections.discard(connection)
        if connection is self._agent:
            self._agent = None
            self.alone_since_s = clock.now_s()
            self._batch.clear()

    def close(self) -> None:
        for connection in list(self._connections):
            connection.close()
        self.loop.close(self._listener.detach())

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except OSError:  # the peer is gone again, or no descriptor is left: it may try later
            return
        credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _pid, uid, _gid = struct.unpack("3i", credentials)
        if uid not in (0, getuid()) or len(self._connections) >= _MAX_CONNECTIONS:
            peer.close()
            return
        peer.setblocking(False)
        self._connections.add(PeerConnection(self, peer))

    def _attach(self, connection: PeerConnection) -> None:
        if self._agent is not None and self._agent is not connection:
            self._agent.close()
        self._agent = connection
        self.alone_since_s = None
        self._batch.clear()
        self._greeted = False

    def _fall_behind(self, told_seq: int) -> None:
        self._behind = True
        self._told_seq = told_seq
        self._offset, self._compactions = 0, self._journal.compactions

    def _catch_up(self, agent: PeerConnection) -> None:
        if self._compactions != self._journal.compactions:
            self._fall_behind(self._told_seq)
        batches, offset = self._journal.read(self._offset, self._told_seq)
        if offset == self._offset and not batches:
            self._behind = False
            return
        self._offset = offset
        if batches:
            self._told_seq = batches[-1].last_seq
            self._batch = [batch.text for batch in batches]
            self._send_batch(agent)

    def _send_batch(self, agent: PeerConnection) -> None:
        agent.write(f'{{"events":[{",".join(self._batch)}]}}\n'.encode())
        self._batch.clear()


def _error(sentence: str) -> bytes:
    return (encode({"error": sentence}) + "\n").encode()
