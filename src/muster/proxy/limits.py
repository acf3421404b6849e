"""The limits of a proxy: everything that a client or a replica may make large or slow."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """
    Args:
        connections, of_one_address: of clients, in all and from one address.
        head_bytes, headers: of a request's line and headers, and of an answer's.
        pipelined: requests of one connection that wait for their answers.
        handshake_s: how long a handshake of TLS may take.
        head_s: how long a request's line and headers may take.
        idle_s: how long a connection may wait for its next request.
        stalled_s: how long a client may send no part of its request, or take no part of its answer.
        linger_s: how long the rest of a refused request is read, so that its sender reads why.
        answer_s: how long a replica may be silent while a client waits.
        connect_s: how long a connection to a replica may take.
        aside_s: how long a replica that cannot be reached gets no requests while others can.
        tries: how many replicas a request is handed to, at most.
        replay_bytes: the longest body that is kept for another try.
        idle_of_one, pooled_s: connections to one replica that wait for a request, and how long they
            do: less long than common servers keep them, which is 5 s.
        held, held_in_all, held_bytes, held_s: requests that wait for a replica, of one service and
            of all, what they may take in memory, and how long they may wait.
        released, release_s: how many held requests each new replica gets at a time, and how long
            after them the next: servers have short queues of new connections.
        identities, identity_s, identity_away_s: the remembered callers, how long the answer of the
            controller is good, and how long while the controller cannot be asked.
        recheck_s: how often a request under way is held against the rights of its caller.
        guesses, guess_s: unknown tokens that one address may try at once, and how long until it may
            try another.
        asked: questions to the controller about tokens at a time.
        look_s: how often all connections are looked at for those whose time is up.
        stop_s: how long requests under way may take when the proxy is told to end.
    """

    connections: int = 4096
    of_one_address: int = 1024
    head_bytes: int = 32 * 1024
    headers: int = 100
    pipelined: int = 100
    handshake_s: float = 10.0
    head_s: float = 10.0
    idle_s: float = 60.0
    stalled_s: float = 60.0
    linger_s: float = 2.0
    answer_s: float = 600.0
    connect_s: float = 3.0
    aside_s: float = 1.0
    tries: int = 3
    replay_bytes: int = 64 * 1024
    idle_of_one: int = 64
    pooled_s: float = 4.0
    held: int = 1000
    held_in_all: int = 2000
    held_bytes: int = 64 * 1024 * 1024
    held_s: float = 300.0
    released: int = 32
    release_s: float = 0.01
    identities: int = 10_000
    identity_s: float = 10.0
    identity_away_s: float = 600.0
    recheck_s: float = 2.0
    guesses: int = 20
    guess_s: float = 1.0
    asked: int = 64
    look_s: float = 0.5
    stop_s: float = 5.0
