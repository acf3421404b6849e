"""Reasons of deployments: why replicas are made or replaced, and what became of a roll-out."""

from dataclasses import dataclass, field

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import PRIVATE, Reason
from muster.core.reasons.wording import after_colon, counted, lasting, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementFirst(Reason):
    code = ReasonCode.REPLACEMENT_FIRST
    kind = ReasonKind.WAITING

    deployment: str

    def sentence(self) -> str:
        return (
            f"a replica of deployment {self.deployment} leaves once another is available "
            "elsewhere, or after a minute without room for one"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementPaused(Reason):
    code = ReasonCode.REPLACEMENT_PAUSED
    kind = ReasonKind.WAITING

    deployment: str

    def sentence(self) -> str:
        return (
            f"a replica of deployment {self.deployment} stays, because its roll-out is paused: "
            "it is replaced once that goes on, and no deadline was given to leave the machine"
        )

    def remedy(self) -> str:
        return (
            f"`muster rollout resume {self.deployment}` has it go on; a drain with a deadline "
            "does not wait for it."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionExhausted(Reason):
    code = ReasonCode.DISRUPTION_EXHAUSTED
    kind = ReasonKind.WAITING

    in_s: float | None = None
    endless: bool
    paused: bool
    deployment: str
    serving: int
    wanted: int
    disruption: str

    def sentence(self) -> str:
        said = (
            f"deployment {self.deployment} can spare no replica: {self.serving} of {self.wanted} "
            f"serve, and its disruption is {self.disruption}"
        )
        if self.paused:
            said += "; its roll-out is paused"
        if self.endless:
            said += "; no deadline was given to leave the machine"
        if self.in_s:
            said += f"; in {lasting(self.in_s)} it may keep none any more"
        return said

    def remedy(self) -> str:
        return (
            f"It goes on once another replica is healthy: `muster why {self.deployment}`. "
            "Without a deadline of the drain it waits for that as long as it takes."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentStartsAgain(Reason):
    code = ReasonCode.DEPLOYMENT_STARTS_AGAIN
    kind = ReasonKind.WAITING

    how: str | None = None
    route: str | None = None
    failed: int
    in_s: float | None = None

    def sentence(self) -> str:
        said = (
            f"{counted(self.failed, 'replica')} in a row did not become healthy, or not for "
            f"long{after_colon(self.how)}"
        )
        if self.in_s:
            said += f"; the next is tried in {lasting(self.in_s)}"
        return said

    def remedy(self) -> str:
        said = ""
        if self.route:
            said += f"`muster logs {self.route}` shows what the last of them wrote."
        return said


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentNeverHealthy(Reason):
    code = ReasonCode.DEPLOYMENT_NEVER_HEALTHY
    kind = ReasonKind.REQUEST

    how: str | None = None
    route: str | None = None
    failed: int

    def sentence(self) -> str:
        return (
            f"{counted(self.failed, 'replica')} did not become healthy, and no more are "
            f"tried{after_colon(self.how)}"
        )

    def remedy(self) -> str:
        said = ""
        if self.route:
            said += f"`muster logs {self.route}` shows what the last of them wrote. "
        return said + "Mend the program or the probe, and hand the deployment in again."


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentReplicasDiffer(Reason):
    code = ReasonCode.DEPLOYMENT_REPLICAS_DIFFER
    kind = ReasonKind.WAITING

    up: int
    wanted: int
    create: int
    remove: int

    def sentence(self) -> str:
        return (
            f"it has {counted(self.up, 'replica')} and wants {self.wanted}: {self.create} to "
            f"make, {self.remove} to take away"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRoutesLeft(Reason):
    code = ReasonCode.DEPLOYMENT_ROUTES_LEFT
    kind = ReasonKind.WAITING

    left: int

    def sentence(self) -> str:
        return f"{counted(self.left, 'route')} are still being stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutUnderWay(Reason):
    code = ReasonCode.ROLLOUT_UNDER_WAY
    kind = ReasonKind.WAITING

    revision: int
    available: int
    wanted: int
    paused: bool
    deployment: str

    def sentence(self) -> str:
        said = (
            f"revision {self.revision} is rolled out: {self.available} of "
            f"{counted(self.wanted, 'replica')} are available"
        )
        if self.paused:
            said += ", and it is paused"
        return said

    def remedy(self) -> str:
        said = ""
        if self.paused:
            said += f"`muster rollout resume {self.deployment}` has it go on."
        return said


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutStartsFailed(Reason):
    code = ReasonCode.ROLLOUT_STARTS_FAILED
    kind = ReasonKind.REQUEST

    deployment: str | None = None
    revision: int
    stable: int
    failed: int
    how: str | None = None

    def sentence(self) -> str:
        return (
            f"revision {self.revision} was given up: {counted(self.failed, 'replica')} of it did "
            f"not become healthy{after_colon(self.how)}; revision {self.stable} serves"
        )

    def remedy(self) -> str:
        return (
            "Mend it, and change the deployment; or, where the mistake was outside it, have the "
            f"revision tried again: {_undo(self)}."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutTooSlow(Reason):
    code = ReasonCode.ROLLOUT_TOO_SLOW
    kind = ReasonKind.REQUEST

    deployment: str | None = None
    revision: int
    stable: int
    deadline_s: float
    how: str | None = None

    def sentence(self) -> str:
        return (
            f"revision {self.revision} was given up: no further replica of it became available "
            f"within {lasting(self.deadline_s)}{after_colon(self.how)}; revision {self.stable} "
            "serves"
        )

    def remedy(self) -> str:
        return (
            "Mend it and change the deployment, such as by a longer update.progress_deadline; "
            f"or, where the mistake was outside it, have the revision tried again: {_undo(self)}."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutNoRoom(Reason):
    code = ReasonCode.ROLLOUT_NO_ROOM
    kind = ReasonKind.WAITING

    deployment: str | None = None
    revision: int
    stable: int
    deadline_s: float
    how: str | None = None

    def sentence(self) -> str:
        return (
            f"revision {self.revision} was given up: there was no room for a further replica of "
            f"it within {lasting(self.deadline_s)}{after_colon(self.how)}; revision "
            f"{self.stable} serves"
        )

    def remedy(self) -> str:
        return (
            "Make room, have it take the place of the former replicas by update.surge 0, or "
            "wait longer by update.progress_deadline; the revision is tried again by "
            f"{_undo(self)}."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutErrors(Reason):
    code = ReasonCode.ROLLOUT_ERRORS
    kind = ReasonKind.REQUEST

    deployment: str | None = field(default=None, metadata=PRIVATE)
    revision: int
    stable: int
    rate: float
    requests: int
    limit: float

    def sentence(self) -> str:
        return (
            f"revision {self.revision} was given up: {shown(self.rate)} % of its "
            f"{counted(self.requests, 'request')} failed, more than {shown(self.limit)} %; "
            f"revision {self.stable} serves"
        )

    def remedy(self) -> str:
        return "Mend it and change the deployment."


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledByLoad(Reason):
    code = ReasonCode.SCALED_BY_LOAD
    kind = ReasonKind.WAITING

    before: int
    after: int
    how: str
    load: float
    metric: str
    target: float

    def sentence(self) -> str:
        return (
            f"{self.before} → {self.after} replicas ({self.how}): {shown(self.load)} "
            f"{self.metric}, {shown(self.target)} a replica are aimed at"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessAtProxyAlone(Reason):
    code = ReasonCode.ACCESS_AT_PROXY_ALONE
    kind = ReasonKind.OPERATOR

    open: int
    machines: int
    group: str

    def sentence(self) -> str:
        return (
            f"on {self.open} of {counted(self.machines, 'machine')} of group {self.group} its "
            "access holds at the proxy alone: kernels of other users there reach the port of a "
            "replica on their machine"
        )

    def remedy(self) -> str:
        return (
            "Run those agents as root with nftables installed, keep the deployment to machines "
            "that have it (`constraints: [ports=nftables]`), or have its program check the "
            "header Muster-Secret against MUSTER_SECRET."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessUnknown(Reason):
    code = ReasonCode.ACCESS_UNKNOWN
    kind = ReasonKind.REQUEST

    who: str
    domain: str

    def sentence(self) -> str:
        return f"access names {self.who}: unknown in domain {self.domain}"

    def remedy(self) -> str:
        return "Look whether the names are right; whoever is added later gets in then."


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentHandedIn(Reason):
    code = ReasonCode.DEPLOYMENT_HANDED_IN
    kind = ReasonKind.WAITING

    by: str
    revision: int
    changed: str | None = None

    def sentence(self) -> str:
        return f"{self.by} hands it in, as revision {self.revision}{after_colon(self.changed)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentScaledBy(Reason):
    code = ReasonCode.DEPLOYMENT_SCALED_BY
    kind = ReasonKind.WAITING

    by: str
    before: int
    after: int

    def sentence(self) -> str:
        return f"{self.by} scales it: {self.before} → {counted(self.after, 'replica')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutUndoneBy(Reason):
    code = ReasonCode.ROLLOUT_UNDONE_BY
    kind = ReasonKind.WAITING

    by: str
    of: int
    revision: int | None = None
    given_up: int | None = None

    def sentence(self) -> str:
        said = f"{self.by} goes back to revision {self.of}"
        if self.revision:
            said += f", as revision {self.revision}"
        if self.given_up:
            said += f"; revision {self.given_up}, which was given up, is not wished any more"
        return said


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPausedBy(Reason):
    code = ReasonCode.ROLLOUT_PAUSED_BY
    kind = ReasonKind.WAITING

    by: str
    revision: int

    def sentence(self) -> str:
        return f"{self.by} pauses the update to revision {self.revision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutResumedBy(Reason):
    code = ReasonCode.ROLLOUT_RESUMED_BY
    kind = ReasonKind.WAITING

    by: str
    revision: int

    def sentence(self) -> str:
        return f"{self.by} has the update to revision {self.revision} go on"


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutBegun(Reason):
    code = ReasonCode.ROLLOUT_BEGUN
    kind = ReasonKind.WAITING

    before: int
    revision: int

    def sentence(self) -> str:
        return f"revision {self.before} → {self.revision}"


def _undo(why: RolloutStartsFailed | RolloutTooSlow | RolloutNoRoom) -> str:
    """The command that tries a revision again; stored reasons may lack the name."""
    return f"`muster rollout undo {why.deployment or 'NAME'} --to {why.revision}`"
