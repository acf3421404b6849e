"""The cluster's time when a controller starts: it goes on where the one before left it."""

import asyncio
import logging
from contextlib import suppress

from muster.agent.boot import boot_id
from muster.app.database import DatabasePatience
from muster.control.agent.confirming import AWAITED_S, TimeConfirmation
from muster.control.agent.leases import LeaseBook
from muster.core.clock import LEAP_S, NOT_CONFIRMED, SteadyClock, said_leap
from muster.core.text import duration
from muster.store.store import Store

log = logging.getLogger(__name__)

LOOK_S = 0.1


async def resume(clock: SteadyClock, store: Store, patience: DatabasePatience) -> bool:
    """Have the clock go on from where the controller before this one left it, and log by how much
    the time of day differs. The answer is whether that time is confirmed."""
    start = await patience.done(lambda: store.resume_clock(boot_id(), clock.boot_s(), clock.now()))
    clock.go_on_from(start.at_s)
    if not start.confirmed:
        log.warning(
            "the time of day is %s from the last commit, which may be a downtime or a wrong "
            "clock: agents are asked, for %g s at most",
            duration(abs(clock.leap_s())),
            AWAITED_S,
        )
    else:
        _log_time(clock, store)
    return start.confirmed


async def confirm(
    clock: SteadyClock,
    store: Store,
    leases: LeaseBook,
    patience: DatabasePatience,
    stop: asyncio.Event,
) -> bool:
    """Wait until agents have confirmed the clock, for a limited time, and set it. The answer is
    whether they have."""
    confirmation = TimeConfirmation(
        clock, leases, clock.leap_s, lambda ahead_s: clock.go_on_from(clock.now() + ahead_s)
    )
    while not confirmation.is_over() and not stop.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LOOK_S)
    if confirmation.is_confirmed:
        await patience.done(lambda: store.confirm_clock(boot_id(), clock.boot_s(), clock.now()))
        _log_time(clock, store)
    else:
        log.warning("%s", NOT_CONFIRMED)
    return confirmation.is_confirmed


def _log_time(clock: SteadyClock, store: Store) -> None:
    if abs(clock.leap_s()) >= LEAP_S:
        log.warning("%s", said_leap(clock.leap_s()))
    elif store.last_commit_at:
        since_s = clock.now() - store.last_commit_at
        log.info("goes on %s after its last commit", duration(max(0.0, since_s)))
