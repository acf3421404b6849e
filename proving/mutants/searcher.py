"""A process that searches with a copy of the package for a run that shows the bug in it."""

import sys
import tempfile
import threading
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from traceback import format_exc
from typing import Any

from proving.mutants.mutant import Mutant, copy_with

SEARCH = "proving.mutants.search"


@dataclass(frozen=True, slots=True)
class Finding:
    """The proof of a bug: a run, the invariant that it violated, and how."""

    run: str
    invariant: str
    told: str


class SearchFailed(Exception):
    """No seed could be run with the bug: the copy cannot even be imported, say."""


class Searcher:
    """A search that is under way. ``answers`` is ready once it is over.

    The process is forked from this one and imports the package anew, from the copy, and the proving
    ground with it; what the package itself imports, which takes twice as long, is there already.
    Beside threads, as those of a test's process are, each starts anew: a forked one may wait for
    ever for a lock that one of them held.

    Args:
        seeds: how many are run at most.
        first: the names of runs to begin with.

    Raises:
        ValueError: the bug's text is not in the package once.
    """

    def __init__(self, mutant: Mutant | None, seeds: int, first: tuple[str, ...]) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="muster-mutant-")
        copy = copy_with(mutant, Path(self._place.name))
        alone = threading.active_count() == 1
        context = get_context("fork") if alone else get_context("spawn")
        self.answers, answer = context.Pipe(duplex=False)
        self._process = context.Process(target=_search, args=(str(copy), seeds, first, answer))
        self._process.start()
        answer.close()

    def finding(self) -> Finding | None:
        """The finding that shows the bug, if there is one; waits for the end of the search.

        Raises:
            SearchFailed: no seed could be run.
        """
        try:
            told: Finding | str | None = self.answers.recv()
        except EOFError:
            raise SearchFailed("the process ended without a word") from None
        finally:
            self.end()
        if isinstance(told, str):
            raise SearchFailed(told)
        return told

    def end(self) -> None:
        """Leave nothing behind, whether the search is over or not."""
        self._process.kill()
        self._process.join()
        self.answers.close()
        self._place.cleanup()


def _search(copy: str, seeds: int, first: tuple[str, ...], answer: "Connection[Any, Any]") -> None:
    """Search, and send the finding, or a text that says why no seed could be run."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("muster", "proving")]:
        del sys.modules[name]
    sys.path.insert(0, copy)
    try:
        answer.send(import_module(SEARCH).search(seeds, first))
    except Exception:
        answer.send(format_exc()[-2000:])
