"""Texts of the reasons that pools and slices have: why no machine is made, or deleted."""

from collections.abc import Mapping

from muster.core.reasons.codes import ReasonCode
from muster.core.reasons.definition import OPERATOR as _O
from muster.core.reasons.definition import REQUEST as _R
from muster.core.reasons.definition import WAITING as _W
from muster.core.reasons.definition import Definition

OF_POOLS: Mapping[ReasonCode, Definition] = {
    ReasonCode.POOL_RULE_UNMET: Definition(
        _R,
        "machines of pool {pool} do not meet {rule}{has:?: they have {has}}{lacks:?: they have no "
        "such attribute}",
        "Ask for what machines of a pool have, or leave it out.",
    ),
    ReasonCode.POOL_NOT_DESIGNATED: Definition(
        _R,
        "it may only use agents that it names, and those of pool {pool} have no names yet",
        "Leave `agents` out, or set agents_only: false.",
    ),
    ReasonCode.POOL_NO_DEVICE: Definition(
        _R, "machines of pool {pool} have no GPU", "Ask for none, or add a pool with GPUs."
    ),
    ReasonCode.POOL_OTHER_DEVICE: Definition(
        _R,
        "machines of pool {pool} have {has}, not {wanted}",
        "Ask for a model that a pool has, or for any.",
    ),
    ReasonCode.POOL_PORT_IN_USE: Definition(
        _R,
        "on machines of pool {pool} a program that is no kernel has port {port}",
        "Choose another `port`; without it one is reserved for each. A machine of the pool is made "
        "and asked again after a while.",
    ),
    ReasonCode.POOL_TOO_SMALL: Definition(
        _R,
        "{resource}: {requested:=} asked, a machine of pool {pool} has {capacity:=}",
        "Ask for less per kernel, or add a pool of larger machines.",
    ),
    ReasonCode.POOL_GANG_UNFIT: Definition(
        _R,
        "{placed} of {kernels:kernel} fit on {slices:new slice} of pool {pool}, and more slices do "
        "not help",
        "Ask for fewer or smaller kernels, or for less to be together.",
    ),
    ReasonCode.POOL_AT_MAX: Definition(
        _W,
        "pool {pool} makes no more: it has {slices} of at most {max_slices:slice}",
        "Work starts when other work ends, or sooner if an operator raises `max_slices` of the "
        "pool.",
    ),
    ReasonCode.POOL_GANG_TOO_LARGE: Definition(
        _W,
        "{placed} of {kernels:kernel} fit if pool {pool} gets the {more:slice} that it may get "
        "still",
        "It starts when enough running work ends, or sooner if it asks for fewer or smaller "
        "kernels, or an operator raises `max_slices` of the pool.",
    ),
    ReasonCode.GANG_OUT_OF_REACH: Definition(
        _R,
        "it asks for {kernels:kernel} of {request} at the same time"
        "{single_node:?, on one agent (mode: single-node)}"
        "{together:?, where {together} is the same (together: {together})}, and group {group} can "
        "never hold {placed:?more than {placed}}{placed:!one}"
        "{machines:?: its pools may have {machines:machine} at most that hold such a kernel}"
        "{ceiling:?, by its max_{ceiling} of {limit:=}}"
        "{own:?; its other agents hold {own}}",
        "Ask for fewer or smaller kernels. An operator can raise "
        "{ceiling:?`max_{ceiling}` of the group}{ceiling:!`max_slices` of a pool}, or add larger "
        "machines.",
    ),
    ReasonCode.POOL_PROBED: Definition(
        _W,
        "slices of pool {pool} failed: one at a time is made, until one is ready",
    ),
    ReasonCode.POOL_PAUSED: Definition(
        _O, "pool {pool} is paused", "`muster pools resume {pool}` has it make machines again."
    ),
    ReasonCode.POOL_DELETING: Definition(_O, "pool {pool} is being deleted"),
    ReasonCode.GROUP_AT_CEILING: Definition(
        _W,
        "a slice of pool {pool} would bring group {group} above its max_{what} of "
        "{limit:=}{hourly:? an hour}: {used:=} + {more:=}",
        "Work starts when other work ends, or sooner if an operator raises `max_{what}` of the "
        "group.",
    ),
    ReasonCode.POOL_STOCKED_OUT: Definition(
        _W,
        "pool {pool} asks again in {in_s:~}: its provider has no such machines now{told:?: {told}}",
    ),
    ReasonCode.POOL_OUT_OF_QUOTA: Definition(
        _O,
        "pools of quota {quota_key} ask again in {in_s:~}: it is used up{told:?: {told}}",
        "Have the provider raise the quota.",
    ),
    ReasonCode.POOL_THROTTLED: Definition(
        _W,
        "pool {pool} asks again in {in_s:~}: its provider takes requests more slowly"
        "{told:?: {told}}",
    ),
    ReasonCode.POOL_CREDENTIALS: Definition(
        _O,
        "the provider of pool {pool} refuses its credentials{told:?: {told}}",
        "Mend them; it is tried again in {in_s:~}, and at once after `muster pools resume {pool}`.",
    ),
    ReasonCode.POOL_BAD_REQUEST: Definition(
        _O,
        "the provider of pool {pool} does not understand its settings{told:?: {told}}",
        "Mend them and apply the pool again; it is tried again in {in_s:~}.",
    ),
    ReasonCode.POOL_BACKING_OFF: Definition(
        _O,
        "pool {pool} asks again in {in_s:~}, after {failures:failed request}{told:?: {told}}",
    ),
    ReasonCode.POOL_BREAKER: Definition(
        _O,
        "{silent} of {machines:machine} of pool {pool} are silent or unknown at once: nothing of "
        "it is made or deleted{was_paused:?; it was paused before}",
        "Look at the network and the provider, then `muster pools resume {pool}`.",
    ),
    ReasonCode.WAITS_FOR_SLICE: Definition(
        _W,
        "waits for slice {slice} of pool {pool}, which is {status}, {for_s:~} after it was asked "
        "for{usual_s:?, usually {usual_s:~} in all}{others:?, and for {others} more}",
        "Nothing: it starts once the slice is READY.",
    ),
    ReasonCode.BEHIND_PROMISE: Definition(
        _W,
        "group {group} keeps the room for work to which it was promised: its machines are coming",
        "Nothing: it starts after that work, or on machines of its own.",
    ),
    ReasonCode.POOL_FAILED_BEFORE: Definition(
        _O,
        "pool {pool} tries once more, after {failures:failed request}{told:?, the last with: "
        "{told}}",
        "Look at what the provider says, and at the machine's own log; `muster history {pool}` has "
        "more.",
    ),
    ReasonCode.POOL_HEARD: Definition(_W, "all of its machines are heard again"),
    ReasonCode.POOL_MAKES_AGAIN: Definition(
        _W, "slice {slice} is ready, after {failures:failed request}"
    ),
    ReasonCode.POOL_ORPHANS: Definition(
        _W, "deletes {machines:machine} of slice {slice}, which is not known here"
    ),
    ReasonCode.POOL_SHAPE: Definition(
        _O,
        "machines of pool {pool} report {reported:=} {resource}, and it declares {declared:=}: "
        "what they report counts",
        "Write what they report into the pool's `machine`.",
    ),
    ReasonCode.POOL_REPLACES_NO_MORE: Definition(
        _O,
        "slices of the present revision fail, so no more of former ones are replaced: {told}",
        "Mend the pool, apply it, and `muster pools replace {pool}` again.",
    ),
    ReasonCode.POOL_CHANGED_BY: Definition(_W, "{by} {what} it{changes:?: {changes:>}}"),
    ReasonCode.SLICE_FOR_DEMAND: Definition(
        _W, "work waits that asks for {asks}{kernels:? in each of {kernels:kernel}}"
    ),
    ReasonCode.SLICE_FOR_MIN: Definition(_W, "pool {pool} is to have at least {min_slices:slice}"),
    ReasonCode.SLICE_FOR_BUFFER: Definition(
        _W, "pool {pool} keeps {buffer_slices:idle slice} ready"
    ),
    ReasonCode.PROVIDER_REFUSED: Definition(
        _O, "provider {provider} did not make it ({outcome}){told:?: {told}}"
    ),
    ReasonCode.PROVIDER_FAILED: Definition(_O, "provider {provider}: {told}"),
    ReasonCode.PROVIDER_SILENT: Definition(_O, "its provider did not answer within {timeout_s:~}"),
    ReasonCode.SLICE_TRIED_AGAIN: Definition(
        _O,
        "slice {slice} was asked for {tries:time}, and is not made yet: {how}; it is asked for "
        "{in_s:?again in {in_s:~}}{in_s:!at this moment}",
        "Look at what the provider says: `muster history {slice}` has all of it.",
    ),
    ReasonCode.SLICE_NOT_MADE: Definition(_O, "its provider made nothing within {timeout_s:~}"),
    ReasonCode.SLICE_NOT_BOOTED: Definition(
        _O,
        "{joined} of its {machines:machine} joined within {timeout_s:~}{told:?; {machine}: {told}}",
        "Look at the machine's own log, and whether it reaches the controller.",
    ),
    ReasonCode.SLICE_NOT_JOINED: Definition(
        _O,
        "{joined} of its {machines:machine} are there after {timeout_s:~} more"
        "{told:?; {machine}: {told}}",
        "Look at the other machines' own logs.",
    ),
    ReasonCode.SLICE_MACHINE_REFUSES: Definition(
        _O,
        "its machine {machine} has not joined: {told}",
        "Mend the cause of these words, which are of the machine or its provider.",
    ),
    ReasonCode.SLICE_MISMATCH: Definition(
        _O,
        "agent {agent} has {has}, and its pool declares {declared}: what it reports counts",
        "Mend the machine's driver, or the pool's `machine`.",
    ),
    ReasonCode.SLICE_SILENT: Definition(
        _O,
        "its machine {machine} has been silent for {silent_s:~}"
        "{others:?, and so have been {others} more}: "
        "{held:?nothing is replaced while pool {held} stands still}"
        "{gone:?the slice is replaced if the next list of its provider lacks the machine, too}"
        "{in_s:?the slice is replaced in {in_s:~} unless it is heard again}"
        "{endless:?the slice is replaced once its provider lists it no more}",
        "Nothing if it was only cut off: it comes back by itself. `muster slices delete {slice}` "
        "replaces the slice at once.",
    ),
    ReasonCode.SLICE_MACHINE_GONE: Definition(
        _O, "its machine {machine} is silent, and its provider has it no more"
    ),
    ReasonCode.SLICE_MACHINE_DEAD: Definition(
        _O, "its machine {machine} has been silent for {silent_s:~}, though its provider lists it"
    ),
    ReasonCode.SLICE_TAKEN_AWAY: Definition(
        _W, "its provider takes machine {machine} away in {in_s:~}"
    ),
    ReasonCode.SLICE_DELETED_BY: Definition(_W, "{by} deletes it"),
    ReasonCode.SLICE_GIVEN_UP: Definition(_W, "{by} vouches that its machines are off for good"),
    ReasonCode.SLICE_POOL_DELETED: Definition(_W, "its pool is deleted by {by}"),
    ReasonCode.SLICE_OUTDATED: Definition(
        _W, "it is of revision {revision}, and its pool of {now}: it is replaced"
    ),
    ReasonCode.SLICE_CONSOLIDATED: Definition(
        _W,
        "its {sessions:session} can run elsewhere, which saves {saving} % of what these machines "
        "cost{price:?: {price:=} an hour}",
    ),
    ReasonCode.SLICE_HELD_BY: Definition(_W, "{by} {what} it"),
    ReasonCode.AGENT_WITHHELD: Definition(_W, "{why}: it takes nothing new"),
    ReasonCode.AGENT_SLICE_GONE: Definition(_W, "slice {slice} of pool {pool} is gone"),
    ReasonCode.SLICE_BUSY: Definition(_W, "work runs on it"),
    ReasonCode.SLICE_PROMISED: Definition(_W, "it is promised to {sessions:waiting session}"),
    ReasonCode.SLICE_HELD: Definition(
        _W, "{by} holds it", "`muster slices release {slice}` lets it go."
    ),
    ReasonCode.SLICE_AWAITED: Definition(
        _W,
        "{job} recovers, and waits for a machine of it, for {in_s:~} more at most",
        "Nothing: it may go once that job runs again, or waits no longer.",
    ),
    ReasonCode.SLICE_ISOLATED: Definition(
        _O,
        "machine {agent} of it is isolated",
        "`muster agents return {agent}` has it take work again, `muster slices delete {slice}` has "
        "it go.",
    ),
    ReasonCode.SLICE_AT_MIN: Definition(
        _W, "pool {pool} has {slices:slice}, and keeps at least {min_slices}"
    ),
    ReasonCode.SLICE_IN_BUFFER: Definition(
        _W, "pool {pool} keeps {buffer_slices:idle slice} ready for the next demand"
    ),
    ReasonCode.SLICE_IDLE: Definition(_W, "idle for {idle_s:~}; it is deleted in {in_s:~}"),
    ReasonCode.SLICE_IDLE_TOO_LONG: Definition(_W, "idle for {idle_s:~}"),
}
