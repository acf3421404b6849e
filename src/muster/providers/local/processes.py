"""The provider ``local``: machines are agent processes on the controller's own machine, for trying
pools out, for tests, and for a laptop whose cluster grows with its work."""

import errno
import fcntl
import json
import logging
import os
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from muster.autoscaling.standing import CreateOutcome
from muster.core.errors import InvalidSpec, Problem
from muster.core.resources import format_amount, format_bytes
from muster.core.specs.pool import MachineShape, PoolSpec
from muster.files import make_directory, write_whole
from muster.providers.local.machine import (
    ACCOUNTS_OPTION,
    LocalMachine,
    NotEnded,
)
from muster.providers.local.restarts import Restarts
from muster.providers.provider import (
    Machine,
    MachineListing,
    MachineState,
    Provider,
    ProviderError,
    Scope,
    SliceOrder,
)
from muster.providers.starting import agent_options

log = logging.getLogger(__name__)

_SLICE_FILE = "slice.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_GPU_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}")  # as `--gpus` takes it
_PORTS = range(20_000, 30_000)
_PORTS_EACH = 100
_LOCK_S = 5.0
_CALL_S = 45.0  # of the interface's CALL_S: what then begins no more may take a little longer
_AT_ONCE = 4
_POLL_S = 0.02
_MOST_TOLD = 20
_SHORT_OF = (errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)


@dataclass(frozen=True, slots=True)
class _Slice:
    """A slice as its file tells it; ``leaving`` once it is being deleted."""

    cluster: str
    pool: str
    names: tuple[str, ...]
    leaving: bool = False


