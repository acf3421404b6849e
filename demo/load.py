"""Clients that ask a service again and again, and an account of all their requests."""

import http.client
import itertools
import math
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Self

TIMEOUT_S = 10.0
PAUSE_S = 0.02
"""Between an answer and the client's next request."""
REQUESTS_A_CONNECTION = 20
"""So both are tried all the while: connections that are kept, and new ones."""


class Question(NamedTuple):
    """The body of a POST, and words that a good answer has."""

    body: bytes
    answer: bytes


class Request(NamedTuple):
    """A request that has ended, or failed with ``error``. ``at_s`` is its beginning."""

    at_s: float
    took_s: float
    error: str


@dataclass(frozen=True, slots=True)
class Account:
    """The requests of a span of time; latencies are of those that were answered well."""

    requests: int
    errors: Counter[str]
    p50_s: float
    p99_s: float

    @property
    def failed(self) -> int:
        return self.errors.total()

    @staticmethod
    def of(requests: Sequence[Request]) -> "Account":
        took_s = sorted(each.took_s for each in requests if not each.error)
        errors = Counter(each.error for each in requests if each.error)
        return Account(len(requests), errors, _part(took_s, 0.5), _part(took_s, 0.99))


class Load:
    """Threads that ask until they are told to stop; ``clients`` of them, which may change."""

    def __init__(self, port: int, path: str, questions: Sequence[Question]) -> None:
        self._port = port
        self._path = path
        self._questions = itertools.cycle(questions)
        self._stops: list[threading.Event] = []
        self._threads: list[threading.Thread] = []
        self._done: list[Request] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.be(0)
        for thread in self._threads:
            thread.join(2 * TIMEOUT_S)

    def be(self, clients: int) -> None:
        """Have so many clients ask from now on. One that stops ends its request first."""
        while len(self._stops) > clients:
            self._stops.pop().set()
        while len(self._stops) < clients:
            stop = threading.Event()
            thread = threading.Thread(target=self._ask, args=(stop,), name="load", daemon=True)
            self._stops.append(stop)
            self._threads.append(thread)
            thread.start()

    def account(self, from_s: float = -math.inf, to_s: float = math.inf) -> Account:
        """The requests that began in a span, by ``time.monotonic``, and have ended."""
        done = self._done[:]
        return Account.of([each for each in done if from_s <= each.at_s < to_s])

    def _ask(self, stop: threading.Event) -> None:
        while not stop.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)
            for _ in range(REQUESTS_A_CONNECTION):
                question, at_s = next(self._questions), time.monotonic()
                error = self._exchange(connection, question)
                self._done.append(Request(at_s, time.monotonic() - at_s, error))
                if stop.wait(PAUSE_S) or error or connection.sock is None:
                    break
            connection.close()

    def _exchange(self, connection: http.client.HTTPConnection, question: Question) -> str:
        """Ask once; the error, if there was one."""
        try:
            connection.request("POST", self._path, question.body)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__
        if answer.status != http.HTTPStatus.OK:
            return f"status {answer.status}"
        return "" if question.answer in text else "wrong answer"


def _part(ascending: Sequence[float], part: float) -> float:
    """The value below which so large a part of the values lies; 0 if there is none."""
    return ascending[min(int(part * len(ascending)), len(ascending) - 1)] if ascending else 0.0
