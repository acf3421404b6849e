"""The controller's memory for each live session: a control plane without agents.

Run each measurement in a process of its own: what an earlier one freed would be used again.
"""

import gc
import random
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import psutil

from muster.control.agent.desk import AgentDesk
from muster.control.agent.leases import LeaseBook
from muster.control.engine.effects import Surroundings
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.group.requests import GroupRequests
from muster.control.inbox import Inbox
from muster.control.modules import cluster_entities, cluster_modules
from muster.control.plane import ControlPlane
from muster.control.session.requests import SessionRequests
from muster.core.clock import SteadyClock
from muster.core.ids import IdFactory
from muster.core.owner import Owner, Principal, Role
from muster.core.specs import ScalingGroup, SessionSpec
from muster.store.database import open_engine, sqlite_url
from muster.store.store import Store

WARM_UP = 1_000
BATCH = 1_000
_TIMEOUT_S = 600.0
_SOMEBODY = Principal(Owner("default", "default", "ada"), Role.USER)


def bytes_per_session(sessions: int, *, distinct: bool) -> float:
    """Growth of the resident memory of a fresh process for each waiting session, handed in as over
    HTTP, with a spec that is read anew.

    Args:
        distinct: each has a command of its own; else they differ by their name alone.

    Raises:
        TimeoutError: it takes too long.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measure_here, sessions, distinct).result(_TIMEOUT_S)


def _measure_here(sessions: int, distinct: bool) -> float:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        clock = SteadyClock()
        engine = open_engine(sqlite_url(Path(directory) / "muster.db"))
        store = Store(engine, cluster_entities())
        inbox, leases = Inbox(), LeaseBook(clock)
        desk = AgentDesk(store, clock, leases, inbox)
        modules = cluster_modules(desk, leases, Surroundings(engine, inbox.put))
        plane = ControlPlane(store, clock, IdFactory(clock, random.Random(1)), inbox, modules)
        plane.ask(
            lambda work, parts: parts[GroupRequests].put_group(work, _GROUP), _expect_no_error
        )
        plane.step()
        _submit(plane, inbox, 0, WARM_UP, distinct)
        before = _resident_bytes()
        _submit(plane, inbox, WARM_UP, sessions, distinct)
        grown = _resident_bytes() - before
        live = len(plane.live.sessions)
        store.close()
    if live != WARM_UP + sessions:
        raise RuntimeError(f"{live} sessions are alive, not {WARM_UP + sessions}")
    return grown / sessions


_GROUP = ScalingGroup(name="default")


def _submit(plane: ControlPlane, inbox: Inbox, first: int, sessions: int, distinct: bool) -> None:
    for start in range(first, first + sessions, BATCH):
        for number in range(start, min(start + BATCH, first + sessions)):
            plane.ask(partial(_submit_one, number=number, distinct=distinct), _expect_no_error)
        while inbox:
            plane.step()


def _submit_one(work: Work, parts: Parts, *, number: int, distinct: bool) -> None:
    arguments = [str(number)] if distinct else []
    kernel = {"command": ["/bin/true", *arguments]}
    spec = SessionSpec.model_validate({"name": f"session-{number}", "kernels": [kernel]})
    parts[SessionRequests].submit(work, _SOMEBODY, spec)


def _expect_no_error(_result: object, error: Exception | None) -> None:
    if error is not None:
        raise error


def _resident_bytes() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss
