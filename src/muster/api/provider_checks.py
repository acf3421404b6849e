"""Asks providers whether they could make a pool's machines, before the pool is applied."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from muster.autoscaling.standing import CreateOutcome
from muster.control.pool.performing.answers import typed
from muster.control.pool.performing.performers import ONLY_LOOPBACK
from muster.core.errors import Busy, InvalidSpec, Problem
from muster.core.specs.pool import PoolSpec
from muster.providers.found import problems_of, provider_class
from muster.providers.provider import ProviderError, Scope

CHECK_S = 15.0
"""How long a provider may take."""
MAX_CHECKS = 8
"""Checks under way at a time, those that nobody waits for any more included."""


class ProviderChecks:
    """Checks of pools with their providers, each on a thread of its own: a provider that hangs
    keeps nobody but its caller waiting, and that for ``limit_s`` at most.

    Args:
        home: the folder of the controller, where providers keep files; None where no provider is to
            be asked, as in simulations.
        on_loopback: whether only machines beside the controller can join.
    """

    def __init__(
        self, home: Path | None, limit_s: float = CHECK_S, *, on_loopback: bool = False
    ) -> None:
        self._home = home
        self._on_loopback = on_loopback
        self._limit_s = limit_s
        self.under_way = 0

    async def check(self, spec: PoolSpec, cluster: str, *, asks: bool) -> None:
        """Refuse a pool of an unknown provider, or with settings that its provider does not know.

        Args:
            cluster: its id.
            asks: whether the provider asks besides if it could make such machines.

        Raises:
            InvalidSpec: with every problem found, or the provider's own words.
            Busy: too many checks are under way.
        """
        if self._home is None:
            problems = problems_of(spec)
        else:
            scope = Scope(cluster, spec.name, self._home / "providers" / spec.name)
            problems = await self._asked(spec, scope if asks else None)
        if problems:
            raise InvalidSpec(problems)

    async def _asked(self, spec: PoolSpec, scope: Scope | None) -> list[Problem]:
        """The objections to a pool; with its scope those of its provider, too."""
        if self.under_way >= MAX_CHECKS:
            raise Busy(f"{MAX_CHECKS} pools are being checked with their providers: try again")
        loop = asyncio.get_running_loop()
        told: asyncio.Future[list[Problem]] = loop.create_future()

        def tell(problems: list[Problem]) -> None:
            self.under_way -= 1
            if not told.done():
                told.set_result(problems)

        def ask() -> None:
            problems = _problems(spec, scope, on_loopback=self._on_loopback)
            with suppress(RuntimeError):  # the controller has stopped meanwhile
                loop.call_soon_threadsafe(tell, problems)

        threading.Thread(target=ask, name=f"check {spec.name}", daemon=True).start()
        self.under_way += 1
        try:
            async with asyncio.timeout(self._limit_s):
                return await told
        except TimeoutError:
            return [_refused(spec, f"it did not answer within {self._limit_s:g} s")]


def _problems(spec: PoolSpec, scope: Scope | None, *, on_loopback: bool) -> list[Problem]:
    """The objections of a provider, which may be a plug-in and raise anything."""
    try:
        with typed(spec.name):
            problems = problems_of(spec)
            if problems or scope is None:
                return problems
            provider_type = provider_class(spec.provider)
            if on_loopback and not provider_type.is_beside:
                return [Problem("provider", repr(spec.provider), ONLY_LOOPBACK)]
            with (
                _directory_for_check(scope.directory) as directory,
                closing(provider_type(spec, replace(scope, directory=directory))) as provider,
            ):
                provider.check()
    except ProviderError as error:
        return [_refused(spec, f"{error.outcome}: {error.told}")]
    return []


@contextmanager
def _directory_for_check(directory: Path) -> Iterator[Path]:
    """The directory of a pool; where there is none yet, one that is gone afterwards, so that a pool
    that is refused leaves nothing.

    Raises:
        ProviderError: it cannot be made.
    """
    if directory.exists():
        yield directory
        return
    try:
        made = TemporaryDirectory(prefix="muster-check-", ignore_cleanup_errors=True)
    except OSError as error:
        raise ProviderError(CreateOutcome.UNKNOWN, f"no directory can be made: {error}") from error
    with made:
        yield Path(made.name)


def _refused(spec: PoolSpec, said: str) -> Problem:
    return Problem("settings", "", f"provider {spec.provider} says: {said}")
