"""The performer of hard reboots: asks the provider of a machine's slice, or runs an operator's
command for an agent of no pool.

Calls are made on threads, with a line for each pool and for the other agents of each group, so that
one that hangs delays no other; a call that lasts too long is given up, and a command is killed with
all that it started.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path

from muster.autoscaling.standing import CreateOutcome
from muster.control.engine.effects import Performer, Surroundings
from muster.control.health.rebooting.effects import MachineRebooted, RebootMachine
from muster.control.health.rebooting.orders import RebootOrder, read_lines, read_rebooting
from muster.control.health.rebooting.settings import FILE, HealthSettings
from muster.control.pool.performing.lines import Begin, Errand
from muster.control.pool.performing.performers import ProviderCalls
from muster.core.health.verdict import MAX_TOLD, bounded
from muster.core.ids import system_boot
from muster.providers.provider import CALL_S, ProviderError
from muster.providers.script.call import CallFailed, NotCalled, call, environment

log = logging.getLogger(__name__)

PACE_S = 1.0
"""The time between the beginnings of two reboots, of whatever machines: a wrong decision takes the
machines away one by one."""
BATCH = 500
"""Agents whose lines are looked up together."""
MAX_KEPT = 1_000
"""Outcomes that are kept, so that an effect that comes twice does nothing twice."""
_UNSORTED = ""
"""The line of effects whose lines are not known yet; no pool is called so."""
_IS_OWN = "it is the controller's own machine, which Muster does not reboot"
_IS_UNKNOWN = "its agent was never heard, so it could be the controller's own machine"
_NO_COMMAND = f"it is of no pool, and {FILE} has no reboot_command"
_NOT_TOLD = "its provider has not told of this machine"


class _Pace:
    """Lets one thread after the other go on, with a pause in between."""

    def __init__(self, pause_s: float, closed: threading.Event) -> None:
        self._pause_s = pause_s
        self._closed = closed
        self._lock = threading.Lock()
        self._next_s = 0.0

    def wait(self) -> None:
        with self._lock:
            now_s = time.monotonic()
            turn_s = max(now_s, self._next_s)
            self._next_s = turn_s + self._pause_s
        self._closed.wait(turn_s - now_s)


class MachineRebooter(Performer[RebootMachine]):
    """Reboots machines.

    Args:
        call_s: how long a call of a provider may last before it is given up.
        pace_s: the time between two reboots.
    """

    kind = RebootMachine

    def __init__(
        self,
        surroundings: Surroundings,
        settings: HealthSettings,
        call_s: float = CALL_S,
        pace_s: float = PACE_S,
    ) -> None:
        self._settings = settings
        self._own_boot = surroundings.boot_id
        self._own_machine = surroundings.machine_id
        self._calls = ProviderCalls(surroundings, call_s)
        self._closed = threading.Event()
        self._pace = _Pace(pace_s, self._closed)
        self._batches = count()
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, int], MachineRebooted] = OrderedDict()

    def perform(self, effects: Sequence[RebootMachine]) -> None:
        for first in range(0, len(effects), BATCH):
            batch = effects[first : first + BATCH]
            key = f"batch {next(self._batches)} of machines to be rebooted"
            sorting = Errand(key, 0, _UNSORTED, partial(self._sort, batch), lambda told: None)
            self._calls.lines.add(_UNSORTED, sorting)

    def close(self) -> None:
        self._closed.set()
        self._calls.close()

    def _sort(self, effects: Sequence[RebootMachine], begin: Begin) -> None:
        """Put effects into the lines of their machines."""
        ids = [effect.agent for effect in effects]
        lines = self._calls.read(partial(read_lines, ids=ids))
        for effect in effects:
            if (line := lines.get(effect.agent)) is not None:
                rebooting = Errand(
                    f"rebooting {effect.agent} for incident {effect.incident}",
                    effect.generation,
                    effect.agent,
                    partial(self._reboot, effect),
                    partial(_outcome, effect, None),
                )
                self._calls.lines.add(line, rebooting)

    def _reboot(self, effect: RebootMachine, begin: Begin) -> MachineRebooted | None:
        """The outcome of an effect; None if nobody waits for it any more."""
        self._pace.wait()
        order = self._calls.read(partial(read_rebooting, effect=effect))
        if order is None:
            return None
        key = effect.incident, effect.generation
        with self._lock:
            known = self._kept.get(key)
        if known is not None:
            return known
        begin()
        outcome = self._carry_out(effect, order)
        with self._lock:
            self._kept[key] = outcome
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        told = outcome.error or "it is on its way"
        log.info("rebooting %s for incident %s: %s", order.name, effect.incident, told)
        return outcome

    def _carry_out(self, effect: RebootMachine, order: RebootOrder) -> MachineRebooted:
        if order.is_done:
            return _outcome(effect, True)
        if order.slice:
            return self._ask_provider(effect, order)
        if not self._settings.reboot_command:
            return _outcome(effect, False, _NO_COMMAND)
        return self._run_command(effect, order)

    def _ask_provider(self, effect: RebootMachine, order: RebootOrder) -> MachineRebooted:
        if order.of_pool is None:
            return _outcome(effect, False, _NOT_TOLD)
        # A machine that shares an operating system with others is not all of the controller's.
        if self._is_here(order) and order.boot_id == system_boot(order.boot_id):
            return _outcome(effect, False, _IS_OWN)
        pool, machine = order.of_pool
        try:
            self._calls.reboot(pool, machine)
        except ProviderError as error:
            done = None if error.outcome is CreateOutcome.UNKNOWN else False
            return _outcome(effect, done, error.told)
        return _outcome(effect, True)

    def _run_command(self, effect: RebootMachine, order: RebootOrder) -> MachineRebooted:
        # A command may mean the whole operating system, even if the agent shares that with others.
        if self._is_here(order):
            return _outcome(effect, False, _IS_OWN)
        if not order.boot_id:
            return _outcome(effect, False, _IS_UNKNOWN)
        machine = {
            "MUSTER_AGENT": order.name,
            "MUSTER_AGENT_ID": order.agent,
            "MUSTER_AGENT_GROUP": order.group,
            "MUSTER_AGENT_HOST": order.host,
            "MUSTER_AGENT_ATTRIBUTES": order.attributes,
            "MUSTER_INCIDENT": effect.incident,
            "MUSTER_GENERATION": str(effect.generation),
            "MUSTER_WHY": bounded(effect.why, MAX_TOLD),
        }
        command, limit_s = self._settings.reboot_command, self._settings.reboot_timeout
        done: bool | None = False
        try:
            answer = call(command, b"", environment(machine), Path("/"), limit_s)
        except NotCalled as error:
            told = str(error)
        except CallFailed as error:
            done, told = None, f"{_named(command)}: {error}"
        except (OSError, ValueError) as error:  # the agent's attributes are too much for a process
            told = f"{_named(command)} cannot be started: {type(error).__name__}"
        else:
            if answer.code == 0:
                return _outcome(effect, True)
            how = f"signal {-answer.code}" if answer.code < 0 else f"exit code {answer.code}"
            words = f": {answer.last_line}" if answer.last_line else " and says nothing"
            told = f"{_named(command)} ends with {how}{words}"
        return _outcome(effect, done, told)

    def _is_here(self, order: RebootOrder) -> bool:
        """Whether the agent is on the controller's machine, or was when it was heard last."""
        is_boot = bool(self._own_boot) and system_boot(order.boot_id) == self._own_boot
        return is_boot or (bool(self._own_machine) and order.controller == self._own_machine)


def _named(command: Sequence[str]) -> str:
    return f"`{command[0].rpartition('/')[2]}`"


def _outcome(effect: RebootMachine, done: bool | None, told: str = "") -> MachineRebooted:
    return MachineRebooted(effect.incident, effect.generation, done, bounded(told, MAX_TOLD))
