"""The performers that have providers make, delete and list machines."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import TypeVar

from sqlalchemy import Connection

from muster.autoscaling.standing import CreateOutcome
from muster.control.engine.effects import Performer, Surroundings
from muster.control.engine.inputs import Input
from muster.control.pool.effects import (
    DeleteSlice,
    ListMachines,
    LogRead,
    MakeSlice,
    ReadLog,
    SliceDeleted,
    SliceMade,
)
from muster.control.pool.listed import MachinesListed
from muster.control.pool.performing.answers import (
    checked_end,
    checked_listing,
    checked_machines,
    checked_words,
    typed,
)
from muster.control.pool.performing.lines import Begin, Errand, Lines
from muster.control.pool.performing.objects import ProviderObjects
from muster.control.pool.performing.orders import (
    Making,
    Order,
    read_deleting,
    read_ended,
    read_listed,
    read_making,
    read_pools,
    read_silent,
)
from muster.control.pool.records import SliceId
from muster.core.uids import uids_said
from muster.providers.provider import (
    CALL_S,
    AgentSetup,
    Machine,
    MachineListing,
    Provider,
    ProviderError,
    Scope,
    SliceOrder,
)
from muster.store.database.patience import answered_in_time

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_READERS = 2
"""Threads that read the database at a time: its connections are few, and others need them."""
READ_S = 60.0
"""How long a thread waits to be one of them."""
LISTEN_S = 10.0
"""How long a slice has to wait, after a start, for the controller to listen to agents."""
BATCH = 500
"""Slices whose pools are looked up together."""
_UNSORTED = ""
"""The line of effects whose pools are not known yet; no pool is called so."""

ONLY_LOOPBACK = (
    "machines elsewhere cannot join a controller that listens on loopback only: start it by "
    "`muster controller --host ADDRESS --tls-self-signed`"
)
_NO_DIRECTORY = "this controller has no directory"
_NO_ID = "this cluster has no id yet"
_DEAF = "the controller does not listen to agents yet"


class ProviderCalls:
    """Calls of providers, on threads; what they need is read from the database by ids, when their
    turn has come.

    Args:
        call_s: how long a call may last before it is given up.
    """

    def __init__(self, surroundings: Surroundings, call_s: float = CALL_S) -> None:
        self._surroundings = surroundings
        self._objects = ProviderObjects()
        self._readers = threading.BoundedSemaphore(MAX_READERS)
        self._closed = threading.Event()
        self.lines = Lines(surroundings.report, self._objects.forget, call_s)

    def close(self) -> None:
        """End all threads but those that are within a call, which are not waited for."""
        if not self._closed.is_set():
            self._closed.set()
            self.lines.close()
            self._objects.close()

    def read(self, query: Callable[[Connection], T]) -> T:
        """
        Raises:
            SQLAlchemyError, TimeoutError: the database does not answer.
        """
        if not self._readers.acquire(timeout=READ_S):
            raise TimeoutError("the database does not answer")
        try:
            reading = self._surroundings.engine.connect().execution_options(readonly=True)
            with reading as connection, answered_in_time(connection):
                return query(connection)
        finally:
            self._readers.release()

    def wait_for_door(self) -> None:
        """Wait until the controller listens to agents, or it is clear that it does not."""
        for _ in range(int(LISTEN_S / 0.05)):
            if self._surroundings.door.beside or self._closed.wait(0.05):
                return

    def create(self, order: Making, slice_: str) -> tuple[Machine, ...]:
        """
        Raises:
            ProviderError: see ``Provider.create``.
        """
        with self._provider(order) as provider:
            spec = order.spec
            wish = SliceOrder(
                slice=slice_,
                names=order.names,
                shape=spec.machine,
                preemptible=spec.preemptible,
                attributes=spec.attributes_in(slice_),
                setup=self._setup(order, is_beside=provider.is_beside),
            )
            return checked_machines(provider.create(wish), order.secret)

    def delete(self, order: Order, slice_: str) -> bool:
        """
        Raises:
            ProviderError: see ``Provider.delete``.
        """
        with self._provider(order) as provider:
            return checked_end(provider.delete(slice_))

    def give_up(self, order: Order, slice_: str) -> bool:
        """
        Raises:
            ProviderError: see ``Provider.give_up``.
        """
        with self._provider(order) as provider:
            provider.give_up(slice_)
        return True

    def words(self, order: Order, machine: Machine) -> str:
        """
        Raises:
            ProviderError: see ``Provider.log``.
        """
        with self._provider(order) as provider:
            return checked_words(provider.log(machine), order.secret)

    def reboot(self, order: Order, machine: Machine) -> None:
        """Have a machine boot anew, without asking its operating system.

        Raises:
            ProviderError: see ``Provider.reboot``.
        """
        with self._provider(order) as provider:
            provider.reboot(machine, hard=True)

    def list(self, order: Order) -> MachineListing:
        """
        Raises:
            ProviderError: see ``Provider.list``.
        """
        with self._provider(order) as provider:
            return checked_listing(provider.list())

    def forget(self, order: Order) -> None:
        """Remove the directory of a pool that is being deleted and has no machine any more; what in
        it is not the provider's stays."""
        try:
            with self._provider(order) as provider:
                provider.forget()
        except ProviderError as error:
            log.warning("files of pool %s are left: %s", order.pool, error.told)
        else:
            self.remove_empty(order)

    def remove_empty(self, order: Order) -> None:
        """Remove the directory of a pool if nothing is in it."""
        with suppress(OSError, ProviderError):  # it was never made, or another's files are in it
            self._scope(order).directory.rmdir()

    @contextmanager
    def _provider(self, order: Order) -> Iterator[Provider]:
        """The provider of an order.

        Raises:
            ProviderError: in place of whatever is raised within the block.
        """
        with (
            typed(order.pool, order.secret),
            self._objects.using(order.spec, self._scope(order)) as it,
        ):
            yield it

    def _scope(self, order: Order) -> Scope:
        home = self._surroundings.settings
        if home is None:
            raise ProviderError(CreateOutcome.BAD_REQUEST, _NO_DIRECTORY)
        if not order.cluster:
            raise ProviderError(CreateOutcome.BAD_REQUEST, _NO_ID)
        return Scope(order.cluster, order.pool, home / "providers" / order.pool)

    def _setup(self, order: Making, *, is_beside: bool) -> AgentSetup:
        door = self._surroundings.door
        if not door.beside:
            raise ProviderError(CreateOutcome.BAD_REQUEST, _DEAF)
        controller = door.beside if is_beside else door.elsewhere
        if not controller:
            raise ProviderError(CreateOutcome.BAD_REQUEST, ONLY_LOOPBACK)
        accounts = door.accounts if is_beside else None
        uids = self._surroundings.uids
        told = None if uids is None else uids_said(uids)
        return AgentSetup(controller, order.group, order.secret, door.authority, accounts, told)