class LocalProcesses(Provider):
    """Machines that are directories ``SLICE/NAME`` in the scope's directory, each with an agent's
    process, which outlives the controller. What there is, is read from them at every call.

    A machine has the shape that the pool declares, whatever this machine has: none may be larger
    when the pool is checked, and all together may.
    """

    name: ClassVar[str] = "local"
    is_beside: ClassVar[bool] = True

    def __init__(self, spec: PoolSpec, scope: Scope) -> None:
        super().__init__(spec, scope)
        if problems := [*self.problems(spec)]:
            raise InvalidSpec(problems)
        self._directory = scope.directory.absolute()

    @classmethod
    def problems(cls, spec: PoolSpec) -> Iterable[Problem]:
        for name in spec.settings:
            expected = "the provider local has no settings: leave it out"
            yield Problem(f"settings.{name}", repr(spec.settings[name])[:100], expected)
        model = spec.machine.gpu_model
        if spec.machine.gpus and model and not _GPU_MODEL.fullmatch(model):
            expected = "expected letters, digits, blanks and . _ - (of the provider local)"
            yield Problem("machine.gpu_model", repr(model), expected)

    def check(self) -> None:
        machine, has_cpus = self.spec.machine, os.cpu_count()
        has_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        more = []
        if has_cpus is not None and machine.cpu > has_cpus * 1000:
            more.append((f"{format_amount('cpu', machine.cpu)} cpu", f"{has_cpus} cpu"))
        if machine.memory > has_bytes:
            sizes = (format_bytes(machine.memory), format_bytes(has_bytes))
            more.append((f"{sizes[0]} memory", f"{sizes[1]} memory"))
        if more:
            asked, has = (" and ".join(words) for words in zip(*more, strict=True))
            raise ProviderError(
                CreateOutcome.BAD_REQUEST,
                f"a machine of {asked} is more than the controller's own, which has {has}: work "
                f"may be placed that does not fit; `--no-check` applies it all the same",
            )

    def create(self, order: SliceOrder) -> tuple[Machine, ...]:
        deadline_s = time.monotonic() + _CALL_S
        for name in (order.slice, *order.names):
            if not _NAME.fullmatch(name):
                told = f"{name[:80]!r} cannot be a directory's name"
                raise ProviderError(CreateOutcome.BAD_REQUEST, told)
        directory = self._directory / order.slice
        try:
            make_directory(directory, is_set=True)
            with self._locked(order.slice):
                self._make_or_remove(directory, order, deadline_s)
        except FileNotFoundError as error:  # another call has just deleted the slice
            raise ProviderError(CreateOutcome.UNKNOWN, str(error)) from error
        except OSError as error:
            raise _refused(error) from error
        return tuple(self._machine(order.slice, name) for name in order.names)

    def delete(self, slice_: str) -> bool:
        deadline_s = time.monotonic() + _CALL_S
        directory = self._directory / slice_
        if not _NAME.fullmatch(slice_) or not directory.is_dir():
            return True
        try:
            with self._locked(slice_):
                return self._remove(directory, deadline_s)
        except FileNotFoundError:  # another call was faster
            return True
        except (NotEnded, OSError, ValueError) as error:
            raise ProviderError(CreateOutcome.UNKNOWN, str(error)) from error

    def list(self) -> MachineListing:
        machines: list[Machine] = []
        complete = True
        try:
            directories = sorted(path for path in self._directory.iterdir() if path.is_dir())
        except FileNotFoundError:
            return MachineListing(())
        except OSError as error:
            raise ProviderError(CreateOutcome.UNKNOWN, str(error)) from error
        for directory in directories:
            try:
                kept = _read(directory)
            except (OSError, ValueError):
                complete = False
                continue
            if kept is not None and self._is_own(kept):
                machines += [self._machine(directory.name, name, kept) for name in kept.names]
        return MachineListing(tuple(machines), complete)

    def reboot(self, machine: Machine, *, hard: bool = False) -> None:
        deadline_s = time.monotonic() + _CALL_S
        slice_, _, name = machine.id.partition("/")
        unknown = ProviderError(CreateOutcome.UNKNOWN, f"there is no machine {machine.id[:80]!r}")
        if not _NAME.fullmatch(slice_) or not _NAME.fullmatch(name):
            raise unknown
        try:
            with self._locked(slice_):
                kept = _read(self._directory / slice_)
                if kept is None or not self._is_own(kept) or name not in kept.names:
                    raise unknown
                if kept.leaving:
                    raise ProviderError(CreateOutcome.UNKNOWN, f"{machine.id} is being deleted")
                LocalMachine(self._directory / slice_ / name).reboot(deadline_s, hard=hard)
        except FileNotFoundError:
            raise unknown from None
        except (NotEnded, OSError, ValueError) as error:
            raise ProviderError(CreateOutcome.UNKNOWN, str(error)) from error

    def log(self, machine: Machine) -> str:
        if not _NAME.fullmatch(machine.slice) or not _NAME.fullmatch(machine.name):
            return ""
        return LocalMachine(self._directory / machine.slice / machine.name).log()

    def _make_or_remove(self, directory: Path, order: SliceOrder, deadline_s: float) -> None:
        """
        Raises:
            ProviderError: the slice cannot be made. Nothing of it is left, unless it is UNKNOWN.
            OSError: it cannot be begun.
        """
        wanted = _Slice(self.scope.cluster, self.scope.pool, order.names)
        try:
            kept = _read(directory)
        except ValueError as error:
            raise ProviderError(CreateOutcome.UNKNOWN, str(error)) from error
        if kept is None:
            _write(directory, wanted)
        elif kept.leaving:
            raise ProviderError(CreateOutcome.UNKNOWN, f"{order.slice} is being deleted")
        elif kept != wanted:
            told = f"there is another slice {order.slice}, of {kept.pool} in {kept.cluster}"
            raise ProviderError(CreateOutcome.BAD_REQUEST, told)
        try:
            for name in order.names:
                self._make(LocalMachine(directory / name), order, name)
        except OSError as error:
            try:
                is_gone = self._remove(directory, deadline_s)
            except (NotEnded, OSError):
                is_gone = False
            if not is_gone:
                raise ProviderError(CreateOutcome.UNKNOWN, str(error)) from error
            raise _refused(error) from error

    def _make(self, machine: LocalMachine, order: SliceOrder, name: str) -> None:
        taken = machine.port_range()
        number = self._free_ports() if taken is None else taken
        first = _PORTS[number * _PORTS_EACH]
        options = agent_options(
            order,
            name,
            str(machine.agent_directory),
            str(machine.token_file),
            str(machine.authority_file),
        )
        options += _declared(order.shape)
        options += ["--ports", f"{first}-{first + _PORTS_EACH - 1}"]
        options += ["--cluster", self.scope.cluster]
        if order.setup.accounts is not None:
            options += [ACCOUNTS_OPTION, str(order.setup.accounts)]
        machine.make(options, number, order.setup.token, order.setup.authority)

    def _free_ports(self) -> int:
        """The number of a range of ports that no machine here has. Pools begin at different ones;
        where two machines have the same, the locks on ports keep them apart."""
        found = {LocalMachine(path).port_range() for path in self._directory.glob("*/*")}
        count = len(_PORTS) // _PORTS_EACH
        begin = zlib.crc32(f"{self.scope.cluster}/{self.scope.pool}".encode())
        numbers = [(begin + step) % count for step in range(count)]
        return next((number for number in numbers if number not in found), numbers[0])

    def _remove(self, directory: Path, deadline_s: float) -> bool:
        """Whether all of the slice is gone now; false if time was too short.

        Raises:
            NotEnded, OSError, ValueError: something of it is left.
        """
        kept = _read(directory)
        if kept is not None and not self._is_own(kept):
            return True
        if kept is not None:
            names = kept.names
            _write(directory, _Slice(kept.cluster, kept.pool, names, leaving=True))

            def remove(name: str) -> bool:
                if time.monotonic() < deadline_s:
                    LocalMachine(directory / name).remove(deadline_s)
                return not (directory / name).exists()

            if not all(_side_by_side(remove, names)):
                return False
            (directory / _SLICE_FILE).unlink()
        with suppress(OSError):  # what else is in it is not the provider's
            directory.rmdir()
        return True

    def _machine(self, slice_: str, name: str, kept: _Slice | None = None) -> Machine:
        machine = LocalMachine(self._directory / slice_ / name)
        state = machine.state()
        if kept is not None and kept.leaving:
            state = MachineState.LEAVING
        detail = machine.last_words() if state is MachineState.STOPPED else ""
        return Machine(f"{slice_}/{name}", slice_, name, state, "127.0.0.1", detail=detail)

    def _is_own(self, kept: _Slice) -> bool:
        return (kept.cluster, kept.pool) == (self.scope.cluster, self.scope.pool)

    @contextmanager
    def _locked(self, slice_: str) -> Iterator[None]:
        """Hold the slice's directory, against other threads and other controllers.

        Raises:
            ProviderError: another call holds it.
            FileNotFoundError: it is not there.
        """
        path = self._directory / slice_
        deadline_s = time.monotonic() + _LOCK_S
        while True:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > deadline_s:
                        told = f"another call is at work on {slice_}"
                        raise ProviderError(CreateOutcome.UNKNOWN, told) from None
                else:
                    # It may have been removed, and made again, before the lock was free.
                    if os.path.samestat(path.stat(), os.fstat(descriptor)):
                        yield
                        return
            finally:
                os.close(descriptor)
            time.sleep(_POLL_S)


