"""The result of a try, as history tells it (design: The engine judges)."""

from enum import StrEnum


class SchedulingResult(StrEnum):
    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"  # failed, which has its consequence at once: there are no tries
    NEED_RETRY = "NEED_RETRY"  # failed; will be tried again
    EXPIRED = "EXPIRED"  # given up because it took too long
    GIVE_UP = "GIVE_UP"  # given up because it failed too often
    STALE = "STALE"  # nothing was heard for too long to tell
    SKIPPED = "SKIPPED"  # not attempted
