"""What Muster's processes say of themselves: lines on standard error, which the process that starts
them has made a file."""

import logging

from muster.agent.supervisor.own_log import rotate_stderr
from muster.core.text import printable

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_to_stderr() -> None:
    """Log from now on, from INFO on."""
    handler = _Rotating()
    handler.setFormatter(_Printable(LOG_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for chatty in ("alembic.runtime.plugins", "uvicorn.error"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


class _Rotating(logging.StreamHandler):  # type: ignore[type-arg] # the default is what is meant
    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        rotate_stderr()


class _Printable(logging.Formatter):
    """Parts of a line may be what users, agents or other programs wrote: it stays one line, and has
    nothing in it that a terminal takes as a command. Tracebacks keep their lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).replace("\n", " ")

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))
