"""Jobs that fail one after the other on a machine, of which that is suspicious (design: Machine
health). Pure but for a bounded memory, which a restart forgets.

Jobs fail for many reasons, and hardly ever for a machine's. So a machine is suspected only if jobs
of several users fail there in a row whose work fails nowhere else. Where there is one user alone,
jobs count that succeed elsewhere. So nobody's broken sweep takes machines out of work.

A machine that fails everything at once is always free, so it gets all work that is handed in, and
nobody learns what that would do elsewhere. There it is enough that more jobs fail in a row, each as
soon as it begins, whoever owns them.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from muster.core.ids import AgentId

User = tuple[str, str]
"""A domain, and a user of it."""
MAX_USERS = 1000
"""Users who are remembered, at most; those whose work ended last."""
MAX_SUCCEEDED = 64
"""Jobs of one user of which it is remembered where they succeeded last."""
MAX_AGENTS = 20_000
"""Machines whose failures are remembered, at most."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class InARow:
    """The rule.

    Args:
        jobs: different jobs that have to fail on a machine, with no success between.
        within_s: seconds within which they do.
        at_once: different jobs that have to fail at once, where nothing else is known of their
            users' work.
        at_once_s: seconds after its beginning within which work fails at once.
    """

    jobs: int = 3
    within_s: float = 3600.0
    at_once: int = 5
    at_once_s: float = 10.0


@dataclass(frozen=True, slots=True)
class WorkEnd:
    """An end of work on one machine, by its own doing.

    Args:
        job: the id of its job, or of the session itself.
        ran_s: how long it ran, in seconds.
    """

    agent: AgentId
    user: User
    job: str
    failed: bool
    at: float
    ran_s: float


@dataclass(frozen=True, slots=True)
class _Failure:
    """The last failure of a job on a machine: when, and whether the job failed at once."""

    at: float
    at_once: bool


@dataclass(frozen=True, slots=True)
class Failures:
    """The jobs that failed on a machine since one succeeded there.

    Args:
        jobs: how many different ones, of the users that count.
        users: how many users count: theirs fail nowhere else.
        at_once: whether each of them failed as soon as it began.
    """

    jobs: int
    users: int
    at_once: bool = False


@dataclass(slots=True)
class _Places:
    """The last two machines where a user's work failed, and when: enough to know whether it did
    anywhere else than on one of them."""

    newest: tuple[AgentId, float] | None = None
    other: tuple[AgentId, float] | None = None

    def add(self, agent: AgentId, at: float) -> None:
        if self.newest is not None and self.newest[0] != agent:
            self.other = self.newest
        self.newest = (agent, at)

    def elsewhere(self, agent: AgentId, since: float) -> bool:
        return any(
            place is not None and place[0] != agent and place[1] >= since
            for place in (self.newest, self.other)
        )


@dataclass(slots=True)
class _User:
    at: float = 0.0
    failed: _Places = field(default_factory=_Places)
    succeeded: dict[str, tuple[AgentId, float]] = field(default_factory=dict)  # of jobs, the newest


class FailingJobs:
    """The memory: of each machine the failures since its last success, of each user where work of
    theirs ended lately."""

    def __init__(
        self,
        rule: InARow | None = None,
        *,
        max_users: int = MAX_USERS,
        max_agents: int = MAX_AGENTS,
    ) -> None:
        self._rule = rule or InARow()
        self._max_users, self._max_agents = max_users, max_agents
        self._machines: dict[AgentId, dict[User, dict[str, _Failure]]] = {}
        self._users: dict[User, _User] = {}

    @property
    def size(self) -> int:
        """The number of things that it remembers."""
        failures = (len(jobs) for each in self._machines.values() for jobs in each.values())
        return sum(failures) + sum(1 + len(each.succeeded) for each in self._users.values())

    def ended(self, end: WorkEnd) -> Failures | None:
        """Take note of an end. The answer, where it makes the machine suspicious, is what failed
        there; the machine begins anew then."""
        user = self._users.pop(end.user, None) or _User()
        self._users[end.user] = user
        _drop_oldest(self._users, self._max_users)
        user.at = end.at
        if not end.failed:
            user.succeeded.pop(end.job, None)
            user.succeeded[end.job] = end.agent, end.at
            _drop_oldest(user.succeeded, MAX_SUCCEEDED)
            self._machines.pop(end.agent, None)
            return None
        user.failed.add(end.agent, end.at)
        failures = self._machines.pop(end.agent, None) or {}
        self._machines[end.agent] = failures
        _drop_oldest(self._machines, self._max_agents)
        jobs = failures.pop(end.user, None) or {}
        failures[end.user] = jobs
        _drop_oldest(failures, 2 * self._rule.jobs)
        jobs.pop(end.job, None)
        jobs[end.job] = _Failure(end.at, end.ran_s <= self._rule.at_once_s)
        _drop_oldest(jobs, max(self._rule.jobs, self._rule.at_once))
        found = self._judged(end.agent, failures, end.at)
        if found is not None:
            del self._machines[end.agent]
        return found

    def _judged(
        self, agent: AgentId, failures: Mapping[User, Mapping[str, _Failure]], now: float
    ) -> Failures | None:
        since = now - self._rule.within_s
        counted: dict[User, list[_Failure]] = {}
        for user, jobs in failures.items():
            recent = [each for each in jobs.values() if each.at >= since]
            known = self._users.get(user)
            if recent and known is not None and not known.failed.elsewhere(agent, since):
                counted[user] = recent
        return self._of_several_users(agent, failures, counted, since) or self._at_once(counted)

    def _at_once(self, counted: Mapping[User, Sequence[_Failure]]) -> Failures | None:
        """The failures, if so many jobs failed as soon as they began, and no other did."""
        jobs = [failure for some in counted.values() for failure in some]
        if len(jobs) < self._rule.at_once or not all(each.at_once for each in jobs):
            return None
        return Failures(len(jobs), len(counted), at_once=True)

    def _of_several_users(
        self,
        agent: AgentId,
        failures: Mapping[User, Mapping[str, _Failure]],
        counted: Mapping[User, Sequence[_Failure]],
        since: float,
    ) -> Failures | None:
        """The failures, if they are of several users, or those of the only one succeed
        elsewhere.

        Args:
            counted: those of users whose work fails nowhere else.
        """
        found = Failures(sum(map(len, counted.values())), len(counted))
        if found.jobs < self._rule.jobs:
            return None
        active = sum(1 for each in self._users.values() if each.at >= since)
        if active == 1:
            # Nobody else is there to compare with. The last job may not have been tried elsewhere.
            [user] = counted
            well = self._users[user].succeeded
            places = [well[job] for job in failures[user] if job in well]
            proven = sum(1 for place, at in places if place != agent and at >= since)
            return found if proven >= self._rule.jobs - 1 else None
        return found if found.users >= min(active, self._rule.jobs) else None

    def forget(self, now: float) -> None:
        """Forget what is older than the rule looks back."""
        since = now - self._rule.within_s
        self._users = {user: each for user, each in self._users.items() if each.at >= since}
        recent = {
            agent: {
                user: jobs
                for user, jobs in failures.items()
                if user in self._users and any(each.at >= since for each in jobs.values())
            }
            for agent, failures in self._machines.items()
        }
        self._machines = {agent: failures for agent, failures in recent.items() if failures}


def _drop_oldest(table: dict[K, V], most: int) -> None:
    while len(table) > most:
        del table[next(iter(table))]
