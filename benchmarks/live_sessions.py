"""What a live session costs the controller in memory: a control plane without agents.

Run each measurement in a process of its own: what an earlier one freed would be used again.
"""

import gc
import random
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import psutil

from muster.control.engine.work import Work
from muster.control.plane import ControlPlane
from muster.control.requests import Requests
from muster.core.clock import SteadyClock
from muster.core.ids import IdFactory
from muster.core.owner import Owner, Principal, Role
from muster.core.specs import ScalingGroup, SessionSpec
from muster.store.database import open_engine, sqlite_url
from muster.store.store import Store

WARM_UP = 1_000
BATCH = 1_000
_TIMEOUT_S = 600.0
_SPEC = {"kernels": [{"command": ["/bin/true"]}]}
_SOMEBODY = Principal(Owner("default", "default", "ada"), Role.USER)


def bytes_per_session(sessions: int, *, own_specs: bool) -> float:
    """Growth of the resident memory of a fresh process for each waiting session.

    Args:
        own_specs: each is handed in with a spec of its own, as over HTTP; else all share one.

    Raises:
        TimeoutError: it takes too long.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measure_here, sessions, own_specs).result(_TIMEOUT_S)


def _measure_here(sessions: int, own_specs: bool) -> float:
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as directory:
        clock = SteadyClock()
        store = Store(open_engine(sqlite_url(Path(directory) / "muster.db")))
        plane = ControlPlane(store, clock, IdFactory(clock, random.Random(1)), lambda: None)
        plane.ask(lambda work, requests: requests.put_group(work, _GROUP), _expect_no_error)
        plane.step()
        _submit(plane, WARM_UP, own_specs)
        before = _resident_bytes()
        _submit(plane, sessions, own_specs)
        grown = _resident_bytes() - before
        live = len(plane.live.sessions)
        store.close()
    if live != WARM_UP + sessions:
        raise RuntimeError(f"{live} sessions are alive, not {WARM_UP + sessions}")
    return grown / sessions


_GROUP = ScalingGroup(name="default")


def _submit(plane: ControlPlane, sessions: int, own_specs: bool) -> None:
    shared = SessionSpec.model_validate(_SPEC)

    def submit_one(work: Work, requests: Requests) -> None:
        spec = SessionSpec.model_validate(_SPEC) if own_specs else shared
        requests.submit_session(work, _SOMEBODY, spec)

    for start in range(0, sessions, BATCH):
        for _ in range(min(BATCH, sessions - start)):
            plane.ask(submit_one, _expect_no_error)
        plane.step()


def _expect_no_error(_result: object, error: Exception | None) -> None:
    if error is not None:
        raise error


def _resident_bytes() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss
