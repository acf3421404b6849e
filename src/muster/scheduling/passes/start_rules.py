"""The rules of a group that forbid sessions to start wherever there is room, while a pass places
sessions and their owners use more and more. Placement and the demand for machines ask the same."""

from collections.abc import Mapping
from dataclasses import replace

from muster.core.reasons import Reason
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.plugins import PassContext
from muster.scheduling.workload import WorkloadClass


class StartRules:
    """A group's validators in one pass.

    Attributes:
        context: of the pass; its usage counts what was charged here, too.
        depend_on_usage: whether a rule may forbid later what it does not forbid now.
    """

    def __init__(self, policy: Policy, context: PassContext) -> None:
        self.context = replace(context, usage=context.usage.fork())
        self._counting = policy.counting
        self._all_count = len(policy.counting) == len(policy.validators)
        self.depend_on_usage = bool(context.quotas.levels) or not self._all_count
        idle = {id(each) for each in self._counting if each.is_idle(context)}
        self._validators = [each for each in policy.validators if id(each) not in idle]

    def forbid(self, workload: WorkloadClass) -> tuple[Reason, ...]:
        """All reasons for which no session of the class may start now."""
        reasons: tuple[Reason, ...] = ()
        for validator in self._validators:
            reasons += tuple(validator.validate(workload, self.context))
        return reasons

    def allow(self, workload: WorkloadClass, count: int) -> int:
        """How many sessions of the class may start in a row, at most ``count``: at least one, which
        is not forbidden."""
        if count == 1 or not self._all_count:
            return 1
        for validator in self._counting:
            count = min(count, validator.allows(workload, self.context, count))
        return max(count, 1)

    def charge(self, sessions: Mapping[WorkloadClass, int]) -> None:
        """Count so many sessions of each class as placed."""
        for workload, count in sessions.items():
            self.context.usage.note_placed(workload, count)
