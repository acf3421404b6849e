"""Plug-ins that do as a test tells them, and ways in which plug-ins go wrong."""

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from muster.core.ids import SessionId
from muster.core.reasons import Reason
from muster.core.resources import Resources
from muster.scheduling.cluster.columns import Floats, Ints, Shares
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.policy.hooks import BatchHook
from muster.scheduling.policy.plugins import PassContext
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import SessionWorkload, WorkloadClass

Act = Callable[[], Any]


def raises() -> Any:
    raise ZeroDivisionError("division by zero")


def loops() -> Any:
    while True:
        pass


def recurses() -> Any:
    return recurses()


def hides() -> Any:
    while True:
        try:
            loops()
        except Exception:
            continue


def exits() -> Any:
    sys.exit("no licence")


ROUNDS = 3_000  # so that a test of a leash that lets go ends, and fails


def swallows() -> Any:
    for _ in range(ROUNDS):
        try:
            int("x")
        except:  # noqa: E722
            continue


def swallows_at_each_depth() -> Any:
    for _ in range(10):
        try:
            swallows()
        except BaseException:
            for _ in range(10):
                with contextlib.suppress(BaseException):
                    swallows()


def collects() -> Any:
    caught = []
    for _ in range(10):
        try:
            for _ in range(ROUNDS):
                pass
        except BaseException as error:
            caught.append(error)


def answers_at_last() -> Any:
    try:
        loops()
    except BaseException:
        return ()


def disguises() -> Any:
    try:
        loops()
    except BaseException:
        raise ValueError from None


def answering(answer: object) -> Act:
    return lambda: answer


MISDEEDS = [
    pytest.param(raises, r"raised ZeroDivisionError\('division by zero'\)", id="raises"),
    pytest.param(loops, "ran for more than 2000 lines in one call", id="loops"),
    pytest.param(hides, "ran for more than 2000 lines in one call", id="loops and catches all"),
    pytest.param(swallows, "ran for more than 2000 lines in one call", id="swallows all"),
    pytest.param(exits, r"raised SystemExit\('no licence'\)", id="exits"),
    pytest.param(recurses, "raised RecursionError|ran for more than", id="recurses"),
]


class Validator:
    """Does as told, from the ``after``-th call on."""

    def __init__(self, act: Act, after: int = 0) -> None:
        self._act = act
        self._calls_left = after

    def validate(self, workload: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        self._calls_left -= 1
        if self._calls_left >= 0:
            return ()
        answer: Sequence[Reason] = self._act()
        return answer


class Sequencer:
    dynamic = False

    def __init__(self, act: Act) -> None:
        self._act = act

    def key(self, session: SessionWorkload, context: PassContext) -> tuple[float, ...]:
        answer: tuple[float, ...] = self._act()
        return answer


class Selector:
    """Concentrated, but for what it is told to do; a stranger has no ``ranking``."""

    packs = False

    def __init__(self, score: Act | None = None, devices: Act | None = None) -> None:
        self._score, self._devices = score, devices
        self._builtin = Concentrated()

    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        answer: Floats = (
            self._score() if self._score else self._builtin.score(request, snapshot, candidates)
        )
        return answer

    def devices(self, request: Resources, snapshot: Snapshot, slot: int) -> Shares:
        answer: Shares = (
            self._devices() if self._devices else self._builtin.devices(request, snapshot, slot)
        )
        return answer


class Hook(BatchHook):
    def __init__(self, act: Act) -> None:
        self._act = act

    def on_schedule(self, workload: WorkloadClass) -> WorkloadClass:
        answer: WorkloadClass = self._act()
        return answer

    def before_start(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        answer: Mapping[str, str] = self._act()
        return answer

    def after_end(self, session: SessionId, succeeded: bool) -> None:
        self._act()
