"""The log of Muster's processes: lines on standard error, which the starting process has made a
file."""

import logging
from dataclasses import dataclass

from muster.agent.supervisor.own_log import rotate_stderr
from muster.core.text import printable

MAX_OF_KIND = 60
"""Lines of one kind in a minute: further ones are counted, so that nobody who has the log written
pushes what matters out of it. A line with another bound for its kind has it as ``most_of_kind``
(``extra`` of ``logging``)."""
WINDOW_S = 60.0
MAX_KINDS = 1_000
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_to_stderr() -> None:
    """Log messages from level INFO up from now on."""
    handler = _Rotating()
    handler.setFormatter(_Printable(LOG_FORMAT))
    handler.addFilter(KindLimit())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for chatty in ("alembic.runtime.plugins", "uvicorn.error"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


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
