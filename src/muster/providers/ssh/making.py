"""The making of a slice: free hosts are claimed until there are enough, then agents are started on
them. If that cannot be done for all, all are given back."""

import time
from collections.abc import Iterable, Mapping

from muster.autoscaling.standing import CreateOutcome
from muster.providers.provider import ProviderError, SliceOrder
from muster.providers.ssh.connection import Fault, HostFault
from muster.providers.ssh.fleet import (
    CLAIM_S,
    START_S,
    HostFleet,
    Look,
    faults_in,
    is_gone,
    may_be_done,
)
from muster.providers.ssh.host_list import Host

FIND_S = 12.0
LOOK_S = 20.0
"""The time for a look at hosts, of which many may hang."""
GIVE_BACK_S = 10.0
_NEEDED_S = CLAIM_S + START_S + GIVE_BACK_S
"""The time that is left when hosts are claimed."""
_ORDER = (
    Fault.DENIED,
    Fault.WRONG,
    Fault.FAILED,
    Fault.UNANSWERED,
    Fault.BROKE_OFF,
    Fault.BUSY,
    Fault.AWAY,
)
_NAMED = 5


class SliceMaking:
    """The making of one slice.

    Args:
        fleet: the hosts.
        order: the slice.
        end_s: when all has to be done, monotonic.
    """

    def __init__(self, fleet: HostFleet, order: SliceOrder, end_s: float) -> None:
        self._fleet = fleet
        self._order = order
        self._end_s = end_s
        self._claimed: dict[str, Host] = {}  # by the name of the machine
        self._tried: set[Host] = set()
        self._faults: dict[Host, HostFault] = {}  # of those that are not claimed

    def run(self) -> dict[str, Host]:
        """The hosts of the slice by the names of their machines; agents come up on all of them.

        Raises:
            ProviderError: why there are none; UNKNOWN where a host may be claimed, and cannot be
                asked.
        """
        self._find()
        self._claim()
        late = time.monotonic() > self._end_s - START_S - GIVE_BACK_S
        if self._missing() or late:
            self._give_back(self._claimed.values())
            raise self._refusal()
        names = {host: name for name, host in self._claimed.items()}
        faults = faults_in(self._fleet.start(self._order, names))
        if faults:
            self._give_back(self._claimed.values())
            self._faults = faults
            raise self._refusal()
        return self._claimed

    def _find(self) -> None:
        """Find what an earlier call has claimed.

        Raises:
            ProviderError: a host may be claimed, and cannot be asked.
        """
        slice_ = self._order.slice
        noted = self._fleet.hosts_of(slice_)
        looks = self._fleet.look(self._fleet.seen_of(slice_) if noted is None else noted, FIND_S)
        free, surplus = [], []
        for host, look in looks.items():
            if isinstance(look, HostFault) and look.fault is not Fault.BUSY:
                raise _unknown(f"may be of {slice_}", {host: look}, self._fleet)
            if isinstance(look, HostFault) or look.slice != slice_:
                free.append(host)
            elif look.name in self._missing():
                self._claimed[look.name] = host
            else:
                surplus.append(host)
        self._fleet.notes.add(slice_, looks)
        self._fleet.notes.remove(slice_, free)
        self._give_back(surplus)

    def _claim(self) -> None:
        """Claim hosts for the names that have none: first such as were free when last seen, then
        whatever a look at all the others finds free."""
        hosts = [host for host in self._fleet.hosts() if host not in self._claimed.values()]
        promising = self._fleet.promising(hosts)
        self._claim_first(promising)
        others = [host for host in hosts if host not in self._tried]
        if others and self._missing() and self._left_s() > 0:
            looks = self._fleet.look(others, min(LOOK_S, self._left_s()))
            self._faults |= faults_in(looks)
            seen = {host: look for host, look in looks.items() if isinstance(look, Look)}
            for host, look in seen.items():
                if look.slice:
                    told = f"is claimed by slice {look.slice} of this pool"
                    self._faults[host] = HostFault(Fault.BUSY, told)
            self._claim_all([host for host, look in seen.items() if not look.slice])

    def _claim_first(self, candidates: list[Host]) -> None:
        if self._left_s() <= 0:
            return
        with self._fleet.being_claimed(candidates, len(self._missing())) as hosts:
            self._try(hosts)

    def _claim_all(self, candidates: list[Host]) -> None:
        while candidates and self._missing():
            before = len(candidates)
            self._claim_first(candidates)
            if len(candidates) == before:
                return  # other slices are about to claim all of them

    def _try(self, hosts: Iterable[Host]) -> None:
        """Claim these hosts.

        Raises:
            ProviderError: one may be claimed, and cannot be asked.
        """
        names = dict(zip(hosts, self._missing(), strict=False))
        self._tried.update(names)
        if not names:
            return
        self._fleet.notes.add(self._order.slice, names)
        answers = self._fleet.claim(self._order.slice, names)
        faults = faults_in(answers)
        self._faults |= faults
        self._claimed |= {names[host]: host for host in answers if host not in faults}
        doubtful = [host for host in faults if may_be_done(answers[host])]
        self._fleet.notes.remove(self._order.slice, faults.keys() - {*doubtful})
        if doubtful:
            self._give_back(doubtful, also=self._claimed.values())

    def _missing(self) -> list[str]:
        return [name for name in self._order.names if name not in self._claimed]

    def _left_s(self) -> float:
        """The time until no more hosts can be claimed."""
        return self._end_s - _NEEDED_S - time.monotonic()

    def _give_back(self, hosts: Iterable[Host], also: Iterable[Host] = ()) -> None:
        """Give hosts back.

        Args:
            also: are given back too if that fails.

        Raises:
            ProviderError: some may still be claimed.
        """
        ends = self._fleet.end(self._order.slice, hosts, GIVE_BACK_S)
        left = {host: end for host, end in ends.items() if not is_gone(end)}
        if left:
            self._fleet.end(self._order.slice, also, GIVE_BACK_S)
            raise _unknown(f"may be of {self._order.slice}", left, self._fleet)

    def _refusal(self) -> ProviderError:
        """Why there is no slice."""
        found = {fault.fault for fault in self._faults.values()}
        if Fault.DENIED in found:
            outcome = CreateOutcome.CREDENTIALS
        elif found & {Fault.WRONG, Fault.FAILED} and Fault.BUSY not in found:
            outcome = CreateOutcome.BAD_REQUEST
        elif self._left_s() <= 0:
            outcome = CreateOutcome.THROTTLED
        else:
            outcome = CreateOutcome.STOCK_OUT
        wanted, all_ = len(self._order.names), len(self._fleet.hosts())
        return ProviderError(
            outcome, f"{wanted} of {all_} hosts wanted: {told_of(self._faults, self._fleet)}"
        )


def told_of(faults: Mapping[Host, HostFault], fleet: HostFleet) -> str:
    """A text on faults: those that somebody has to mend first, hosts of equal ones together."""
    alike: dict[tuple[int, str], list[str]] = {}
    for host, fault in faults.items():
        kind = (_ORDER.index(fault.fault), fault.told)
        alike.setdefault(kind, []).append(fleet.id_of(host))
    said = []
    for (_, told), hosts in sorted(alike.items()):
        more = f" and {len(hosts) - _NAMED} more" if len(hosts) > _NAMED else ""
        said.append(f"{', '.join(hosts[:_NAMED])}{more}: {told}")
    return "; ".join(said) or "no time was left, or other slices are about to claim them"


def _unknown(what: str, hosts: Mapping[Host, object], fleet: HostFleet) -> ProviderError:
    faults = faults_in(hosts)
    told = told_of(faults, fleet) if faults else ", ".join(map(fleet.id_of, hosts))
    return ProviderError(CreateOutcome.UNKNOWN, f"{what}: {told}")
