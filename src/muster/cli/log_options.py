"""Options of ``muster up``, ``controller`` and ``agent``: what they log, and in which form."""

from dataclasses import dataclass
from typing import Annotated

from muster.cli.parameters import Option
from muster.core.log_options import FORMAT_VARIABLE, LEVEL_VARIABLE, LogForm, LogLevel, LogOptions


@dataclass(frozen=True, slots=True)
class LoggingOptions:
    """The level from which up messages are logged, and their form."""

    log_level: Annotated[
        LogLevel | None,
        Option(
            "--log-level",
            envvar=LEVEL_VARIABLE,
            help="Log messages of this level and above. [default: info]",
        ),
    ] = None
    log_format: Annotated[
        LogForm | None,
        Option(
            "--log-format",
            envvar=FORMAT_VARIABLE,
            help="Log lines for people, or JSON on each line. [default: text]",
        ),
    ] = None

    def options(self) -> LogOptions:
        """The options, with defaults for those that were not given."""
        return LogOptions(self.log_level or LogLevel.INFO, self.log_format or LogForm.TEXT)
