"""The provider objects that calls of pools use, kept from call to call."""

import json
import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from muster.core.specs.pool import PoolSpec
from muster.providers.found import provider_class
from muster.providers.provider import Provider, Scope

log = logging.getLogger(__name__)

MAX_KEPT = 3
"""Objects that are kept for a pool: for its present settings, and for those that older slices
have."""
MAX_CLOSING = 1_000
"""Objects that may wait to be closed; further ones are dropped as they are."""
CLOSE_S = 2.0
"""Seconds for which the objects may close themselves at the end of the controller."""

Account: TypeAlias = tuple[str, str]


def account_of(spec: PoolSpec) -> Account:
    """The provider of a pool with its settings, by which its objects are told apart."""
    return spec.provider, json.dumps(spec.settings, sort_keys=True)


@dataclass(slots=True, eq=False)
class _Kept:
    """An object of an account, once somebody has used it."""

    making: threading.Lock = field(default_factory=threading.Lock)
    provider: Provider | None = None
    users: int = 0
    is_dropped: bool = False

    def to_close(self) -> Provider | None:
        return self.provider if self.is_dropped and not self.users else None


class ProviderObjects:
    """Objects by pool and account. Threads share them; the last user of an object that was dropped
    has it closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[str, OrderedDict[Account, _Kept]] = {}  # used longest ago comes first
        self._closer = _Closer()
        self._closed = False

    @contextmanager
    def using(self, spec: PoolSpec, scope: Scope) -> Iterator[Provider]:
        """The object of a pool's account for the length of the block; it is made where there is
        none.

        Raises:
            Exception: whatever making it raises; InvalidSpec if the settings are wrong.
        """
        kept = self._take(scope.pool, account_of(spec))
        try:
            with kept.making:
                if kept.provider is None:
                    kept.provider = provider_class(spec.provider)(spec, scope)
            yield kept.provider
        finally:
            with self._lock:
                kept.users -= 1
                self._closer.close(kept.to_close())

    def _take(self, pool: str, account: Account) -> _Kept:
        with self._lock:
            of_pool = self._pools.setdefault(pool, OrderedDict())
            kept = of_pool.setdefault(account, _Kept(is_dropped=self._closed))
            kept.users += 1
            of_pool.move_to_end(account)
            while len(of_pool) > MAX_KEPT:
                _, dropped = of_pool.popitem(last=False)
                self._drop(dropped)
        return kept

    def _drop(self, kept: _Kept) -> None:
        kept.is_dropped = True
        self._closer.close(kept.to_close())

    def forget(self, pool: str) -> None:
        """Close the objects of a pool."""
        with self._lock:
            for kept in self._pools.pop(pool, {}).values():
                self._drop(kept)

    def close(self) -> None:
        """Close all objects. Those in use are closed by their last user, and those that close
        slowly are waited for only a little."""
        with self._lock:
            self._closed = True
            pools, self._pools = self._pools, {}
            for of_pool in pools.values():
                for kept in of_pool.values():
                    self._drop(kept)
        self._closer.wait()


class _Closer:
    """Closes objects on a thread of its own, because that may hang. The thread lasts as long as it
    has objects to close."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[Provider] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def close(self, provider: Provider | None) -> None:
        if provider is None:
            return
        with self._lock:
            if self._queue.qsize() >= MAX_CLOSING:
                log.warning("a provider is dropped without its end: too many wait for theirs")
                return
            self._queue.put(provider)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="ends of providers", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the next one that is closed starts it
                    log.warning("providers have to wait for their end: %s", error)
                else:
                    self._thread = thread

    def wait(self) -> None:
        thread = self._thread
        if thread is not None:
            thread.join(CLOSE_S)

    def _run(self) -> None:
        while True:
            with self._lock:
                try:
                    provider = self._queue.get_nowait()
                except queue.Empty:
                    self._thread = None
                    return
            try:
                provider.close()
            except BaseException as error:  # a plug-in may raise anything
                log.warning("a provider did not close: %s", type(error).__name__)
