"""The handling of a wake in which one of Muster's own handlers, sweeps or inputs fails. (A
lost race is in ``races``.)

A handler that raises may have made half of its changes. So nothing of its wake is committed: the
mirror is read again, and the same inputs are taken once more while the record on which the handler
failed is left out of it for a while, with HANDLER_ERROR in its history. All other records, and the
record's other handlers, go on. If the record had just ended, it would leave the mirror before the
handler has seen it: so it is left out of all handlers, and its end waits. A record to which some
handler gave a value that cannot be stored is left out of all handlers too. The sweep of a module
that raises is left out, and rests as a whole.
"""

import logging
from collections.abc import Iterable, Sequence

from muster.core.reasons import Reason
from muster.core.reasons.of_sessions import HandlerError
from muster.store.entity import Record

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 1.0
"""Seconds for which new records wait that a handler was not run on, because it failed on one of
them."""
LEFT_OUT_S = 50.0
"""Seconds for which a handler is not run on a record on which it failed; the next sweep tries
again."""
MAX_IN_A_ROW = 16
"""How many wakes in a row may be undone for handlers that fail; then the handler rests."""


SOME_HANDLER = "some handler"
"""The name in history of the handler that gave a record a value that cannot be stored."""


class Undone(Exception):
    """A part of the wake failed: the wake is to be undone, and taken again without that part."""


class FailedOn(Exception):
    """Raised by a handler of many records to say on which record it failed; its cause is the
    error."""

    def __init__(self, record: Record) -> None:
        super().__init__(record)
        self.record = record


