"""The recovery of a job from broken machines, as people write it (design: Recovery)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator

from muster.core.specs.amounts import Flag, PathText, PositiveDuration, Spec, Whole

MAX_RESTARTS = 100
_MAX_CODE = 255
_SIGNAL_BASE = 128  # a shell's code of a signal is above it


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, int) and not isinstance(value, bool) else value


ExitCode = Annotated[Whole, Field(ge=1, le=_MAX_CODE)]
ExitCodes = Annotated[tuple[ExitCode, ...], BeforeValidator(_listed), Field(max_length=_MAX_CODE)]


class RecoveryScope(StrEnum):
    """The tasks that wait while a machine is checked or healed."""

    JOB = "job"
    TASK = "task"


class RecoverySpec(Spec):
    """Recovery from machines that break: when a task fails, the machines of its attempt are
    checked and healed, and the job goes on.

    Written as ``true``, or as fields.

    Args:
        exit_codes: the exit codes that lead to a check; a signal counts as 128 and its number. Any
            but 0 where none is named.
        scope: `job`: with the first failure all other tasks are stopped, and begin again with it;
            `task`: the others go on. `job` for a gang, else `task`, when left out.
        max_restarts: restarts after a faulty machine failed a task; with the next one the job has
            FAILED.
        replace: whether other machines are taken for one that does not return.
        check_timeout: longest wait for the checks; past it the task's own retries decide.
        return_timeout: longest wait for a faulty machine to be healthy again.
        restart_timeout: longest wait until the tasks run again; time in which they only wait for
            work ahead of them in the queue does not count.
        checkpoint_dir: the directory that tasks find in MUSTER_CHECKPOINT_DIR, inside a workspace
            of the group; their `workdir` when left out.
    """

    exit_codes: ExitCodes = ()
    scope: RecoveryScope | None = None
    max_restarts: Annotated[Whole, Field(ge=0, le=MAX_RESTARTS)] = 3
    replace: Flag = True
    check_timeout: PositiveDuration = 1800.0
    return_timeout: PositiveDuration = 1800.0
    restart_timeout: PositiveDuration = 3600.0
    checkpoint_dir: PathText | None = None

    @field_validator("checkpoint_dir")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        if path is not None and (not path.startswith("/") or ".." in path.split("/")):
            raise ValueError("expected an absolute path without '..'")
        return path

    def covers(self, exit_code: int | None, signal: int | None = None) -> bool:
        """Whether an attempt that ended by itself in this way leads to a check."""
        code = _SIGNAL_BASE + signal if signal else exit_code
        if not code:
            return False
        return not self.exit_codes or code in self.exit_codes


def _recovery(value: Any) -> Any:
    """A recovery with its defaults for ``true``, and none for ``false``.

    Raises:
        ValueError: neither of them, nor fields.
    """
    if value is True:
        return RecoverySpec()
    if value is None or value is False:
        return None
    if not isinstance(value, RecoverySpec | Mapping):
        raise ValueError("expected true, false, or fields such as max_restarts: 5")
    return value


Recovery = Annotated[RecoverySpec | None, BeforeValidator(_recovery)]
