"""Reasons of incidents: why a machine is under suspicion, what its checks found, and what came of
healing it. None names a job, because people see the incidents of machines on which others' jobs
ran."""

from dataclasses import dataclass, field

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import PRIVATE, Reason
from muster.core.reasons.wording import counted, in_brackets, lasting


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthTaskFailed(Reason):
    code = ReasonCode.HEALTH_TASK_FAILED
    kind = ReasonKind.WAITING

    exit_code: int | None = field(default=None, metadata=PRIVATE)

    def sentence(self) -> str:
        return "a task failed on it"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFaultSeen(Reason):
    code = ReasonCode.HEALTH_SEEN
    kind = ReasonKind.WAITING

    what: str

    def sentence(self) -> str:
        return f"{self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthAsked(Reason):
    code = ReasonCode.HEALTH_ASKED
    kind = ReasonKind.WAITING

    by: str
    note: str | None = None
    agent: str | None = field(default=None, metadata=PRIVATE)

    def sentence(self) -> str:
        return f"{self.by} has it checked{in_brackets(self.note)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthHealAsked(Reason):
    code = ReasonCode.HEALTH_HEAL_ASKED
    kind = ReasonKind.WAITING

    by: str
    note: str | None = None
    agent: str | None = field(default=None, metadata=PRIVATE)

    def sentence(self) -> str:
        return f"{self.by} has it healed{in_brackets(self.note)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthWaitsTurn(Reason):
    code = ReasonCode.HEALTH_WAITS_TURN
    kind = ReasonKind.WAITING

    group: str
    out: int
    most: int
    faulty: bool

    def sentence(self) -> str:
        if self.faulty:
            said = "it is known to be faulty, takes no work, and waits for its turn to be healed"
        else:
            said = "it takes work until it is its turn"
        return said + (
            f": {self.out} of at most {counted(self.most, 'machine')} of group {self.group} are "
            "being emptied, checked or healed"
        )

    def remedy(self) -> str:
        return (
            "Its turn comes when another machine is back. An operator can raise "
            "`health.max_unhealthy` of the group."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthWaitsEmpty(Reason):
    code = ReasonCode.HEALTH_WAITS_EMPTY
    kind = ReasonKind.WAITING

    agent: str
    kernels: int

    def sentence(self) -> str:
        return (
            f"it would have to itself what {counted(self.kernels, 'kernel')} of agent "
            f"{self.agent} still hold"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthWell(Reason):
    code = ReasonCode.HEALTH_WELL
    kind = ReasonKind.WAITING

    verdict: str

    def sentence(self) -> str:
        return f"{self.verdict}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthUnknown(Reason):
    code = ReasonCode.HEALTH_UNKNOWN
    kind = ReasonKind.WAITING

    verdict: str

    def sentence(self) -> str:
        return f"the check found out nothing: {self.verdict}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthManyUnknown(Reason):
    code = ReasonCode.HEALTH_MANY_UNKNOWN
    kind = ReasonKind.OPERATOR

    agent: str
    group: str
    unknown: int
    machines: int
    verdict: str

    def sentence(self) -> str:
        return (
            f"the check found out nothing: {self.verdict}; nothing is known of {self.unknown} of "
            f"the {counted(self.machines, 'machine')} of group {self.group} at once, so the "
            "checks rather than the machines may be at fault, and no machine is healed for that"
        )

    def remedy(self) -> str:
        return f"Look at what the checks say: `muster agents show {self.agent}`."


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFaulty(Reason):
    code = ReasonCode.HEALTH_FAULTY
    kind = ReasonKind.WAITING

    verdict: str

    def sentence(self) -> str:
        return f"{self.verdict}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthHeals(Reason):
    code = ReasonCode.HEALTH_HEALS
    kind = ReasonKind.WAITING

    agent: str

    def sentence(self) -> str:
        return f"agent {self.agent} has to be empty, because it is to be checked or healed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthHealed(Reason):
    code = ReasonCode.HEALTH_HEALED
    kind = ReasonKind.WAITING

    heal: str

    def sentence(self) -> str:
        return f"the {self.heal} is done"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthHealFailed(Reason):
    code = ReasonCode.HEALTH_HEAL_FAILED
    kind = ReasonKind.WAITING

    heal: str
    how: str

    def sentence(self) -> str:
        return f"the {self.heal} failed: {self.how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthNotBack(Reason):
    code = ReasonCode.HEALTH_NOT_BACK
    kind = ReasonKind.WAITING

    heal: str
    timeout_s: float

    def sentence(self) -> str:
        return f"no other boot of it has joined within {lasting(self.timeout_s)} of the {self.heal}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthNotEmpty(Reason):
    code = ReasonCode.HEALTH_NOT_EMPTY
    kind = ReasonKind.WAITING

    waited_s: float

    def sentence(self) -> str:
        return f"work was still there {lasting(self.waited_s)} after it had to leave"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSilent(Reason):
    code = ReasonCode.HEALTH_SILENT
    kind = ReasonKind.WAITING

    silent_s: float

    def sentence(self) -> str:
        return f"it could not be reached for {lasting(self.silent_s)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthGaveUp(Reason):
    code = ReasonCode.HEALTH_GAVE_UP
    kind = ReasonKind.OPERATOR

    rounds: int
    agent: str
    told: str

    def sentence(self) -> str:
        return (
            f"nothing is left to try after {counted(self.rounds, 'round')} of healing: {self.told}"
        )

    def remedy(self) -> str:
        return _heal_or_return(self.agent)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthNoTurn(Reason):
    code = ReasonCode.HEALTH_NO_TURN
    kind = ReasonKind.OPERATOR

    waited_s: float
    isolated: int
    group: str
    agent: str

    def sentence(self) -> str:
        return (
            "it is known to be faulty, and no turn to be healed came for "
            f"{lasting(self.waited_s)}, because {counted(self.isolated, 'isolated machine')} of "
            f"group {self.group} held all turns"
        )

    def remedy(self) -> str:
        return _heal_or_return(self.agent)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthForOperator(Reason):
    code = ReasonCode.HEALTH_FOR_OPERATOR
    kind = ReasonKind.OPERATOR

    agent: str
    told: str

    def sentence(self) -> str:
        return f"this is for an operator: {self.told}"

    def remedy(self) -> str:
        return _heal_or_return(self.agent)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthIsolatedBy(Reason):
    code = ReasonCode.HEALTH_ISOLATED_BY
    kind = ReasonKind.OPERATOR

    by: str
    note: str | None = None
    agent: str

    def sentence(self) -> str:
        return f"isolated by {self.by}{in_brackets(self.note)}"

    def remedy(self) -> str:
        return _heal_or_return(self.agent)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReturnedBy(Reason):
    code = ReasonCode.HEALTH_RETURNED_BY
    kind = ReasonKind.WAITING

    by: str
    note: str | None = None
    agent: str | None = field(default=None, metadata=PRIVATE)

    def sentence(self) -> str:
        return f"{self.by} has it take work again as it is{in_brackets(self.note)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLapsed(Reason):
    code = ReasonCode.HEALTH_LAPSED
    kind = ReasonKind.WAITING

    waited_s: float

    def sentence(self) -> str:
        return (
            f"its turn to be checked did not come for {lasting(self.waited_s)}, in which nothing "
            "else was found"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLetBe(Reason):
    code = ReasonCode.HEALTH_LET_BE
    kind = ReasonKind.WAITING

    waited_s: float

    def sentence(self) -> str:
        return (
            f"work goes on on it after {lasting(self.waited_s)}, and none has to leave for what "
            "nothing confirms"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthUnproven(Reason):
    code = ReasonCode.HEALTH_UNPROVEN
    kind = ReasonKind.OPERATOR

    pause_s: float
    agent: str
    told: str

    def sentence(self) -> str:
        return (
            f"it takes work again though nothing could be found out about it: {self.told}; "
            f"nothing tells of a fault, it cannot be healed, and for {lasting(self.pause_s)} a "
            "fault alone has it checked again"
        )

    def remedy(self) -> str:
        return (
            "Have its checks work, or leave them out: `health.checks` of the group. `muster "
            f"agents check {self.agent}` tries again at once."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthUnchecked(Reason):
    code = ReasonCode.HEALTH_UNCHECKED
    kind = ReasonKind.OPERATOR

    told: str
    agent: str
    group: str
    pause_s: float

    def sentence(self) -> str:
        return (
            f"it takes work again unchecked, as it has none of the checks of group {self.group}: "
            f"{self.told}; for {lasting(self.pause_s)} a fault alone has it checked again"
        )

    def remedy(self) -> str:
        return (
            "Install the checks there, or name others in `health.checks` of the group. `muster "
            f"agents check {self.agent}` tries again at once."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthNoCheck(Reason):
    code = ReasonCode.HEALTH_NO_CHECK
    kind = ReasonKind.OPERATOR

    check: str
    group: str
    agents: int
    agent: str

    def sentence(self) -> str:
        return (
            f"check {self.check} of group {self.group} is missing on "
            f"{counted(self.agents, 'connected agent')}, such as {self.agent}; the others decide "
            "there"
        )

    def remedy(self) -> str:
        return "Install it there, or leave it out of `health.checks` of the group."


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRemoved(Reason):
    code = ReasonCode.HEALTH_REMOVED
    kind = ReasonKind.WAITING

    def sentence(self) -> str:
        return "the agent was removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReplaced(Reason):
    code = ReasonCode.HEALTH_REPLACED
    kind = ReasonKind.WAITING

    machine: str

    def sentence(self) -> str:
        return f"machine {self.machine} is isolated, because healing it did not help"


def _heal_or_return(agent: str) -> str:
    """The commands of a person for a machine that is isolated."""
    heal = f"`muster agents heal {agent}` has it rebooted and checked"
    return f"{heal}, `muster agents return {agent}` has it take work again as it is."