class SliceMaker(Performer[MakeSlice]):
    """Has slices made."""

    kind = MakeSlice

    def __init__(self, calls: ProviderCalls) -> None:
        self._calls = calls
        self._batches = count()

    def perform(self, effects: Sequence[MakeSlice]) -> None:
        for first in range(0, len(effects), BATCH):
            batch = effects[first : first + BATCH]
            key = f"batch {next(self._batches)} of slices to be made"
            sorting = Errand(key, 0, _UNSORTED, partial(self._sort, batch), _nothing)
            self._calls.lines.add(_UNSORTED, sorting)

    def close(self) -> None:
        self._calls.close()

    def _sort(self, effects: Sequence[MakeSlice], begin: Begin) -> None:
        """Put effects into the lines of their pools."""
        ids = [effect.slice for effect in effects]
        pools = self._calls.read(partial(read_pools, ids=ids))
        for effect in effects:
            if (pool := pools.get(effect.slice)) is not None:
                making = Errand(
                    f"making slice {effect.slice}",
                    effect.generation,
                    effect.slice,
                    partial(self._make, effect),
                    partial(_not_made, effect, CreateOutcome.UNKNOWN),
                )
                self._calls.lines.add(pool, making)

    def _make(self, effect: MakeSlice, begin: Begin) -> Input | None:
        self._calls.wait_for_door()
        order = self._calls.read(partial(read_making, effect=effect))
        if order is None:
            return None
        begin()
        try:
            machines = self._calls.create(order, effect.slice)
        except ProviderError as error:
            return _not_made(effect, error.outcome, error.told)
        return SliceMade(effect.slice, effect.generation, CreateOutcome.CREATED, machines)


class SliceDeleter(Performer[DeleteSlice]):
    """Has slices deleted, each with the settings with which it was made."""

    kind = DeleteSlice

    def __init__(self, calls: ProviderCalls) -> None:
        self._calls = calls

    def perform(self, effects: Sequence[DeleteSlice]) -> None:
        for effect in effects:
            deleting = Errand(
                f"deleting slice {effect.slice}",
                effect.generation,
                effect.slice,
                partial(self._delete, effect),
                partial(_not_deleted, effect),
            )
            self._calls.lines.add(effect.pool, deleting)

    def close(self) -> None:
        self._calls.close()

    def _delete(self, effect: DeleteSlice, begin: Begin) -> Input | None:
        order = self._calls.read(partial(read_deleting, effect=effect))
        if order is None:
            return None
        begin()
        act = self._calls.give_up if effect.given_up else self._calls.delete
        try:
            gone = act(order, effect.slice)
        except ProviderError as error:
            return _not_deleted(effect, error.told)
        return SliceDeleted(effect.slice, effect.generation, gone)