def revive_machines(directory: Path, restarts: Restarts, now: float) -> list[str]:
    """Start the agents again that ended by themselves on machines of the pools in a directory, and
    name them. A slice that is being deleted, or that another call is at work on, is left alone, and
    one that cannot be helped keeps no other from it. A start is logged unless the agent waited as
    long for the former one.

    Args:
        restarts: remembers the starts.
        now: seconds of a clock that never goes back.

    Raises:
        OSError: the directory cannot be read.
    """
    revived: list[str] = []
    news: list[str] = []
    for file in directory.glob(f"*/*/{_SLICE_FILE}"):
        try:
            descriptor = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            kept = _read(file.parent)
            if kept is None or kept.leaving:
                continue
            for name in kept.names:
                machine = LocalMachine(file.parent / name)
                is_ended = machine.state() is MachineState.STOPPED
                if not restarts.is_due(machine.directory, now, is_ended=is_ended):
                    continue
                waited_s, is_longer = restarts.start(machine.directory, now)
                if machine.revive():
                    revived.append(name)
                    if not waited_s:
                        news.append(name)
                    elif is_longer:
                        news.append(f"{name} (after {waited_s:g} s, as it ended soon)")
        except (BlockingIOError, ValueError):
            continue
        except OSError as error:
            log.warning("agents of slice %s are not started again: %s", file.parent.name, error)
        finally:
            os.close(descriptor)
    restarts.forget_gone()
    if news:
        told = ", ".join(news[:_MOST_TOLD])
        log.warning("agents had ended and are started again: %s", told)
    return revived


def _declared(shape: MachineShape) -> list[str]:
    """The options that have an agent report this shape."""
    words = ["--cpus", f"{shape.cpu}m", "--memory", f"{shape.memory}B"]
    words += ["--disk", f"{shape.disk}B"]
    if not shape.gpus:
        return [*words, "--gpus", "none"]
    gpus = f"{shape.gpus}x{shape.gpu_model}" if shape.gpu_model else str(shape.gpus)
    return [*words, "--gpus", gpus, "--gpu-memory", f"{shape.gpu_memory}B"]


def _read(directory: Path) -> _Slice | None:
    """The slice in a directory; None if it holds none, or none yet.

    Raises:
        ValueError: its file is damaged.
        OSError: it cannot be read.
    """
    try:
        kept = json.loads((directory / _SLICE_FILE).read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        names = tuple(str(name) for name in kept["names"])
        found = _Slice(str(kept["cluster"]), str(kept["pool"]), names, bool(kept["leaving"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{directory / _SLICE_FILE} is damaged") from error
    if not all(map(_NAME.fullmatch, names)):
        raise ValueError(f"{directory / _SLICE_FILE} is damaged")
    return found


def _write(directory: Path, slice_: _Slice) -> None:
    """
    Raises:
        OSError: it cannot be written.
    """
    kept = {
        "cluster": slice_.cluster,
        "pool": slice_.pool,
        "names": slice_.names,
        "leaving": slice_.leaving,
    }
    write_whole(directory / _SLICE_FILE, json.dumps(kept))


def _side_by_side(act: Callable[[str], bool], names: Sequence[str]) -> Sequence[bool]:
    """The answers for all names; each was tried before the first failure is raised."""
    with ThreadPoolExecutor(min(_AT_ONCE, len(names)) or 1) as pool:
        tried = [pool.submit(act, name) for name in names]
    return [each.result() for each in tried]


def _refused(error: OSError) -> ProviderError:
    short = error.errno in _SHORT_OF or isinstance(error, TimeoutError)
    # There may be room again in a moment, unlike where machines are out of stock.
    outcome = CreateOutcome.THROTTLED if short else CreateOutcome.BAD_REQUEST
    return ProviderError(outcome, str(error))
