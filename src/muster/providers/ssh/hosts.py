"""Machines of a list of hosts, which a pool shares with others and claims as it needs them."""

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

from muster.autoscaling.standing import CreateOutcome
from muster.core.errors import InvalidSpec, Problem
from muster.core.specs.pool import PoolSpec
from muster.providers.provider import (
    CALL_S,
    MAX_LOG,
    Machine,
    MachineListing,
    MachineState,
    Provider,
    ProviderError,
    Scope,
    SliceOrder,
)
from muster.providers.ssh.connection import Fault, HostFault
from muster.providers.ssh.fleet import HostFleet, Look, faults_in, is_busy, is_gone, outcome_of
from muster.providers.ssh.host_list import Host
from muster.providers.ssh.making import LOOK_S, SliceMaking, told_of
from muster.providers.ssh.settings import settings_of

log = logging.getLogger(__name__)

CREATE_S = DELETE_S = CALL_S - 6.0
LIST_S = 45.0
ALONE_S = 10.0
_CALLS: set[tuple[str, str, str]] = set()
"""Slices that are just made or deleted, whichever object does it: cluster, pool and slice."""
_CALL_ENDED = threading.Condition()
_STATES = {
    "claimed": MachineState.COMING,
    "coming": MachineState.COMING,
    "running": MachineState.RUNNING,
    "failed": MachineState.STOPPED,
    "leaving": MachineState.LEAVING,
}


