"""Operators' settings for hard reboots: `health.yaml` in the data directory.

They are no part of a scaling group, so that whoever has an administrator's token, but no access to
the controller's files, cannot have the controller run a program.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from muster.control.engine.settings_file import load_settings_file
from muster.core.specs.amounts import Duration, Spec, Text

FILE = "health.yaml"
LONGEST_S = 50.0
"""Of an operator's command: what it takes to end it is in the performer's limit of a call too."""
_DEFAULT_S = 30.0
_MAX_WORDS = 100


class HealthSettings(Spec):
    """The controller's means to reboot machines of no pool.

    Args:
        reboot_command: the program, by its absolute path or its name on the controller's PATH, and
            its arguments; started without a shell. Empty if there is none: machines of no pool are
            never rebooted from outside.
        reboot_timeout: of the command, in seconds.
    """

    kind: Literal["health"] = "health"
    reboot_command: Annotated[tuple[Text, ...], Field(max_length=_MAX_WORDS)] = ()
    reboot_timeout: Annotated[Duration, Field(ge=1, le=LONGEST_S)] = _DEFAULT_S

    @field_validator("reboot_command")
    @classmethod
    def _begins_with_a_program(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        if command and (not command[0] or ("/" in command[0] and not command[0].startswith("/"))):
            raise ValueError("expected an absolute path, or a name on the controller's PATH")
        return command


def load_settings(folder: Path | None) -> HealthSettings:
    """The operators' settings, with defaults for the rest.

    Raises:
        InvalidSpec: the file cannot be read, or is wrong.
    """
    if folder is None:
        return HealthSettings()
    return load_settings_file(HealthSettings, folder / FILE)