class MachineLogReader(Performer[ReadLog]):
    """Has the last words of machines read."""

    kind = ReadLog

    def __init__(self, calls: ProviderCalls) -> None:
        self._calls = calls

    def perform(self, effects: Sequence[ReadLog]) -> None:
        for effect in effects:
            reading = Errand(
                f"reading the log of machine {effect.machine}",
                0,
                None,
                partial(self._read, effect),
                partial(_unread, effect),
            )
            self._calls.lines.add(effect.pool, reading)

    def close(self) -> None:
        self._calls.close()

    def _read(self, effect: ReadLog, begin: Begin) -> Input | None:
        found = self._calls.read(partial(read_silent, effect=effect))
        if found is None:
            return _unread(effect, "its provider has not told its id")
        order, machine = found
        begin()
        try:
            words = self._calls.words(order, machine)
        except ProviderError as error:
            return _unread(effect, error.told)
        return LogRead(effect.slice, effect.machine, words)


class MachineLister(Performer[ListMachines]):
    """Has the machines of pools listed: those of its present settings, and of the settings of its
    older slices."""

    kind = ListMachines

    def __init__(self, calls: ProviderCalls) -> None:
        self._calls = calls

    def perform(self, effects: Sequence[ListMachines]) -> None:
        for effect in effects:
            listing = Errand(
                f"listing the machines of pool {effect.pool}",
                effect.generation,
                None,
                partial(self._list, effect),
                partial(_not_listed, effect),
            )
            self._calls.lines.add(effect.pool, listing)

    def close(self) -> None:
        self._calls.close()

    def _list(self, effect: ListMachines, begin: Begin) -> Input | None:
        listed = self._calls.read(partial(read_listed, effect=effect))
        if listed is None:
            return None
        begin()
        found: dict[tuple[str, str], Machine] = {}
        complete = listed.is_all
        failures: list[str] = []
        for order in listed.orders:
            try:
                listing = self._calls.list(order)
            except ProviderError as error:
                failures.append(error.told)
                continue
            complete = complete and listing.complete
            for machine in listing.machines:
                found.setdefault((order.spec.provider, machine.id), machine)
        if len(failures) == len(listed.orders):
            if listed.is_last:  # it may be the last call, if the provider stays mute
                self._calls.remove_empty(listed.orders[0])
            return _not_listed(effect, failures[0])
        merged = MachineListing(tuple(found.values()), complete and not failures)
        if listed.is_last and merged.complete and not merged.machines:
            self._forget(effect)
        ids = {SliceId(machine.slice) for machine in merged.machines}
        ended = self._calls.read(partial(read_ended, ids=ids))
        told = failures[0] if failures else ""
        return MachinesListed(effect.pool, effect.generation, merged, told, ended)

    def _forget(self, effect: ListMachines) -> None:
        """Have the pool forgotten that ends by this list, unless it ended while its provider was
        silent: the directory may be that of another pool of its name by now."""
        listed = self._calls.read(partial(read_listed, effect=effect))
        if listed is not None and listed.is_last:
            self._calls.forget(listed.orders[0])


def provider_performers(
    surroundings: Surroundings,
) -> tuple[SliceMaker, SliceDeleter, MachineLister, MachineLogReader]:
    """The performers of all effects on machines. They share their threads, and close together."""
    calls = ProviderCalls(surroundings)
    return SliceMaker(calls), SliceDeleter(calls), MachineLister(calls), MachineLogReader(calls)


def _nothing(told: str) -> None:
    return None


def _not_made(effect: MakeSlice, outcome: CreateOutcome, told: str) -> Input:
    return SliceMade(effect.slice, effect.generation, outcome, told=told)


def _not_deleted(effect: DeleteSlice, told: str) -> Input:
    return SliceDeleted(effect.slice, effect.generation, gone=False, told=told)


def _unread(effect: ReadLog, told: str) -> Input:
    log.info("the last words of machine %s are not known: %s", effect.machine, told)
    return LogRead(effect.slice, effect.machine, "")


def _not_listed(effect: ListMachines, told: str) -> Input:
    return MachinesListed(effect.pool, effect.generation, None, told)
