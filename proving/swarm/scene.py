"""The scene of a run: the world, its users, and what these remember of it."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from muster.control.accounts import ensure_user
from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.group.requests import GroupRequests
from muster.control.identity.tokens import create_token
from muster.core.ids import AgentId, KernelId
from muster.core.owner import Owner, Principal, Role
from muster.core.specs import Level, QuotaSpec
from muster.core.specs.account import TokenSpec
from proving.hollow.agent import HollowAgent
from proving.hollow.door import Answered
from proving.hollow.world import World
from proving.swarm.chance import Chance

REPEAT_AFTER_S = 2.0
REPEATS = 40
"""A client asks again after so long, and so often, where it got no answer, or was told to."""
PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True)
class User:
    """Somebody with a token of the cluster; ``name`` is not unique, as one may have two tokens."""

    name: str
    role: Role = Role.USER

    @property
    def owner(self) -> Owner:
        return Owner("default", "default", self.name)

    @property
    def token(self) -> str:
        return f"token-of-{self.name}-as-{self.role}".ljust(40, ".")


_ANY_PRIORITY = QuotaSpec(level=Level.USER, name="*/*/*", max_priority=100)
USERS = (User("ada"), User("bob"))
VIEWER = User("ada", Role.VIEWER)
ADMIN = User("root", Role.ADMIN)


@dataclass(eq=False, slots=True)
class Submission:
    """Work that a user hands in, again and again under one key until somebody answers.

    ``id`` is the work's once it was accepted; ``refusal`` is the status of a refusal that is final.
    """

    number: int
    path: str
    spec: Mapping[str, Any]
    user: User
    id: str | None = None
    refusal: int | None = None
    tries: int = 0

    @property
    def is_answered(self) -> bool:
        return self.id is not None or self.refusal is not None


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a user, and its answer."""

    user: User
    method: str
    path: str
    answer: Answered

    def __str__(self) -> str:
        status, body = self.answer.status, self.answer.body
        told = f": {body}" if status >= 400 else ""
        return f"{self.user.name} ({self.user.role}): {self.method} {self.path}: {status}{told}"


@dataclass(eq=False, slots=True)
class HealthDecision:
    """A decision of an operator about the health of a machine, which may be carried out until
    ``answered_at``; None while nobody has answered."""

    decision: str
    answered_at: float | None = None


@dataclass
class Scene:
    """``submitted`` is the work that users have handed in, by number; ``cancelled`` the ids of work
    that somebody asked to cancel, whatever the answer, ``forced`` of such as was to be killed, and
    ``stopped`` the indexes of single tasks, by the ids of their jobs; ``requests`` are those that
    were answered; ``unwanted`` are the ids of slices that operators asked to delete, and the names
    of pools; ``decided`` are the decisions of operators about the health of agents, but for those
    that were refused; ``unsettled`` says which deployments did not settle once faults had
    stopped; ``steadiness`` counts the slices that were made, and the machines that were
    deleted, by the time when nothing new was to be done for pools, and some time later."""

    world: World
    chance: Chance
    unwanted: set[str] = field(default_factory=set)
    decided: dict[AgentId, list[HealthDecision]] = field(default_factory=lambda: defaultdict(list))
    unsettled: list[str] = field(default_factory=list)
    steadiness: tuple[tuple[int, int], tuple[int, int]] | None = None
    submitted: dict[int, Submission] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    forced: set[str] = field(default_factory=set)
    stopped: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    requests: list[Request] = field(default_factory=list)

    # Steps name things by numbers, so that they keep their sense when other steps are taken out.

    def agent(self, number: int) -> HollowAgent:
        """A machine that is of no pool."""
        agents = [each for each in self.world.agents.values() if each.token is None]
        return agents[number % len(agents)]

    def work(self, number: int) -> Submission | None:
        """A submission that was accepted."""
        submission = self.submitted.get(number)
        return submission if submission is not None and submission.id is not None else None

    def is_to_be_killed(self, kernel: KernelId) -> bool:
        """Whether somebody asked to cancel the work of a kernel with force."""
        record = self.world.store.live.kernels.get(kernel)
        if record is None:
            return False
        session = record.session
        return (session.id if session.job is None else session.job.id) in self.forced

    def invite_users(self) -> None:
        """Give everybody an account and a token."""

        def invite(work: Work, parts: Parts) -> None:
            root = Principal(ADMIN.owner, Role.ADMIN)
            for user in (*USERS, VIEWER, ADMIN):
                ensure_user(work, user.owner)
                spec = TokenSpec(domain="default", user=user.name, role=user.role)
                create_token(work, root, spec, user.token)
            parts[GroupRequests].put_quota(work, _ANY_PRIORITY)

        self.world.request(invite)

    def ask(
        self,
        user: User,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        answered: Callable[[Answered], None] = lambda answer: None,
        *,
        key: str | None = None,
    ) -> None:
        """Send a request; nobody answers while there is no controller."""

        def note(answer: Answered) -> None:
            self.requests.append(Request(user, method, path, answer))
            answered(answer)

        if self.world.controller is not None:
            self.world.controller.door.ask(method, path, user.token, body, note, key=key)

    def insist(
        self, user: User, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> None:
        """Send a request until it is answered, and let time pass meanwhile.

        Raises:
            TimeoutError: nobody answers.
        """
        answers: list[Answered] = []
        end = self.world.clock.now() + PATIENCE_S
        while not answers or answers[-1].status >= 500:
            if self.world.clock.now() > end:
                raise TimeoutError(f"{method} {path} is not answered: {answers[-3:]}")
            asked = len(answers)
            self.ask(user, method, path, body, answers.append)
            with suppress(TimeoutError):
                self.world.run_until(lambda: len(answers) > asked, REPEAT_AFTER_S)  # noqa: B023
            if answers and answers[-1].status >= 500:
                self.world.run(REPEAT_AFTER_S)

    def submit(self, number: int, path: str, spec: Mapping[str, Any], user: User) -> None:
        """Hand in work, as often as it takes to be answered."""
        submission = Submission(number, path, spec, user)
        self.submitted[number] = submission
        self._hand_in(submission)

    def _hand_in(self, submission: Submission) -> None:
        if submission.is_answered or submission.tries > REPEATS:
            return
        submission.tries += 1

        def answered(answer: Answered) -> None:
            if answer.status in (200, 201):
                submission.id = answer.body["id"]
            elif answer.status < 500 and answer.status != 429:
                submission.refusal = answer.status

        key = f"submission-{submission.number}"
        self.ask(submission.user, "POST", submission.path, submission.spec, answered, key=key)
        self.world.timeline.after(REPEAT_AFTER_S, lambda: self._hand_in(submission))
