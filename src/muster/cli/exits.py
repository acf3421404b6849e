"""The exit codes of the process (also in ``muster --help``; design: Exit codes)."""

from enum import IntEnum


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1  # the work failed, or the request was refused
    USAGE = 2  # the command line is wrong
    NOT_PLACED = 2  # accepted, not placed yet, and asked not to wait
    NOT_ENDED = 2  # accepted, and left to itself by the person who waited for it
    NOT_CHECKED = 2  # it could not be found out whether the state is as it has to be
    UNREACHABLE = 3  # no controller answers
    TIMEOUT = 124  # the job ran longer than its timeout; as timeout(1) has it
    INTERRUPTED = 130  # cancelled, by Ctrl-C or otherwise; as a shell has it