class Defects:
    """The handlers and other parts of modules that failed of late. It outlives the mirror.

    ``count`` is the number of failures so far, and ``last`` tells of the last one.
    """

    def __init__(self) -> None:
        self.count = 0
        self.last = ""
        self._in_a_row = 0
        self._until = 0.0  # then all of these are over
        # By handler, None for all of them, and record.
        self._left_out: dict[tuple[str | None, str], tuple[float, Reason]] = {}
        self._alone: dict[str, float] = {}  # handlers that are run on each record by itself
        self._resting: dict[str, float] = {}
        # Handlers, None for all of them, until the next commit.
        self._not_on_new: set[str | None] = set()
        self._told: dict[tuple[str, str], float] = {}  # in history, by handler and record: until

    def undo(
        self,
        handler: str,
        record: str | None,
        error: Exception,
        now: float,
        *,
        is_new: bool = False,
        has_ended: bool = False,
    ) -> Undone:
        """Remember that the handler failed, on this record or on one of several; the caller raises
        the answer. A handler that fails on no record though it is run on each by itself rests.

        Args:
            is_new: the record was made in this very wake, and gets another id in the next one.
            has_ended: the record ended in this wake, and would leave the mirror without this
                handler: all handlers leave it as it was before.
        """
        log.error("handler %s failed on %s", handler, record or "several", exc_info=error)
        self.note(f"handler {handler} failed on {record or 'several'}: {error!r}")
        until = self._begin_to_leave_out(now)
        self._in_a_row += 1
        on_none = record is None and self.is_alone(handler, now)
        if on_none or self._in_a_row > MAX_IN_A_ROW:
            log.critical(
                "handler %s fails again and again, and rests for %g s", handler, LEFT_OUT_S
            )
            self._resting[handler] = until
        elif record is None:
            self._alone[handler] = until
        elif is_new:
            self._not_on_new.add(handler)
        else:
            why = HandlerError(handler=handler, error=repr(error)[:200])
            self._left_out[None if has_ended else handler, record] = until, why
        return Undone(handler)

    def spoilt(
        self, chains: Iterable[Sequence[tuple[str, bool]]], error: Exception, now: float
    ) -> bool:
        """Remember that handlers gave records values that cannot be stored. The answer says whether
        the next wake leaves out more than this one did.

        Args:
            chains: for each of these records its name, and whether the wake made it; then the same
                for the record of which it is a part, and so on. The first record of a chain that is
                not left out of all handlers yet is left out from now on: a task may have got the
                value from a handler of its job.
        """
        spares_new = None in self._not_on_new
        until, found = self._begin_to_leave_out(now), False
        before = {record for handler, record in self._left_out if handler is None}
        why = HandlerError(handler=SOME_HANDLER, error=str(error)[:200])
        for chain in chains:
            for record, is_new in chain:
                if spares_new if is_new else record in before:
                    continue
                log.error("%s cannot be stored as handlers left it: %s", record, error)
                self.note(f"{record} cannot be stored as handlers left it: {error}")
                if is_new:
                    self._not_on_new.add(None)
                else:
                    self._left_out[None, record] = until, why
                found = True
                break
        return found

    def _begin_to_leave_out(self, now: float) -> float:
        """Forget the records whose time is over; the answer is until when others are left out from
        now on."""
        self._left_out = {who: what for who, what in self._left_out.items() if what[0] > now}
        self._until = now + LEFT_OUT_S
        return self._until

    def rest(self, part: str, error: Exception, now: float) -> Undone:
        """Have a part of a module rest for a while, because it failed as a whole; the caller raises
        the answer if the part may have made half of its changes."""
        log.error("%s failed, and rests for %g s", part, LEFT_OUT_S, exc_info=error)
        self.note(f"{part} failed: {error!r}")
        self._until = self._resting[part] = now + LEFT_OUT_S
        return Undone(part)

    def note(self, failure: str) -> None:
        """Count a failure."""
        self.count += 1
        self.last = failure

    def committed(self) -> bool:
        """Take note of a commit; whether handlers were not run on records that it made, which are
        to be looked at soon."""
        left_new = bool(self._not_on_new)
        self._in_a_row = 0
        self._not_on_new.clear()
        return left_new

    def leaves_out_new(self, handler: str) -> bool:
        """Whether the handler is not to be run on records that this wake made."""
        return handler in self._not_on_new or None in self._not_on_new

    def any(self, now: float) -> bool:
        """Whether some handler failed of late."""
        if self._until and now >= self._until:
            self._until = 0.0
            self._left_out.clear()
            self._alone.clear()
            self._resting.clear()
            self._told.clear()
        return self._until > 0.0

    def rests(self, part: str, now: float) -> bool:
        """Whether a handler, or another part of a module, is not run at all."""
        return self._resting.get(part, 0.0) > now

    def is_alone(self, handler: str, now: float) -> bool:
        """Whether the handler is to be run on each record by itself."""
        return self._alone.get(handler, 0.0) > now

    def why_left_out(self, handler: str, record: str, now: float) -> Reason | None:
        """The reason for which the handler is not run on the record, if it is not."""
        found = self._entry(handler, record, now)
        return None if found is None else found[1]

    def is_to_be_told(self, handler: str, record: str, now: float) -> bool:
        """Whether the history of a record that the handler leaves out has still to tell that; the
        caller tells it now."""
        found = self._entry(handler, record, now)
        if found is None or self._told.get((handler, record)) == found[0]:
            return False
        self._told[handler, record] = found[0]
        return True

    def leaves_some_out(self, handler: str, now: float) -> bool:
        """Whether the handler is not run on some records."""
        if not self.any(now):
            return False
        return self.leaves_out_new(handler) or any(
            until > now and its in (handler, None)
            for (its, _), (until, _) in self._left_out.items()
        )

    def until(self, handler: str, record: str, now: float, *, is_new: bool) -> float | None:
        """The moment until which the handler is not run on the record, if it is not.

        Args:
            is_new: this wake made the record.
        """
        if is_new and self.leaves_out_new(handler):
            return now + LOOK_AGAIN_S
        found = self._entry(handler, record, now)
        return None if found is None else found[0]

    def _entry(self, handler: str, record: str, now: float) -> tuple[float, Reason] | None:
        entries = (self._left_out.get((its, record)) for its in (handler, None))
        return next((entry for entry in entries if entry is not None and entry[0] > now), None)
