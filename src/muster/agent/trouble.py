"""Troubles that keep an agent from its work, for the operator of its machine."""

import logging
from contextlib import suppress
from pathlib import Path

from muster.files import write_whole

TROUBLE_FILE = "trouble"

log = logging.getLogger(__name__)


class Trouble:
    """One sentence, in the agent's log and, while it holds, in a file for ``muster doctor``."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / TROUBLE_FILE
        self._told = ""

    def tell(self, sentence: str) -> None:
        """Log a trouble once, however often this is called."""
        if sentence != self._told:
            self._told = sentence
            log.error("%s", sentence)
            with suppress(OSError):  # the log has it
                write_whole(self._path, sentence, is_synced=False)

    def clear(self) -> None:
        self._told = ""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def read_trouble(directory: Path) -> str:
    """The trouble of the agent on a directory; empty if none is known."""
    try:
        return (directory / TROUBLE_FILE).read_text()
    except OSError:
        return ""
