"""The log of Muster's processes: lines on standard error, which the starting process has made a
file."""

import logging

from muster.agent.supervisor.own_log import rotate_stderr
from muster.core.text import printable

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_to_stderr() -> None:
    """Log messages from level INFO up from now on."""
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
    """Keeps a message to one line, without characters that a terminal would obey, because parts of
    it may come from users, agents or other programs. Tracebacks keep their lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return super().formatMessage(record).replace("\n", " ")

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))