class SshHosts(Provider):
    """Hosts of a list, reached over SSH. To make a machine is to claim a host and start an agent on
    it, to delete one is to end that agent and give the host back.

    The tag of a machine is the claim on the host itself, made so that of two pools, or clusters,
    one gets it. Its id is the host as the list has it.
    """

    name: ClassVar[str] = "ssh"

    def __init__(self, spec: PoolSpec, scope: Scope) -> None:
        super().__init__(spec, scope)
        self._fleet = HostFleet(settings_of(spec), scope)
        self._first_look = threading.Lock()
        self._looked = False
        self._told = ""  # of the hosts that did not answer the last list

    @classmethod
    def problems(cls, spec: PoolSpec) -> Iterable[Problem]:
        try:
            settings_of(spec)
        except InvalidSpec as error:
            return error.problems
        return ()

    def check(self) -> None:
        """Look at all hosts. Some may be away, or another's; one that does not let us in, or does
        not suit the pool, is an error even if others are well."""
        looks = self._fleet.look(self._fleet.settings.machines, LIST_S, "check")
        faults = {host: each for host, each in faults_in(looks).items() if not is_busy(each)}
        found = {fault.fault for fault in faults.values()}
        told = told_of(faults, self._fleet)
        if Fault.DENIED in found:
            raise ProviderError(CreateOutcome.CREDENTIALS, told)
        if found & {Fault.WRONG, Fault.FAILED}:
            raise ProviderError(CreateOutcome.BAD_REQUEST, told)
        if len(looks) - len(faults) < self.spec.slice_size:
            raise ProviderError(CreateOutcome.STOCK_OUT, told)
        if faults:
            log.warning("pool %s: %s", self.scope.pool, told)

    def create(self, order: SliceOrder) -> tuple[Machine, ...]:
        end_s = time.monotonic() + CREATE_S
        with self._alone(order.slice):
            if self._fleet.notes.hosts_of(order.slice) is None:
                self._find_former()
            made = SliceMaking(self._fleet, order, end_s).run()
        return tuple(
            self._machine(made[name], order.slice, name, MachineState.COMING, "")
            for name in order.names
        )

    def delete(self, slice_: str) -> bool:
        end_s = time.monotonic() + DELETE_S
        with self._alone(slice_):
            noted = self._fleet.hosts_of(slice_)
            hosts = self._fleet.hosts() if noted is None else noted
            ends = self._fleet.end(slice_, hosts, end_s - time.monotonic())
            if noted is None and all(map(is_gone, ends.values())):
                self._fleet.notes.add(slice_, ())  # so that no host need be asked again
        if faults := faults_in(ends):
            raise self._error(faults)
        return all(map(is_gone, ends.values()))

    def give_up(self, slice_: str) -> None:
        """A host that is seen again has its claim still, and the agent that was on it: it is busy
        until it was listed and deleted."""
        with self._alone(slice_):
            self._fleet.notes.forget(slice_)

    def list(self) -> MachineListing:
        looks = self._fleet.look(self._fleet.hosts(), LIST_S)
        faults = {host: each for host, each in faults_in(looks).items() if not is_busy(each)}
        if faults and len(faults) == len(looks):
            raise self._error(faults)
        told = told_of(faults, self._fleet) if faults else ""
        if told not in ("", self._told):
            log.warning("pool %s is listed in part: %s", self.scope.pool, told)
        self._told = told
        machines = tuple(
            self._machine(
                host,
                look.slice,
                look.name,
                _STATES.get(look.state, MachineState.COMING),
                look.detail,
            )
            for host, look in looks.items()
            if isinstance(look, Look) and look.slice
        )
        return MachineListing(machines, complete=not faults)

    def reboot(self, machine: Machine, *, hard: bool = False) -> None:
        hosts = [host for host in self._fleet.hosts() if self._fleet.id_of(host) == machine.id]
        if not hosts:
            raise ProviderError(CreateOutcome.BAD_REQUEST, f"{machine.id} is no host of the pool")
        force = ["--force"] if hard else []
        command = [*self._fleet.settings.reboot_command, *force]
        answers = self._fleet.reboot(machine.slice, hosts[0], command)
        faults = faults_in(answers)
        if any(fault.fault is not Fault.BROKE_OFF for fault in faults.values()):
            raise self._error(faults)

    def log(self, machine: Machine) -> str:
        hosts = [host for host in self._fleet.hosts() if self._fleet.id_of(host) == machine.id]
        answers = self._fleet.log(machine.slice, hosts[0]) if hosts else {}
        if faults := faults_in(answers):
            raise self._error(faults)
        words = [str(each.get("log", "")) for each in answers.values() if isinstance(each, dict)]
        return "".join(words)[-MAX_LOG:]

    def forget(self) -> None:
        self._fleet.notes.clear()

    @contextmanager
    def _alone(self, slice_: str) -> Iterator[None]:
        """A context in which no other call makes or deletes the slice.

        Raises:
            ProviderError: another call takes too long.
        """
        key = (self.scope.cluster, self.scope.pool, slice_)
        with _CALL_ENDED:
            if not _CALL_ENDED.wait_for(lambda: key not in _CALLS, ALONE_S):
                raise ProviderError(CreateOutcome.UNKNOWN, f"another call works on {slice_}")
            _CALLS.add(key)
        try:
            yield
        finally:
            with _CALL_ENDED:
                _CALLS.remove(key)
                _CALL_ENDED.notify_all()

    def _find_former(self) -> None:
        """Look at all hosts once, for claims of a controller whose notes are lost.

        Raises:
            ProviderError: no host can be asked, or another call has been looking for too long.
        """
        if not self._first_look.acquire(timeout=LOOK_S):
            raise ProviderError(CreateOutcome.THROTTLED, "other calls look at the hosts")
        try:
            if not self._looked:
                self._fleet.look(self._fleet.hosts(), LOOK_S)
                self._looked = True
        finally:
            self._first_look.release()

    def _error(self, faults: Mapping[Host, HostFault]) -> ProviderError:
        return ProviderError(outcome_of(faults), told_of(faults, self._fleet))

    def _machine(
        self, host: Host, slice_: str, name: str, state: MachineState, detail: str
    ) -> Machine:
        return Machine(self._fleet.id_of(host), slice_, name, state, host.address, None, detail)
