"""Asks providers whether they could make a pool's machines, before the pool is applied."""

import asyncio
import contextlib
import logging
import threading
from pathlib import Path

from muster.core.errors import Busy, InvalidSpec, Problem
from muster.core.specs.pool import PoolSpec
from muster.core.text import made_text, printable
from muster.providers.found import problems_of, provider_class
from muster.providers.provider import ProviderError, Scope

log = logging.getLogger(__name__)

CHECK_S = 15.0
"""How long a provider may take."""
MAX_CHECKS = 8
"""Checks under way at a time, those that nobody waits for any more included."""
_MAX_WORDS = 300


class ProviderChecks:
    """Checks of pools with their providers, each on a thread of its own: a provider that hangs
    keeps nobody but its caller waiting, and that for ``limit_s`` at most.

    Args:
        home: the folder of the controller, where providers keep files; None where there is none.
    """

    def __init__(self, home: Path | None, limit_s: float = CHECK_S) -> None:
        self._home = home
        self._limit_s = limit_s
        self.under_way = 0

    async def check(self, spec: PoolSpec, cluster: str) -> None:
        """
        Args:
            cluster: its id.

        Raises:
            InvalidSpec: the provider could not make such machines, or does not say; with its own
                words.
            Busy: too many checks are under way.
        """
        if self.under_way >= MAX_CHECKS:
            raise Busy(f"{MAX_CHECKS} pools are being checked with their providers: try again")
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Problem | None] = loop.create_future()

        def tell(problem: Problem | None) -> None:
            self.under_way -= 1
            if not told.done():
                told.set_result(problem)

        def ask() -> None:
            problem = self._problem(spec, cluster)
            with contextlib.suppress(RuntimeError):  # the controller has stopped meanwhile
                loop.call_soon_threadsafe(tell, problem)

        self.under_way += 1
        threading.Thread(target=ask, name=f"check {spec.name}", daemon=True).start()
        try:
            async with asyncio.timeout(self._limit_s):
                problem = await told
        except TimeoutError:
            problem = _refused(spec, f"it did not answer within {self._limit_s:g} s")
        if problem is not None:
            raise InvalidSpec([problem])

    def _problem(self, spec: PoolSpec, cluster: str) -> Problem | None:
        """The objection of the provider, which may be a plug-in and raise anything; None if it has
        none."""
        if self._home is None:
            return None
        try:
            scope = Scope(cluster, spec.name, self._home / "providers" / spec.name)
            provider = provider_class(spec.provider)(spec, scope)
            try:
                provider.check()
            finally:
                provider.close()
        except ProviderError as error:
            return _refused(spec, f"{error.outcome}: {error.told}")
        except InvalidSpec as error:
            return error.problems[0]
        except BaseException as error:
            log.warning("the provider of pool %s fails", spec.name, exc_info=error)
            return _refused(spec, f"it failed with {type(error).__name__}: {error}")
        return None


def refuse_wrong(spec: PoolSpec) -> None:
    """
    Raises:
        InvalidSpec: there is no such provider, or its settings are wrong.
    """
    if problems := problems_of(spec):
        raise InvalidSpec(problems)


def _refused(spec: PoolSpec, said: str) -> Problem:
    words = made_text(printable(" ".join(said.split())), _MAX_WORDS)
    return Problem("settings", "", f"provider {spec.provider} says: {words}")
