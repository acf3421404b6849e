"""One request and its answer: who may send it, which replica gets it, and what comes back.

A request goes to another replica as long as no byte of an answer went to the client and all of the
request is still at hand. Once a byte has gone, what fails afterwards is a connection that is cut:
the client never gets parts of two answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.core.serving.traffic import Identity
from muster.proxy.access import may_be_ours
from muster.proxy.affinity import Affinity
from muster.proxy.answers import CONTINUE, Refused
from muster.proxy.heads import (
    LAST_CHUNK,
    AnswerHead,
    RequestHead,
    answered,
    chunk,
    forwarded,
    switched,
)
from muster.proxy.replica import CannotConnect, ReplicaConnection, connect
from muster.proxy.services import LiveService, NamedService, ProxiedReplica

if TYPE_CHECKING:
    from muster.proxy.front import Front
    from muster.proxy.proxy import Proxy


class Exchange:
    """A request of the connection ``front``.

    Args:
        kept: the body, as far as it came and may have to be sent, or sent again; None once it is
            too long for that.
        is_sent: whether a replica got the whole request.
        is_tunnel: whether bytes pass both ways, as they come.
    """

    __slots__ = (
        "_affinity",
        "_answered",
        "_authorization",
        "_began_s",
        "_body_came",
        "_check_at_s",
        "_chunks",
        "_found",
        "_over",
        "_proxy",
        "_replica",
        "_status",
        "_tried",
        "_tries",
        "begun",
        "connection",
        "front",
        "head",
        "held_since_s",
        "is_sent",
        "is_tunnel",
        "kept",
        "kept_bytes",
        "released",
    )

    def __init__(self, proxy: Proxy, front: Front, head: RequestHead) -> None:
        self.front = front
        self.head = head
        self.begun = self.is_sent = self.released = False
        self.connection: ReplicaConnection | None = None
        self.kept: bytearray | None = bytearray()
        self.kept_bytes = 0
        self.held_since_s = 0.0
        self._proxy = proxy
        self._found: NamedService | None = None
        self._affinity = Affinity()
        self._authorization = head.authorization
        self._replica: ProxiedReplica | None = None
        self._tried: set[ProxiedReplica] = set()
        self._tries = 0
        self._began_s = self._check_at_s = 0.0
        self._status = 0
        self._body_came = False
        self._answered = self._chunks = self._over = self.is_tunnel = False

    @property
    def wants_no_more(self) -> bool:
        """Whether the rest of the body has to wait at the client."""
        if self.connection is None or (self.head.websocket and not self.is_tunnel):
            return self.kept_bytes > self._proxy.limits.replay_bytes
        return self.connection.writing_paused

    @property
    def live(self) -> LiveService | None:
        """The service that it is for."""
        return self._found.live if self._found is not None else None

    @property
    def is_answering(self) -> bool:
        """Whether a part of an answer went to the client, but not its end."""
        return self._answered and not self.is_tunnel and not self._over

    @property
    def awaits_body(self) -> bool:
        return not self._body_came

    # -- of the client ---------------------------------------------------------------------------

    def body(self, data: bytes) -> None:
        if self._over:
            return
        if self.is_tunnel and self.connection is not None:
            self.connection.write(data)
            return
        if self.kept is not None:
            self.kept += data
            self.kept_bytes += len(data)
            self._proxy.hold.grew(self, len(data))
        if self.connection is not None and not self.head.websocket:
            self.connection.write(chunk(data) if self.head.chunked else data)
            if self.kept is not None and self.kept_bytes > self._proxy.limits.replay_bytes:
                self.kept = None

    def body_ended(self) -> None:
        self._body_came = True
        if self.connection is not None and not self._over:
            if self.head.chunked:
                self.connection.write(LAST_CHUNK)
            self.is_sent = True

    def start(self) -> None:
        """Find out where the request goes, and whether it may."""
        self.begun = True
        self._check_at_s = self._proxy.now() + self._proxy.limits.recheck_s
        if self._proxy.services.version is None:
            self.refuse(Refused(503, "the proxy knows of no services yet", retry_s=1))
            return
        token = self.head.token
        self._found = found = self._proxy.services.find(self.head.hostname, self.head.target)
        public = found is not None and found.live.service.public
        if token is None or (public and not may_be_ours(token)):
            self._admit(None)
            return
        known = self._proxy.access.known(token, self._proxy.now())
        if known is not None:
            self._admit(known.identity)
        else:
            self._proxy.spawn(self._identify(token, public=public))

    def cancel(self) -> None:
        """Give the request up: its client is gone."""
        if not self._over:
            self._end(failed=False)

    def look(self, now_s: float) -> None:
        """End the request if its caller's right is gone, or if its replica has been silent for too
        long, and has taken nothing."""
        if now_s >= self._check_at_s:
            self._check(now_s)
        connection = self.connection
        if connection is None or self.front.stalled:
            return
        limit_s = self._proxy.limits.answer_s
        if now_s - max(connection.heard_s, self.front.heard_s) > limit_s:
            why = f"the replica has been silent for {limit_s:g} s"
            self._give_up(Refused(504, why), failed=True)

    def cut(self) -> None:
        """End the request whose replica is withdrawn and has had its time. One of whose answer
        nothing went to the client, and that may be done twice, goes to another replica: its own may
        be frozen."""
        why = "the replica was withdrawn before it had answered"
        connection = self.connection
        if not self._may_be_sent_again(reached=connection is not None):
            self._give_up(Refused(503, why), failed=True)
            return
        self.connection = None
        self.is_sent = False
        if connection is not None:
            connection.leave()
        self._try_another(why)

    def refuse(self, refused: Refused) -> None:
        """Answer in the replica's place, or cut the answer that has begun."""
        self._give_up(refused, failed=False)

    def _check(self, now_s: float) -> None:
        """Hold a request under way against the rights that its caller has by now."""
        self._check_at_s = now_s + self._proxy.limits.recheck_s
        live, token = self.live, self.head.token
        if live is None or live.service.public:
            return
        known = self._proxy.access.known(token, now_s) if token is not None else None
        if token is not None and known is None:
            self._proxy.spawn(self._check_anew(token))
        elif (refused := self._refusal(known.identity if known else None)) is not None:
            self.refuse(refused)

    async def _check_anew(self, token: str) -> None:
        try:
            identity = await self._proxy.access.ask(
                token, self.front.origin, self._proxy.now(), is_guess=False
            )
        except Refused:
            return  # nobody can tell at present: it goes on
        if (refused := self._refusal(identity)) is not None:
            self.refuse(refused)

    # -- the way to a replica --------------------------------------------------------------------

    async def _identify(self, token: str, *, public: bool) -> None:
        try:
            identity = await self._proxy.access.ask(token, self.front.origin, self._proxy.now())
        except Refused as refused:
            if not public:
                self.refuse(refused)
                return
            # It may be a token of Muster's, which no replica must get.
            identity, self._authorization = None, self.head.authorization_of_service
        if not self._over:
            self._admit(identity)

    def _admit(self, identity: Identity | None) -> None:
        if (refused := self._refusal(identity)) is not None:
            self.refuse(refused)
            return
        assert self._found is not None, "what is not known is refused"
        if self._found.whole is not None and self.head.is_read:
            self.refuse(Refused(308, "the path needs a slash at its end", at=self._found.whole))
            return
        if identity is not None or not self._found.live.service.public:
            self._authorization = self.head.authorization_of_service
        self.dispatch()

    def _refusal(self, identity: Identity | None) -> Refused | None:
        """The answer to a caller who may not send this request; None if they may."""
        service = self._found.live.service if self._found is not None else None
        if service is not None and service.public:
            return None
        if identity is None:
            return Refused(401, "expected a good token, or the name of a service that needs none")
        if service is None or not service.is_known_to(identity):
            return Refused(404, "there is no such service")
        if not service.admits(identity):
            return Refused(403, "this token is good for looking only")
        return None

    def dispatch(self) -> None:
        """Choose a replica, or wait for one."""
        assert self._found is not None
        live = self._found.live
        try:
            if self._tries >= self._proxy.limits.tries:
                raise Refused(502, "no replica could answer")
            waits = live.waiting and not self.released
            session = self._affinity.session(live, self.head)
            replica = None if waits else live.pick(session, self._tried, self._proxy.now())
            if replica is None:
                if self._tried and live.has_replicas:
                    raise Refused(502, "no replica could answer")
                self._proxy.hold.add(live, self)
                return
        except Refused as refused:
            live.refused += 1
            self.refuse(refused)
            return
        self._tries += 1
        self._replica = replica
        self._began_s = self._proxy.now()
        replica.began(self)
        while replica.idle:
            connection = replica.idle.pop()
            if connection.is_usable:
                self._send(connection)
                return
        self._proxy.spawn(self._connect(replica))

    async def _connect(self, replica: ProxiedReplica) -> None:
        try:
            connection = await connect(replica, self._proxy.limits)
        except CannotConnect as error:
            replica.aside_until_s = self._proxy.now() + self._proxy.limits.aside_s
            if self._replica is replica and not self._over:
                self._try_another(f"the replica {error}")
            return
        if self._replica is replica and not self._over:
            self._send(connection)
        else:
            connection.leave()

    def _send(self, connection: ReplicaConnection) -> None:
        assert self._found is not None
        assert self.kept is not None, "nothing was sent, so nothing was dropped"
        self.connection = connection
        data = forwarded(
            self.head,
            self._found.path,
            connection.replica.address,
            self._found.prefix,
            self.front.address_bytes,
            self._proxy.scheme,
            self._authorization,
            self._found.live.service.secret,
        )
        if self.kept and not self.head.websocket:
            body = bytes(self.kept)
            data += chunk(body) if self.head.chunked else body
            if self.kept_bytes > self._proxy.limits.replay_bytes:
                self.kept = None
        if self._body_came:
            self.is_sent = True
            if self.head.chunked:
                data += LAST_CHUNK
        if self.head.expects and not self._body_came and not self.kept_bytes:
            self.head.expects = False
            self.front.write(CONTINUE)
        connection.begin(self, data)
        self.front.flow()

    # -- of the replica --------------------------------------------------------------------------

    def answer(self, head: AnswerHead) -> None:
        self._status = head.status
        self._answered = True
        self.kept = None
        self._affinity.give(head, self._found, self._proxy.scheme)
        modern, front = self.head.modern, self.front
        # Where the answer ends with the connection, or the client still sends, nothing can follow.
        endless = not modern and not head.bodiless and head.length is None
        front.closes = (
            endless
            or not self.head.keeps
            or self.head.websocket
            or not self._body_came
            or self._proxy.stopping
        )
        data, self._chunks = answered(head, modern=modern, closes=front.closes)
        front.write(data)

    def answer_body(self, data: bytes) -> None:
        self.front.write(chunk(data) if self._chunks else data)

    def answer_end(self) -> None:
        if self._chunks:
            self.front.write(LAST_CHUNK)
        self.connection = None
        self._end(failed=self._status >= 500)
        self.front.ended(self)

    def switched(self, head: AnswerHead) -> None:
        """Begin to pass bytes both ways."""
        assert self.connection is not None
        self._status = 101
        self._answered = self.is_tunnel = True
        self._affinity.give(head, self._found, self._proxy.scheme)
        self.front.write(switched(head))
        if self.kept:
            self.connection.write(bytes(self.kept))
        self.kept = None

    def tunnel_ended(self) -> None:
        self.connection = None
        self._end(failed=False)
        self.front.closes = True
        self.front.ended(self)

    def failed(self, why: str, *, reached: bool, stale: bool) -> None:
        """Take note that the connection to the replica failed.

        Args:
            reached: whether the replica may have got a part of the request.
            stale: whether the connection had been used before: then it is no sign of a replica that
                is ill.
        """
        self.connection = None
        self.is_sent = False
        replica = self._replica
        assert replica is not None
        if not self._may_be_sent_again(reached=reached):
            self._give_up(Refused(502, f"the replica {why}"), failed=True)
        elif stale:  # a new connection to the same replica is no other try
            replica.forget_idle()
            self._proxy.spawn(self._connect(replica))
        else:
            self._try_another(f"the replica {why}")

    def _may_be_sent_again(self, *, reached: bool) -> bool:
        """Whether another replica may get the request.

        Args:
            reached: whether its replica may have got a part of it.
        """
        is_at_hand = not self._answered and self.kept is not None
        return is_at_hand and (self.head.idempotent or not reached)

    def _try_another(self, why: str) -> None:
        replica, self._replica = self._replica, None
        assert replica is not None
        assert self._found is not None
        replica.ended(self, self._proxy.now() - self._began_s, failed=True)
        self._tried.add(replica)
        live = self._found.live
        left = any(each not in self._tried for each in live.open)
        if self._tries >= self._proxy.limits.tries or (live.has_replicas and not left):
            self._give_up(Refused(502, why, retry_s=1), failed=True)
        else:
            self.dispatch()

    # -- the end ---------------------------------------------------------------------------------

    def _give_up(self, refused: Refused, *, failed: bool) -> None:
        """End the request before its answer is complete."""
        if self._over:
            return
        if not self._answered:
            self._status = refused.status
        self._end(failed=failed)
        if self._answered:
            self.front.cut()
        else:
            self.front.refuse(self, refused)

    def _end(self, *, failed: bool) -> None:
        self._over = True
        self._proxy.hold.remove(self)
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.leave()
        replica, self._replica = self._replica, None
        if replica is not None:
            replica.ended(self, self._proxy.now() - self._began_s, failed=failed)
        self.kept = None
        self._proxy.told(self.head, self.front.address, self._status)
