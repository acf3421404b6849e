"""The common part of all balancers: a thread each, which always works at the newest set."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from muster.control.deployment.publishing.effects import PublishServices
from muster.core.serving.traffic import TrafficService

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 3.0
"""Between two tries with a balancer that fails; a change that comes meanwhile waits as well."""

REST_S = 1.0
"""How often a sink that rests looks whether it may go on."""
_MAY_BE_OVERTAKEN = "it stays as it is: without the database, another controller may be in charge"


class SinkError(Exception):
    """A balancer could not be told; one line without secrets says why."""


class Tended(NamedTuple):
    """The wishes of a sink after its turn.

    Args:
        again_s: when it wants to look at the balancer again, even if nothing changes.
        complaint: what an operator should know, in one line; empty if all is well.
    """

    again_s: float
    complaint: str = ""


class Sink(ABC):
    """A balancer outside Muster. Its methods are called on one thread, and each wait has a
    limit."""

    name: ClassVar[str]

    @abstractmethod
    def publish(self, services: Sequence[TrafficService]) -> Tended:
        """Make the balancer be as these services want it, from whatever it is like now.

        Raises:
            SinkError: it is not reached, or refuses; it is tried again.
        """

    @abstractmethod
    def rest(self) -> None:
        """Have what was published stay, and change nothing.

        Raises:
            SinkError: the balancer is not reached; it is tried again.
        """

    @abstractmethod
    def close(self) -> None:
        """Give up what is held open; what was published stays."""


class SinkLine:
    """The thread of a sink, with room for one set: the newest.

    Args:
        in_charge: whether no other controller can have taken over, which would tell the balancer
            of a newer state: while it may have, the sink rests.
    """

    def __init__(
        self, sink: Callable[[], Sink], name: str, in_charge: Callable[[], bool] = lambda: True
    ) -> None:
        self._make = sink
        self._name = name
        self._in_charge = in_charge
        self._changed = threading.Condition()
        self._newest: PublishServices | None = None  # guarded by _changed, as the next two
        self._is_new = False
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._said = ""
        self._is_tried = False

    def put(self, effect: PublishServices) -> None:
        with self._changed:
            if self._newest is not None and effect.version < self._newest.version:
                return
            self._newest = effect
            self._is_new = True
            self._changed.notify()
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=f"traffic-{self._name}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # the machine has no thread left
                log.warning("%s has to wait: %s", self._name, error)
                return
            self._thread = thread

    @property
    def name(self) -> str:
        return self._name

    @property
    def complaint(self) -> str | None:
        """A sentence for operators; empty if all is well, None if nothing was
        tried yet."""
        return self._said if self._is_tried else None

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _run(self) -> None:
        sink = self._make()
        pause_s = FIRST_PAUSE_S
        try:
            while (effect := self._take()) is not None:
                try:
                    if self._in_charge():
                        again_s, complaint = sink.publish(effect.services)
                    else:
                        sink.rest()
                        again_s, complaint = REST_S, _MAY_BE_OVERTAKEN
                except SinkError as error:
                    self._say(str(error))
                    self._wait(pause_s, for_news=False)
                    pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                except Exception:  # a defect must not end the thread, which nobody starts again
                    log.exception("%s was not told of services", self._name)
                    self._wait(LONGEST_PAUSE_S, for_news=False)
                else:
                    self._say(complaint)
                    pause_s = FIRST_PAUSE_S
                    self._wait(again_s, for_news=True)
        finally:
            sink.close()

    def _take(self) -> PublishServices | None:
        """The newest set; None once the line is closed."""
        with self._changed:
            self._is_new = False
            return None if self._is_closed else self._newest

    def _wait(self, longest_s: float, *, for_news: bool) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or (for_news and self._is_new), longest_s
            )

    def _say(self, complaint: str) -> None:
        """Log what is wrong once, and that it is over."""
        if complaint != self._said:
            if complaint:
                log.warning("%s: %s", self._name, complaint)
            else:
                log.info("%s follows again", self._name)
            self._said = complaint
        self._is_tried = True
