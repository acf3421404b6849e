"""The texts of reasons of deployments and routes: why a replica is made, or taken away."""

from collections.abc import Mapping

from muster.core.reasons.codes import ReasonCode
from muster.core.reasons.definition import LIMIT as _L
from muster.core.reasons.definition import OPERATOR as _O
from muster.core.reasons.definition import REQUEST as _R
from muster.core.reasons.definition import WAITING as _W
from muster.core.reasons.definition import Definition

_FOUND = "{found:?: {found}}"
_UNDO = "`muster rollout undo {deployment:?{deployment}}{deployment:!NAME} --to {revision}`"
"""The command that tries a revision again; stored reasons may lack the name."""
_LOOK = (
    "{by_command:?Look why its probe.command fails}"
    "{by_command:!Look whether its program listens on PORT and answers the probe}"
)
"""The remedy for probes that are bad; stored reasons may lack how they were made."""

OF_DEPLOYMENTS: Mapping[ReasonCode, Definition] = {
    ReasonCode.ROUTE_STARTS: Definition(_W, "its session is {status}"),
    ReasonCode.ROUTE_NOT_TAKEN: Definition(
        _R, "its session is refused: {how}", "Change the deployment: `muster deploy FILE`."
    ),
    ReasonCode.ROUTE_QUOTA: Definition(
        _L, "a replica's session is not taken yet: {how}", "It is tried again by itself."
    ),
    ReasonCode.ROUTE_ENDED: Definition(
        _R,
        "session {session} ended{how:?: {how}}",
        "`muster logs {session}` shows what it wrote.",
    ),
    ReasonCode.ROUTE_NEVER_GOOD: Definition(
        _R,
        f"no probe was good within {{after_s:~}} of its start{_FOUND}",
        f"{_LOOK}; or set a longer probe.start_timeout.",
    ),
    ReasonCode.ROUTE_NOT_PROBED: Definition(_W, "it was not probed yet"),
    ReasonCode.ROUTE_NOT_YET_GOOD: Definition(
        _W,
        f"it is not healthy yet: {{streak:bad probe}} in a row{_FOUND}; {{limit_s:~}} after its "
        "start it counts as failed",
        f"It may still be starting. {_LOOK}: `muster logs {{route}}`.",
    ),
    ReasonCode.ROUTE_BAD: Definition(
        _R,
        f"{{streak:bad probe}} in a row{_FOUND}",
        f"{_LOOK}{{route:?: `muster logs {{route}}`}}.",
    ),
    ReasonCode.ROUTE_PORT_TAKEN: Definition(
        _O,
        "{who} listens on its port {port}: it gets no requests",
        "It is replaced, with another port where it has none of its own. The log of the machine's "
        "agent names the account.",
    ),
    ReasonCode.ROUTE_PORT_UNSEEN: Definition(
        _W,
        "probes are good, but its agent does not see it listen on its port {port}",
        "Its program has to listen on the machine's own network, as the account of its kernel or "
        "as root: `muster logs {route}`.",
    ),
    ReasonCode.ROUTE_STALE: Definition(
        _O,
        "no probe of it was completed for {after_s:~}: nothing is known of its health",
        "Look whether the controller is overloaded; traffic goes on as before.",
    ),
    ReasonCode.ROUTE_OUT_OF_SIGHT: Definition(
        _O,
        "the controller's probes reach {unreached} of {machines:machine} no more: nothing is known "
        "of its health",
        "Look at the network of the controller's machine; traffic goes on as before, and nobody is "
        "replaced.",
    ),
    ReasonCode.ROUTE_SEEN_BY_AGENT: Definition(
        _O,
        "its agent probes it, because the controller's probes do not reach its machine: {found}",
        "Look whether balancers and proxies reach it; set probe.side to controller if only what is "
        "reached from there is to get traffic.",
    ),
    ReasonCode.ROUTE_AGENT_CANNOT_PROBE: Definition(
        _O,
        "its agent is to probe it, and is of a version that cannot",
        "Update the agent, or probe it in another way: with probe.side auto, and no probe.command.",
    ),
    ReasonCode.ROUTE_EVICTED: Definition(
        _W, f"it is replaced, because it was unhealthy for {{after_s:~}}{_FOUND}"
    ),
    ReasonCode.ROUTE_NOT_NEEDED: Definition(_W, "it is not needed any more"),
    ReasonCode.REPLACEMENT_FIRST: Definition(
        _W,
        "a replica of deployment {deployment} leaves once another is available elsewhere, or after "
        "a minute without room for one",
    ),
    ReasonCode.REPLACEMENT_PAUSED: Definition(
        _W,
        "a replica of deployment {deployment} stays, because its roll-out is paused: it is "
        "replaced once that goes on, and no deadline was given to leave the machine",
        "`muster rollout resume {deployment}` has it go on; a drain with a deadline does not "
        "wait for it.",
    ),
    ReasonCode.DISRUPTION_EXHAUSTED: Definition(
        _W,
        "deployment {deployment} can spare no replica: {serving} of {wanted} serve, and its "
        "disruption is {disruption}{paused:?; its roll-out is paused}"
        "{endless:?; no deadline was given to leave the machine}"
        "{in_s:?; in {in_s:~} it may keep none any more}",
        "It goes on once another replica is healthy: `muster why {deployment}`. Without a deadline "
        "of the drain it waits for that as long as it takes.",
    ),
    ReasonCode.DEPLOYMENT_STARTS_AGAIN: Definition(
        _W,
        "{failed:replica} in a row did not become healthy, or not for long{how:?: {how}}"
        "{in_s:?; the next is tried in {in_s:~}}",
        "{route:?`muster logs {route}` shows what the last of them wrote.}",
    ),
    ReasonCode.DEPLOYMENT_NEVER_HEALTHY: Definition(
        _R,
        "{failed:replica} did not become healthy, and no more are tried{how:?: {how}}",
        "{route:?`muster logs {route}` shows what the last of them wrote. }Mend the program or the "
        "probe, and hand the deployment in again.",
    ),
    ReasonCode.DEPLOYMENT_REPLICAS_DIFFER: Definition(
        _W, "it has {up:replica} and wants {wanted}: {create} to make, {remove} to take away"
    ),
    ReasonCode.DEPLOYMENT_ROUTES_LEFT: Definition(_W, "{left:route} are still being stopped"),
    ReasonCode.ROLLOUT_UNDER_WAY: Definition(
        _W,
        "revision {revision} is rolled out: {available} of {wanted:replica} are available"
        "{paused:?, and it is paused}",
        "{paused:?`muster rollout resume {deployment}` has it go on.}",
    ),
    ReasonCode.ROLLOUT_STARTS_FAILED: Definition(
        _R,
        "revision {revision} was given up: {failed:replica} of it did not become healthy"
        "{how:?: {how}}; revision {stable} serves",
        "Mend it, and change the deployment; or, where the mistake was outside it, have the "
        f"revision tried again: {_UNDO}.",
    ),
    ReasonCode.ROLLOUT_TOO_SLOW: Definition(
        _R,
        "revision {revision} was given up: no further replica of it became available within "
        "{deadline_s:~}{how:?: {how}}; revision {stable} serves",
        "Mend it and change the deployment, such as by a longer update.progress_deadline; or, "
        f"where the mistake was outside it, have the revision tried again: {_UNDO}.",
    ),
    ReasonCode.ROLLOUT_NO_ROOM: Definition(
        _W,
        "revision {revision} was given up: there was no room for a further replica of it within "
        "{deadline_s:~}{how:?: {how}}; revision {stable} serves",
        "Make room, have it take the place of the former replicas by update.surge 0, or wait "
        f"longer by update.progress_deadline; the revision is tried again by {_UNDO}.",
    ),
    ReasonCode.ROLLOUT_ERRORS: Definition(
        _R,
        "revision {revision} was given up: {rate} % of its {requests:request} failed, more "
        "than {limit} %; revision {stable} serves",
        "Mend it and change the deployment.",
    ),
    ReasonCode.SCALED_BY_LOAD: Definition(
        _W, "{before} → {after} replicas ({how}): {load} {metric}, {target} a replica are aimed at"
    ),
    ReasonCode.ACCESS_AT_PROXY_ALONE: Definition(
        _O,
        "on {open} of {machines:machine} of group {group} its access holds at the proxy alone: "
        "kernels of other users there reach the port of a replica on their machine",
        "Run those agents as root with nftables installed, keep the deployment to machines that "
        "have it (`constraints: [ports=nftables]`), or have its program check the header "
        "Muster-Secret against MUSTER_SECRET.",
    ),
    ReasonCode.ACCESS_UNKNOWN: Definition(
        _R,
        "access names {who}: unknown in domain {domain}",
        "Look whether the names are right; whoever is added later gets in then.",
    ),
    ReasonCode.DEPLOYMENT_HANDED_IN: Definition(
        _W, "{by} hands it in, as revision {revision}{changed:?: {changed}}"
    ),
    ReasonCode.DEPLOYMENT_SCALED_BY: Definition(_W, "{by} scales it: {before} → {after:replica}"),
    ReasonCode.ROLLOUT_UNDONE_BY: Definition(
        _W,
        "{by} goes back to revision {of}{revision:?, as revision {revision}}"
        "{given_up:?; revision {given_up}, which was given up, is not wished any more}",
    ),
    ReasonCode.ROLLOUT_PAUSED_BY: Definition(_W, "{by} pauses the update to revision {revision}"),
    ReasonCode.ROLLOUT_RESUMED_BY: Definition(
        _W, "{by} has the update to revision {revision} go on"
    ),
    ReasonCode.ROLLOUT_BEGUN: Definition(_W, "revision {before} → {revision}"),
}
