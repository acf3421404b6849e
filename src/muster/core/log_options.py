"""The level and the form of the logs of Muster's processes.

They are variables of the environment, so that the processes that a process starts have the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

LEVEL_VARIABLE = "MUSTER_LOG_LEVEL"
FORMAT_VARIABLE = "MUSTER_LOG_FORMAT"


class LogLevel(StrEnum):
    """The levels of messages, from all to the most urgent."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogForm(StrEnum):
    """The forms of a log: lines for people, or an object of JSON on each line."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The level from which up messages are logged, and their form."""

    level: LogLevel = LogLevel.INFO
    form: LogForm = LogForm.TEXT

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a process gets these options."""
        return {LEVEL_VARIABLE: str(self.level), FORMAT_VARIABLE: str(self.form)}


DEFAULT_LOG = LogOptions()


def log_options(environment: Mapping[str, str]) -> LogOptions:
    """The options that an environment says; the default in place of a value that is none."""
    level = environment.get(LEVEL_VARIABLE, "").lower()
    form = environment.get(FORMAT_VARIABLE, "").lower()
    return LogOptions(
        LogLevel(level) if level in [*LogLevel] else LogLevel.INFO,
        LogForm(form) if form in [*LogForm] else LogForm.TEXT,
    )
