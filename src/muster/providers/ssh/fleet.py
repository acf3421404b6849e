"""The hosts of a pool and what they are asked: what requests say, what is kept of the answers."""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from muster.autoscaling.standing import CreateOutcome
from muster.core.text import made_text
from muster.providers.provider import CALL_S, ProviderError, Scope, SliceOrder
from muster.providers.ssh.connection import MAY_BE_DONE, Door, Fault, HostFault, ask_all
from muster.providers.ssh.host_list import Host
from muster.providers.ssh.notes import Notes
from muster.providers.ssh.settings import SshSettings
from muster.providers.starting import start_script, stop_script

CLAIM_S = 14.0
LOG_S = 15.0
START_S = 10.0
START_WAIT_S = 3.0
"""How long a host waits for the start of an agent, which goes on without anybody waiting: it may
install Muster first."""
END_WAIT_S = 20.0
"""How long a host waits for the end of an agent with its kernels, which goes on as well."""
_WORK_S = 10.0
"""How long a request may take on a host beside what it waits for."""
_MAX_TEXT = 200


@dataclass(frozen=True, slots=True)
class Look:
    """A host as it was seen.

    Args:
        slice, name: of the claim, if the host is claimed by this pool; empty otherwise.
        key: of the claim; two hosts with the same are one.
        state: ``free``, or of the agent on a claimed host (see ``on_host.state_of``).
        detail: what the host says of that.
    """

    slice: str
    name: str
    key: str
    state: str
    detail: str


Answers = dict[Host, dict[str, Any] | HostFault]


