"""What keeps an agent from its work, for those who look after its machine."""

import logging
from contextlib import suppress
from pathlib import Path

TROUBLE_FILE = "trouble"

log = logging.getLogger(__name__)


class Trouble:
    """One sentence, in the agent's log and, while it holds, in a file for ``muster doctor``."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / TROUBLE_FILE
        self._told = ""

    def tell(self, sentence: str) -> None:
        """Logged once, however often it is told."""
        if sentence != self._told:
            self._told = sentence
            log.error("%s", sentence)
            with suppress(OSError):  # the log has it
                self._path.write_text(sentence)

    def clear(self) -> None:
        self._told = ""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def read_trouble(directory: Path) -> str:
    """What keeps the agent on a directory from its work; empty if nothing is known to."""
    try:
        return (directory / TROUBLE_FILE).read_text()
    except OSError:
        return ""
