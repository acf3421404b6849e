"""Providers that a pool's check meets: one that hangs, and one that raises what it likes."""

import threading
from collections.abc import Iterable

from muster.core.errors import Problem
from muster.core.specs.pool import PoolSpec
from muster.providers.provider import Machine, MachineListing, Provider, SliceOrder


class _NoMachines(Provider):
    @classmethod
    def problems(cls, spec: PoolSpec) -> Iterable[Problem]:
        if "zone" in spec.settings:
            yield Problem("settings.zone", repr(spec.settings["zone"]), "unknown key")

    def create(self, order: SliceOrder) -> tuple[Machine, ...]:
        raise NotImplementedError

    def delete(self, slice_: str) -> bool:
        raise NotImplementedError

    def list(self) -> MachineListing:
        raise NotImplementedError

    def reboot(self, machine: Machine, *, hard: bool = False) -> None:
        raise NotImplementedError


class Hangs(_NoMachines):
    """Its check does not answer before ``go_on`` is set."""

    go_on = threading.Event()

    def check(self) -> None:
        self.go_on.wait(60.0)


class Raises(_NoMachines):
    """Its check fails in a way that nobody foresaw."""

    def check(self) -> None:
        raise SystemExit("\x1b[31m" + "no " * 1000)
