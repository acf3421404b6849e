"""The log of Muster's processes: lines on standard error, which the starting process has made a
file.

The environment says from which level up, and in which form (``core.log_options``).
"""

import json
import logging
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime

from muster.agent.supervisor.own_log import rotate_stderr
from muster.core.log_options import LogForm, log_options
from muster.core.text import printable

MAX_OF_KIND = 60
"""Lines of one kind in a minute: further ones are counted, so that nobody who has the log written
pushes what matters out of it. A line with another bound for its kind has it as ``most_of_kind``
(``extra`` of ``logging``)."""
WINDOW_S = 60.0
MAX_KINDS = 1_000
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_to_stderr() -> None:
    """Log messages from now on, as the environment says."""
    options = log_options(os.environ)
    handler = _Rotating()
    is_json = options.form is LogForm.JSON
    handler.setFormatter(_JsonLines() if is_json else _Printable(LOG_FORMAT))
    handler.addFilter(KindLimit())
    level = logging.getLevelNamesMapping()[options.level.upper()]
    logging.basicConfig(level=level, handlers=[handler])
    for chatty in ("alembic.runtime.plugins", "uvicorn.error"):
        logging.getLogger(chatty).setLevel(max(level, logging.WARNING))
    if level < logging.INFO:
        for library in _LIBRARIES:
            logging.getLogger(library).setLevel(logging.INFO)


_LIBRARIES = ("asyncio", "botocore", "boto3", "grpc", "httpcore", "httpx", "urllib3")
"""Libraries of which no messages below INFO are logged: those may tell secrets."""


def say_last(sentence: str) -> None:
    """Write the sentence with which a process ends."""
    line = sentence
    if log_options(os.environ).form is LogForm.JSON:
        record = logging.LogRecord("muster", logging.ERROR, "", 0, "%s", (sentence,), None)
        line = _JsonLines().format(record)
    sys.stderr.write(f"{line}\n")


def said_in(line: str) -> str:
    """The message in a line of a log, of whichever form; a line for people is told whole."""
    if line.startswith("{"):
        try:
            return str(json.loads(line)["message"])
        except (ValueError, LookupError, TypeError):
            return line
    return line


@dataclass(slots=True)
class _Window:
    """The lines of one kind since ``began_s``, of which ``most`` are shown."""

    began_s: float
    most: int
    lines: int = 0


class KindLimit(logging.Filter):
    """Limits the lines of each kind, which is a logger and a message without its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self._windows: dict[tuple[str, str], _Window] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.name, str(record.msg)
        window = self._windows.get(kind)
        if window is None or record.created - window.began_s >= WINDOW_S:
            left_out = 0 if window is None else window.lines - window.most
            most: int = getattr(record, "most_of_kind", MAX_OF_KIND)
            window = self._begin(kind, _Window(record.created, most))
            if left_out > 0:
                record.msg = f"{record.msg} ({left_out} more like this were left out before)"
        window.lines += 1
        return window.lines <= window.most

    def _begin(self, kind: tuple[str, str], window: _Window) -> _Window:
        if len(self._windows) >= MAX_KINDS:
            self._windows.clear()
        self._windows[kind] = window
        return window


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


class _JsonLines(logging.Formatter):
    """Makes one object of each message: ``time`` (RFC 3339, UTC), ``level``, ``logger``,
    ``message``, ``process`` and, of an error, ``exception`` with its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told: dict[str, str | int | None] = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage()),
            "process": record.process,
        }
        if record.exc_info:
            told["exception"] = printable(self.formatException(record.exc_info))
        return json.dumps(told, ensure_ascii=False)