class HostFleet:
    """The hosts of a pool.

    Args:
        settings: of the pool.
        scope: of the pool.
    """

    def __init__(self, settings: SshSettings, scope: Scope) -> None:
        self.settings = settings
        self.notes = Notes(scope.directory / "slices")
        self._scope = scope
        self._lock = threading.Lock()
        self._being_claimed: set[Host] = set()
        self._seen: dict[Host, str] = {}  # the slice of each host when last seen; empty if free
        self._without_promise: set[Host] = set()  # claimed, or not to be asked, when last seen

    def hosts(self) -> list[Host]:
        """The hosts of the list, and those that were taken off it and may still be claimed."""
        return [*dict.fromkeys((*self.settings.machines, *sorted(self.notes.hosts(), key=str)))]

    def hosts_of(self, slice_: str) -> list[Host] | None:
        """The hosts that may be of a slice; None where there is no note on it."""
        noted = self.notes.hosts_of(slice_)
        if noted is None:
            return None
        return [host for host in self.hosts() if host in noted]

    def id_of(self, host: Host) -> str:
        return self.settings.id_of(host)

    # Requests

    def look(
        self, hosts: Iterable[Host], within_s: float, operation: str = "look"
    ) -> dict[Host, Look | HostFault]:
        """Look at hosts.

        Claims are noted of slices that have a note, and of others where all hosts have answered: a
        note says that no other host need be asked.
        """
        answers = self._ask(hosts, operation, {}, 0.0, within_s)
        looks = self._without_doubles(
            {host: self._look_of(answer) for host, answer in answers.items()}
        )
        claimed = {h: look.slice for h, look in looks.items() if isinstance(look, Look)}
        self._remember(looks, [host for host, slice_ in claimed.items() if slice_])
        silent = {host for host, fault in faults_in(looks).items() if not is_busy(fault)}
        complete = not silent and looks.keys() >= {*self.hosts()}
        with self._lock:
            self._seen |= claimed
        for host, slice_ in claimed.items():
            if slice_ and (complete or self.notes.hosts_of(slice_) is not None):
                self.notes.add(slice_, [host])
        return looks

    def seen_of(self, slice_: str) -> set[Host]:
        """The hosts that a slice had when they were last looked at."""
        with self._lock:
            return {host for host, claimed_by in self._seen.items() if claimed_by == slice_}

    def claim(self, slice_: str, names: Mapping[Host, str]) -> Answers:
        """Claim hosts, each as the machine of a name."""

        def request(host: Host) -> dict[str, Any]:
            return {"claim": self._tag(slice_) | {"name": names[host]}}

        answers = self._ask(names, "claim", request, 0.0, CLAIM_S)
        self._remember(answers, names)
        return answers

    def start(self, order: SliceOrder, names: Mapping[Host, str]) -> Answers:
        """Start the agents on claimed hosts, each under its name."""

        def request(host: Host) -> dict[str, Any]:
            place = self.settings.place_on(host)
            prepare = self.settings.preparation(host)
            return {
                "claim": self._tag(order.slice),
                "start": start_script(order, names[host], place, prepare),
                "stop": stop_script(place),
                "wait_s": START_WAIT_S,
            }

        return self._ask(names, "start", request, START_WAIT_S, START_S)

    def end(self, slice_: str, hosts: Iterable[Host], within_s: float) -> Answers:
        """End the agents of a slice and give its hosts back; the notes keep those that are not."""
        request = {
            "claim": self._tag(slice_),
            "wait_s": END_WAIT_S,
            "shutdown": self.settings.shutdown_command,
        }
        answers = self._ask(hosts, "end", request, END_WAIT_S, within_s)
        gone = [host for host, answer in answers.items() if is_gone(answer)]
        self.notes.remove(slice_, gone)
        self._remember(answers, ())
        return answers

    def reboot(self, slice_: str, host: Host, command: Collection[str]) -> Answers:
        """Have a host boot anew; it may break off the connection before it can answer."""
        request = {"claim": self._tag(slice_), "reboot": [*command]}
        return self._ask([host], "reboot", request, 0.0, CALL_S - 5.0)

    def log(self, slice_: str, host: Host) -> Answers:
        """Ask a host of a slice for the last words of its agent."""
        request = {"claim": self._tag(slice_), "unit": self.settings.place_on(host).unit}
        return self._ask([host], "log", request, 0.0, LOG_S)

    # Which host is next

    def promising(self, hosts: Iterable[Host]) -> list[Host]:
        """Hosts that were free when last seen, or were not seen yet."""
        return [host for host in hosts if host not in self._without_promise]

    @contextmanager
    def being_claimed(self, candidates: list[Host], number: int) -> Iterator[list[Host]]:
        """So many of the candidates, taken out of their list, while no other slice of this pool is
        about to claim them."""
        with self._lock:
            chosen = [host for host in candidates if host not in self._being_claimed][:number]
            self._being_claimed.update(chosen)
        for host in chosen:
            candidates.remove(host)
        try:
            yield chosen
        finally:
            with self._lock:
                self._being_claimed.difference_update(chosen)

    # How they are asked

    def _ask(
        self,
        hosts: Iterable[Host],
        operation: str,
        request: Mapping[str, Any] | Callable[[Host], Mapping[str, Any]],
        waits_s: float,
        within_s: float,
    ) -> Answers:
        """
        Args:
            waits_s: how long a host waits for what the request does.

        Raises:
            ProviderError: no host can be asked.
        """
        try:
            door = Door(self.settings)
        except HostFault as fault:
            raise ProviderError(CreateOutcome.CREDENTIALS, fault.told) from None

        async def ask(host: Host, end_s: float) -> dict[str, Any]:
            own = request(host) if callable(request) else request
            common = {
                "operation": operation,
                "directory": self.settings.directory_on(host),
                "program": self.settings.muster if self.settings.install is None else None,
            }
            return await door.ask(host, {**common, **own}, waits_s + _WORK_S, end_s)

        return ask_all(hosts, ask, within_s)

    def _remember(self, answers: Mapping[Host, object], taken: Collection[Host]) -> None:
        """Remember which hosts are worth a try."""
        busy = {host for host in answers if host in taken} | faults_in(answers).keys()
        with self._lock:
            self._without_promise -= answers.keys()
            self._without_promise |= busy

    def _tag(self, slice_: str) -> dict[str, str]:
        return {"cluster": self._scope.cluster, "pool": self._scope.pool, "slice": slice_}

    def _without_doubles(
        self, looks: Mapping[Host, Look | HostFault]
    ) -> dict[Host, Look | HostFault]:
        """The same, with a fault in place of a host that is another under a second name: it must
        not be given back as one too many."""
        first: dict[str, Host] = {}
        kept: dict[Host, Look | HostFault] = {}
        for host, look in looks.items():
            if isinstance(look, Look) and look.slice and first.setdefault(look.key, host) != host:
                told = f"is {self.id_of(first[look.key])} under another name: name it once"
                look = HostFault(Fault.BUSY, told)
            kept[host] = look
        return kept

    def _look_of(self, answer: dict[str, Any] | HostFault) -> Look | HostFault:
        if isinstance(answer, HostFault):
            return answer
        claim, detail = answer.get("claim"), made_text(str(answer.get("detail", "")), _MAX_TEXT)
        state = str(answer.get("state"))
        if not isinstance(claim, dict):
            return Look("", "", "", state, detail)
        slice_, name = str(claim.get("slice"))[:_MAX_TEXT], str(claim.get("name"))[:_MAX_TEXT]
        if all(claim.get(key) == value for key, value in self._tag(slice_).items()):
            return Look(slice_, name, str(claim.get("key")), state, detail)
        other = f"slice {slice_} of pool {str(claim.get('pool'))[:_MAX_TEXT]}"
        return HostFault(Fault.BUSY, f"is claimed by {other}")


def is_gone(answer: dict[str, Any] | HostFault) -> bool:
    """Whether a host that was to be given back is."""
    return not isinstance(answer, HostFault) and answer.get("gone") is True


def may_be_done(answer: dict[str, Any] | HostFault) -> bool:
    """Whether a request may have been carried out, as far as the answer tells."""
    return not isinstance(answer, HostFault) or answer.fault in MAY_BE_DONE


def faults_in(answers: Mapping[Host, object]) -> dict[Host, HostFault]:
    """The faults among answers."""
    return {host: each for host, each in answers.items() if isinstance(each, HostFault)}


def outcome_of(faults: Mapping[Host, HostFault]) -> CreateOutcome:
    """The error that the faults come to, where hosts may have done what they were asked."""
    found = {fault.fault for fault in faults.values()}
    if Fault.DENIED in found:
        return CreateOutcome.CREDENTIALS
    return (
        CreateOutcome.BAD_REQUEST if found <= {Fault.WRONG, Fault.BUSY} else CreateOutcome.UNKNOWN
    )


def is_busy(fault: HostFault) -> bool:
    """Whether a host has answered, and is another's."""
    return fault.fault is Fault.BUSY
