"""The policy of a scaling group: its parts, found by the names in its spec."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from muster.core.errors import InvalidSpec, MusterError, Problem
from muster.core.specs import ScalingGroup, SessionType
from muster.core.specs.group import PreemptionSpec, QueuePolicy
from muster.scheduling.policy import selectors, sequencers, validators
from muster.scheduling.policy.allocators import RepositoryAllocator
from muster.scheduling.policy.guard import (
    GuardedAllocator,
    GuardedHook,
    GuardedSequencer,
    GuardedValidator,
    PluginFault,
    guarded_selector,
)
from muster.scheduling.policy.hooks import BatchHook, InferenceHook, InteractiveHook
from muster.scheduling.policy.plugins import (
    AgentSelector,
    CountingValidator,
    SessionAllocator,
    SessionHook,
    SessionSequencer,
    SessionValidator,
    find,
)

VALIDATORS: Mapping[str, Callable[..., SessionValidator]] = {
    "keypair_resource_limit": validators.KeypairResourceLimit,
    "group_resource_limit": validators.GroupResourceLimit,
    "domain_resource_limit": validators.DomainResourceLimit,
    "concurrency": validators.Concurrency,
    "dependencies": validators.Dependencies,
    "start_time": validators.StartTime,
}
SEQUENCERS: Mapping[str, Callable[..., SessionSequencer]] = {
    "fifo": sequencers.Fifo,
    "lifo": sequencers.Lifo,
    "drf": sequencers.Drf,
    "fair_share": sequencers.FairShare,
}
SELECTORS: Mapping[str, Callable[..., AgentSelector]] = {
    "concentrated": selectors.Concentrated,
    "dispersed": selectors.Dispersed,
    "round_robin": selectors.RoundRobin,
    "fragmentation": selectors.Fragmentation,
}
ALLOCATORS: Mapping[str, Callable[..., SessionAllocator]] = {
    "repository": RepositoryAllocator,
}
HOOKS: Mapping[str, Callable[..., SessionHook]] = {
    "interactive": InteractiveHook,
    "batch": BatchHook,
    "inference": InferenceHook,
}

_Made: TypeAlias = Mapping[tuple[str, str], tuple[Mapping[str, Any], Any]]


@dataclass(frozen=True)
class Policy:
    """The parts of one group's placement.

    Args:
        validators: the validators that the group names, one for access to the group, and one for
            jobs that are held.
        hooks: by type of session.
        starvation_after_s: the wait after which room is kept for a session at any price.
        refused: the faults of plug-ins that the group names and that do not serve.
        made: the parts in use by kind and name, each with the options that it was made with.
    """

    sequencer: SessionSequencer = field(default_factory=sequencers.Fifo)
    selector: AgentSelector = field(default_factory=selectors.Concentrated)
    allocator: SessionAllocator = field(default_factory=RepositoryAllocator)
    allocator_name: str = "repository"
    validators: tuple[SessionValidator, ...] = ()
    hooks: Mapping[SessionType, SessionHook] = field(default_factory=dict)
    queue: QueuePolicy = QueuePolicy.BACKFILL
    preemption: PreemptionSpec | None = None
    starvation_after_s: float = 300.0
    refused: tuple[PluginFault, ...] = ()
    made: _Made = field(default_factory=dict, repr=False)

    @cached_property
    def counting(self) -> tuple[CountingValidator, ...]:
        """The validators that tell how many sessions they allow in a row."""
        return tuple(each for each in self.validators if isinstance(each, CountingValidator))

    @staticmethod
    def of(
        group: ScalingGroup,
        refused: tuple[PluginFault, ...] = (),
        before: "Policy | None" = None,
    ) -> "Policy":
        """The policy that ``group`` names; in place of the ``refused`` plug-ins, built-in parts.

        Args:
            before: the former policy, whose parts with the same options go on with all that they
                have learnt.

        Raises:
            MusterError: a part of that name is not known, or cannot be made.
        """
        out = {(fault.kind, fault.name) for fault in refused}
        failed = {fault.name for fault in refused}
        sequencer, selector, allocator = group.sequencer, group.selector, group.allocator
        if ("sequencer", sequencer) in out:
            sequencer = "fifo"
        if ("selector", selector) in out:
            selector = "concentrated"
        if ("allocator", allocator) in out:
            allocator = "repository"
        names = [name for name in group.validators if ("validator", name) not in out]
        hooks = {kind: name for kind, name in group.hooks.items() if ("hook", name) not in out}
        options = {name: of for name, of in group.options.items() if name not in failed}
        parts = _Parts(options, {} if before is None else before.made)
        access = (validators.GroupAccess(group),) if group.projects else ()
        return Policy(
            sequencer=parts.part("sequencers", sequencer, SEQUENCERS, GuardedSequencer),
            selector=parts.part("selectors", selector, SELECTORS, guarded_selector),
            allocator=parts.part("allocators", allocator, ALLOCATORS, GuardedAllocator),
            allocator_name=allocator,
            validators=(
                *access,
                validators.Holds(),
                *(parts.part("validators", name, VALIDATORS, GuardedValidator) for name in names),
            ),
            hooks={
                kind: parts.part("hooks", hooks.get(kind, kind.value), HOOKS, GuardedHook)
                for kind in SessionType
            },
            queue=group.queue,
            preemption=group.preemption,
            starvation_after_s=group.starvation_after,
            refused=refused,
            made=parts.made,
        )


def missing_parts(spec: ScalingGroup) -> tuple[PluginFault, ...]:
    """The plug-ins that the group names and that cannot be made, for instance because their package
    is gone."""
    parts = [
        *[("validator", name, VALIDATORS) for name in spec.validators],
        ("sequencer", spec.sequencer, SEQUENCERS),
        ("selector", spec.selector, SELECTORS),
        ("allocator", spec.allocator, ALLOCATORS),
        *[("hook", name, HOOKS) for name in spec.hooks.values()],
    ]
    faults = []
    for kind, name, builtin in parts:
        try:
            find(f"{kind}s", name, builtin, spec.options.get(name))
        except MusterError as error:
            faults.append(PluginFault(kind, name, f"cannot be had: {error}"))
    return tuple(faults)


def check_options(spec: ScalingGroup) -> None:
    """
    Raises:
        InvalidSpec: there are options for a part that the group does not use; nobody would read
            them.
    """
    hooks = [spec.hooks.get(kind, kind.value) for kind in SessionType]
    used = dict.fromkeys((*spec.validators, spec.sequencer, spec.selector, spec.allocator, *hooks))
    problems = []
    for name, options in spec.options.items():
        if name not in used:
            near = difflib.get_close_matches(name, used, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            expected = f"expected the name of a part that the group uses ({', '.join(used)}){hint}"
            problems.append(Problem(f"options.{name}", repr(options), expected))
    if problems:
        raise InvalidSpec(problems)


class _Parts:
    """Makes parts, and puts plug-ins that are not built in on a leash."""

    def __init__(self, options: Mapping[str, Mapping[str, Any]], before: _Made) -> None:
        self._options = options
        self._before = before
        self.made: dict[tuple[str, str], tuple[Mapping[str, Any], Any]] = {}

    def part(
        self,
        kind: str,
        name: str,
        builtin: Mapping[str, Callable[..., Any]],
        guard: Callable[[str, Any], Any],
    ) -> Any:
        options = self._options.get(name, {})
        made_with, part = self._before.get((kind, name), (None, None))
        if made_with != options:
            part = find(kind, name, builtin, options)
            if name not in builtin:
                part = guard(name, part)
        self.made[kind, name] = options, part
        return part
