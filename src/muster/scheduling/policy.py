"""How a scaling group places work: its parts, found by the names that its spec gives."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.core.errors import MusterError
from muster.core.specs import ScalingGroup, SessionType
from muster.core.specs.group import PreemptionSpec, QueuePolicy
from muster.scheduling import selectors, sequencers, validators
from muster.scheduling.guard import (
    GuardedHook,
    GuardedSequencer,
    GuardedValidator,
    PluginFault,
    guarded_selector,
)
from muster.scheduling.hooks import BatchHook, InferenceHook, InteractiveHook
from muster.scheduling.plugins import (
    AgentSelector,
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
HOOKS: Mapping[str, Callable[..., SessionHook]] = {
    "interactive": InteractiveHook,
    "batch": BatchHook,
    "inference": InferenceHook,
}


@dataclass(frozen=True, slots=True)
class Policy:
    """The parts of one group's placement.

    Args:
        validators: by name.
        hooks: by the type of session that they are for.
        starvation_after_s: for a session that waited so long, room is kept at any price.
        has_strangers: whether a validator is not built in.
        refused: why plug-ins that the group names do not serve.
    """

    sequencer: SessionSequencer = field(default_factory=sequencers.Fifo)
    selector: AgentSelector = field(default_factory=selectors.Concentrated)
    validators: tuple[SessionValidator, ...] = ()
    hooks: Mapping[SessionType, SessionHook] = field(default_factory=dict)
    queue: QueuePolicy = QueuePolicy.BACKFILL
    preemption: PreemptionSpec | None = None
    starvation_after_s: float = 300.0
    has_strangers: bool = False
    refused: tuple[PluginFault, ...] = ()

    @property
    def needs_running(self) -> bool:
        """Whether passes look at what runs, and when it ends."""
        return self.queue is QueuePolicy.BACKFILL or self.preemption is not None

    @staticmethod
    def of(group: ScalingGroup, refused: tuple[PluginFault, ...] = ()) -> "Policy":
        """The policy that ``group`` names; in place of the ``refused`` plug-ins, built-in parts.

        Raises:
            MusterError: a part of that name is not known, or cannot be made.
        """
        out = {(fault.kind, fault.name) for fault in refused}
        sequencer, selector = group.sequencer, group.selector
        if ("sequencer", sequencer) in out:
            sequencer = "fifo"
        if ("selector", selector) in out:
            selector = "concentrated"
        names = [name for name in group.validators if ("validator", name) not in out]
        hooks = {kind: name for kind, name in group.hooks.items() if ("hook", name) not in out}
        parts = _Parts(group.options)
        return Policy(
            sequencer=parts.part("sequencers", sequencer, SEQUENCERS, GuardedSequencer),
            selector=parts.part("selectors", selector, SELECTORS, guarded_selector),
            validators=tuple(
                parts.part("validators", name, VALIDATORS, GuardedValidator) for name in names
            ),
            hooks={
                kind: parts.part("hooks", hooks.get(kind, kind.value), HOOKS, GuardedHook)
                for kind in SessionType
            },
            queue=group.queue,
            preemption=group.preemption,
            starvation_after_s=group.starvation_after,
            has_strangers=any(name not in VALIDATORS for name in names),
            refused=refused,
        )


def missing_parts(spec: ScalingGroup) -> tuple[PluginFault, ...]:
    """The plug-ins that the group names and that cannot be had, as when their package is gone."""
    parts = [
        *[("validator", name, VALIDATORS) for name in spec.validators],
        ("sequencer", spec.sequencer, SEQUENCERS),
        ("selector", spec.selector, SELECTORS),
        *[("hook", name, HOOKS) for name in spec.hooks.values()],
    ]
    faults = []
    for kind, name, builtin in parts:
        try:
            find(f"{kind}s", name, builtin, spec.options.get(name))
        except MusterError as error:
            faults.append(PluginFault(kind, name, f"cannot be had: {error}"))
    return tuple(faults)


class _Parts:
    """Makes parts, and puts those of strangers on a leash."""

    def __init__(self, options: Mapping[str, Mapping[str, Any]]) -> None:
        self._options = options

    def part(
        self,
        kind: str,
        name: str,
        builtin: Mapping[str, Callable[..., Any]],
        guard: Callable[[str, Any], Any],
    ) -> Any:
        part = find(kind, name, builtin, self._options.get(name))
        return part if name in builtin else guard(name, part)
