"""Outputs that this agent has removed: when and why, for those who ask for them later."""

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from muster.core.ids import KernelId
from muster.core.reasons import Reason
from muster.core.reasons.of_files import REMOVALS
from muster.core.reasons.reason import with_numbers
from muster.wire.messages import KernelKey

log = logging.getLogger(__name__)

REMOVED_OUTPUTS = "removed-outputs"
"""The file of an agent's removed outputs, in its directory."""
MAX_REMEMBERED = 50_000
"""Removed outputs of which it is remembered why; the oldest are forgotten first."""


class RemovedOutputs:
    """The reasons of removals, kept in memory and in a file of lines of JSON, which is written anew
    when half of it is no longer needed.

    Args:
        file: it need not exist.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lines = 0
        self._reasons: dict[KernelKey, Reason] = {}
        with suppress(OSError), file.open(encoding="utf-8") as lines:
            for line in lines:
                self._lines += 1
                with suppress(ValueError, TypeError, LookupError):  # a crash cut it off
                    kernel, generation, code, numbers = json.loads(line)
                    key = KernelId(kernel), int(generation)
                    self._remember(key, with_numbers(REMOVALS[code], numbers))

    def of(self, key: KernelKey) -> Reason | None:
        """Why a kernel's output was removed; None if it was not, or long ago."""
        return self._reasons.get(key)

    def note(self, removed: Mapping[KernelKey, Reason]) -> None:
        """Remember why these outputs are removed; call it before they are."""
        for key, why in removed.items():
            self._remember(key, why)
        try:
            if self._lines + len(removed) > 2 * MAX_REMEMBERED:
                self._rewrite()
            else:
                with self._file.open("a", encoding="utf-8") as file:
                    file.writelines(_line(key, why) for key, why in removed.items())
                self._lines += len(removed)
        except OSError as error:
            log.warning("it cannot be written down which logs are removed: %s", error)

    def _remember(self, key: KernelKey, why: Reason) -> None:
        self._reasons.pop(key, None)
        self._reasons[key] = why
        if len(self._reasons) > MAX_REMEMBERED:
            del self._reasons[next(iter(self._reasons))]

    def _rewrite(self) -> None:
        fresh = self._file.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as file:
            file.writelines(_line(key, why) for key, why in self._reasons.items())
        fresh.replace(self._file)
        self._lines = len(self._reasons)


def _line(key: KernelKey, why: Reason) -> str:
    return json.dumps([*key, why.code.value, why.numbers()]) + "\n"
