"""The texts of each reason for people: its sentence, and its remedy."""

from collections.abc import Mapping

from muster.core.reasons.codes import ReasonCode
from muster.core.reasons.definition import LIMIT as _L
from muster.core.reasons.definition import OPERATOR as _O
from muster.core.reasons.definition import REQUEST as _R
from muster.core.reasons.definition import WAITING as _W
from muster.core.reasons.definition import Definition
from muster.core.reasons.of_deployments import OF_DEPLOYMENTS
from muster.core.reasons.of_health import OF_HEALTH
from muster.core.reasons.of_pools import OF_POOLS
from muster.core.reasons.of_quotas import OF_QUOTAS
from muster.core.reasons.of_recovery import OF_RECOVERY
from muster.core.reasons.of_tasks import OF_TASKS

# Parts of several sentences and remedies: agents that meet the session's rules, its rules for all
# kernels together, agents that take no new work, and sessions that leave to make room for it.
_NONE = "none of {meeting:?the {meeting} of }{agents:agent} in group {group}"
_NONE += "{meeting:? that meet {rules}}"
_TOGETHER = (
    "{meeting:?, on the {meeting} of {agents:agent} that meet {rules}}"
    "{single_node:?, with all of them on one agent (mode: single-node)}"
    "{together:?, with all of them where {together} is the same (together: {together})}"
    "{per_agent:?, with at most {per_agent} on an agent (max_kernels_per_agent: {per_agent})}"
)
_MISSING = "{missing:?; there is no agent {missing}}"
_OPEN = (
    "{barred:? `muster uncordon AGENT` has an agent take work again.}"
    "{isolated:? `muster agents return AGENT` has an isolated agent take work again.}"
    "{healing:? Those that are checked or healed come back by themselves.}"
    "{withheld:? Those of slices take work once these are ready, or go with them.}"
    "{full:? Make room on the disks that are full.}"
    "{silent:? Start those that are silent again.}"
)
_STARTS = "Nothing: it starts {leaving:?when those that make room for it have left}"

CATALOGUE: Mapping[ReasonCode, Definition] = {
    **OF_HEALTH,
    **OF_POOLS,
    **OF_RECOVERY,
    **OF_DEPLOYMENTS,
    **OF_TASKS,
    **OF_QUOTAS,
    ReasonCode.NO_ROOM: Definition(
        _W,
        _NONE + " has {request} free now"
        "{closed:?; no new work goes to {closed} of them ({statuses})}",
        _STARTS + "{leaving:!when running work ends}." + _OPEN,
    ),
    ReasonCode.GANG_NO_ROOM: Definition(
        _W,
        "{placed} of {kernels:kernel} fit in group {group} now" + _TOGETHER + "{closed:?; no new "
        "work goes to {closed} of the agents ({statuses})}; a gang starts whole or not at all",
        _STARTS + "{leaving:!when enough running work ends}." + _OPEN,
    ),
    ReasonCode.AGENTS_FULL: Definition(
        _W,
        "agents of group {group} have what it asks for, but hold as many kernels as they may, "
        "{most} each",
        _STARTS + "{leaving:!when running work ends}. An operator can raise `kernels_per_agent` of "
        "the group.",
    ),
    ReasonCode.PORT_TAKEN: Definition(
        _W,
        "its port {port} is taken{agents:? on {several:?all }{agents:agent} of group {group}}"
        "{some:? that it may use now}{others:?, on {others} by programs that the agents did "
        "not start: of another agent of the machine, or of nobody's}",
        "Nothing: it starts on a machine where the port becomes free. An update with `surge: 0` "
        "stops a replica before it starts another; without `port` one is reserved for each.",
    ),
    ReasonCode.PORT_FOREIGN: Definition(
        _R,
        "its port {port} is in use{agents:? on {several:?all }{agents:agent} of group {group}}"
        "{some:? that it may use now}, by programs that the agents did not start: of another agent "
        "of the machine, or of nobody's",
        "Choose another `port`; without it one is reserved for each. Agents are asked again after "
        "a while.",
    ),
    ReasonCode.BEHIND_STARVING: Definition(
        _W,
        "group {group} keeps its room for a session that has waited longer than {after_s} s",
        _STARTS + "{leaving:!after that one}.",
    ),
    ReasonCode.BEHIND_RESERVATION: Definition(
        _W,
        "would delay the session ahead of it in group {group}, which is to start in {in_s:~}",
        _STARTS + "{leaving:!after that one}. With a `timeout` short enough it would start before.",
    ),
    ReasonCode.STRICT_ORDER: Definition(
        _W,
        "group {group} runs in strict order, and the session ahead of it has no room yet",
        "Nothing: it starts after that one.",
    ),
    ReasonCode.PLUGIN_REFUSED: Definition(
        _O,
        "{kind} {name} of group {group} is not used: it {why}",
        "Mend the plug-in, then write the group again: `muster groups apply FILE`.",
    ),
    ReasonCode.BEHIND_SHAPE: Definition(
        _W,
        "prefilled on agent {agent}: it starts when a kernel of the same shape ends there",
        "Nothing: it is next in line.",
    ),
    ReasonCode.RETRY_BACKOFF: Definition(_W, "the next try is in {seconds} s"),
    ReasonCode.AGENT_UNREACHABLE: Definition(
        _W,
        "agent {agent} has been silent for {silent_s} s; its kernels count as running until "
        "{endless:!their lease ends}{ends_in_s:?, in {ends_in_s} s}"
        "{endless:?it is heard again, or seen gone: beside the controller a lease has no end}",
        "Nothing if it was only cut off, or the controller has just begun: it comes back by "
        "itself. Else start the agent again; if its machine is gone or was rebooted, an "
        "administrator says so with `muster agents remove --lost {agent}`.",
    ),
    ReasonCode.AT_BARRIER: Definition(
        _W,
        "{ready} of {kernels:kernel} of the gang are ready to run; none runs before all of them can"
        "{agent:?, and agent {agent} has not said so yet}",
        "Nothing: it starts when the last is ready, or is placed anew.",
    ),
    ReasonCode.CLEANING_UP: Definition(
        _W, "the processes of the last attempt are not yet confirmed gone on agent {agent}"
    ),
    ReasonCode.LOST_RACE: Definition(_W, "the room it was given was taken meanwhile"),
    ReasonCode.NO_AGENTS: Definition(
        _O,
        "group {group} has no agents",
        "Start one: `muster agent --group {group}`, add a pool, or name another group.",
    ),
    ReasonCode.NO_ALIVE_AGENTS: Definition(
        _O,
        "none of {agents:agent} in group {group} takes new work: {statuses}",
        "Look at `muster agents`." + _OPEN,
    ),
    ReasonCode.NO_AGENT_MEETS: Definition(
        _R,
        "none of {agents:agent} in group {group} meets {rules}" + _MISSING,
        "{nearest:?Did you mean {nearest}? }Ask for what agents have, or leave it out.",
    ),
    ReasonCode.NO_SUCH_AGENTS: Definition(
        _R,
        "group {group} has no agent {missing}",
        "{nearest:?Did you mean {nearest}? }Name agents of the group, or leave `agents` out.",
    ),
    ReasonCode.NEVER_FITS: Definition(
        _R,
        _NONE + " is large enough for {request}, even when empty" + _MISSING,
        "Ask for less per kernel, or add a larger agent{meeting:? that meets that} to the group.",
    ),
    ReasonCode.GANG_NEVER_FITS: Definition(
        _R,
        "only {placed} of {kernels:kernel} would fit in group {group} even if it were empty"
        + _TOGETHER
        + "{most:?, as an agent may hold {most} (kernels_per_agent)}"
        + _MISSING,
        "Ask for fewer or smaller kernels{keys:?, leave out {keys}}, or add"
        "{single_node:? larger} agents{meeting:? that meet that} to the group.",
    ),
    ReasonCode.NEEDS_ABSENT_AGENTS: Definition(
        _O,
        "group {group} could hold it only with agents that take no new work: {closed} of {agents} "
        "({statuses})",
        "Look at `muster agents`." + _OPEN,
    ),
    ReasonCode.SPEC_NOT_KEPT: Definition(
        _L,
        "long values were removed from its spec of {size:=} at {at}, because specs of its owner's "
        "ended work took more than {limit:=}",
        "Hand the work in anew from your own file; an operator may set a larger `ended_specs`.",
    ),
    ReasonCode.OUTPUT_ABOVE_SHARE: Definition(
        _L,
        "{of:?{of}: }its output was removed at {at}, because output of its owner took {used:=} on "
        "its machine, more than the share of {limit:=}, and the oldest goes first",
        "Have less written, or copy output while it is there; an operator may give output more "
        "room (`logs_max_bytes` of the agent).",
    ),
    ReasonCode.OUTPUT_TOO_OLD: Definition(
        _L,
        "{of:?{of}: }its output was removed at {at}, because an agent keeps output for {kept_s:~}",
        "Copy output while it is there: `muster logs --save DIR`.",
    ),
    ReasonCode.OUTPUT_REMOVED: Definition(_L, "its output was removed by its agent"),
    ReasonCode.SCRATCH_ABOVE_SHARE: Definition(
        _L,
        "{of:?{of}: }its scratch directory was removed at {at}, because those of its owner's ended "
        "kernels took {used:=} on its machine, more than the share of {limit:=}, and the oldest "
        "goes first",
        "Have less left there, or copy it while it is there; an operator may give it more room "
        "(`kept_scratch_max_bytes` of the agent).",
    ),
    ReasonCode.SCRATCH_TOO_OLD: Definition(
        _L,
        "{of:?{of}: }its scratch directory was removed at {at}, because an agent keeps it for "
        "{kept_s:~}",
        "Copy what is to be kept while it is there.",
    ),
    ReasonCode.DEPENDENCY_NOT_MET: Definition(
        _W, "waits until {on} {condition}; it is {state}", "Nothing: it starts after that."
    ),
    ReasonCode.DEPENDENCY_FAILED: Definition(
        _R,
        "waits until {on} {condition}, which can no longer be: it ended without success",
        "Run {on} again and hand this in anew, or make it depend on {on}:ended.",
    ),
    ReasonCode.DEPENDENCY_MISSING: Definition(
        _R,
        "waits until {on} {condition}, and there is no such job or session",
        "Check the name in `after`, or hand in {on} first.",
    ),
    ReasonCode.DEPENDENCY_NOT_HEALTHY: Definition(
        _W,
        "deployment {on} is not healthy yet: {healthy} of {wanted} replicas",
        "Nothing: it starts after that. `muster why {on}` tells what {on} lacks.",
    ),
    ReasonCode.DEPENDENCY_TAKEN_DOWN: Definition(
        _R,
        "waits until deployment {on} is healthy, which can no longer be: it was taken down",
        "Deploy {on} again, and hand this in anew.",
    ),
    ReasonCode.NO_ADDRESS_YET: Definition(
        _W,
        "it uses deployment {on}, whose address is not known: no proxy that its machine reaches "
        "reports to the controller",
        "Nothing if a proxy is about to start. `muster doctor` tells what became of it.",
    ),
    ReasonCode.BEFORE_START_TIME: Definition(_W, "starts not before {moment}"),
    ReasonCode.NO_GROUP_ACCESS: Definition(
        _R,
        "group {group} takes no work of project {project}",
        "Name another group, or ask an operator for access to this one.",
    ),
    ReasonCode.LACKS_FREE: Definition(
        _W, "{resource}: {requested:=} asked, {free:=} of {capacity:=} free"
    ),
    ReasonCode.LACKS_CAPACITY: Definition(
        _R, "{resource}: {requested:=} asked, the agent has {capacity:=}"
    ),
    ReasonCode.NO_SINGLE_DEVICE: Definition(
        _W, "gpu: {requested:=} of one device asked, the freest device has {free:=}"
    ),
    ReasonCode.LACKS_FOR_ALL: Definition(
        _W, "room for {fit} of {kernels:kernel}, which have to be {where}"
    ),
    ReasonCode.AGENT_NOT_ALIVE: Definition(_O, "the agent is {status}"),
    ReasonCode.CONSTRAINT_NOT_MET: Definition(
        _R,
        "{asked} asked, {attribute} is {has}{others:? ({others:other value} on the others)}",
        "Ask for what agents have, or leave it out.",
    ),
    ReasonCode.NOT_DESIGNATED: Definition(
        _R, "it is not one of the designated agents", "Name it, or set agents_only: false."
    ),
    ReasonCode.AGENT_UNFIT: Definition(
        _R, "it said that it cannot run this", "`muster history` has what it said."
    ),
    ReasonCode.EXITED: Definition(_R, "exited with code {exit_code}{told:?: {told}}"),
    ReasonCode.SIGNALED: Definition(_R, "ended by signal {signal}{told:?: {told}}"),
    ReasonCode.OUT_OF_MEMORY: Definition(
        _R, "killed for using more memory than it asked for", "Ask for more memory."
    ),
    ReasonCode.COMMAND_NOT_FOUND: Definition(
        _R, "command not found: {detail}", "Check the command and PATH on the agent."
    ),
    ReasonCode.COMMAND_NOT_EXECUTABLE: Definition(
        _R, "command cannot be executed: {detail}", "Check its permissions and format."
    ),
    ReasonCode.TIMEOUT: Definition(
        _R, "ran longer than its timeout of {timeout_s} s", "Raise `timeout`, or do less."
    ),
    ReasonCode.LEASE_EXPIRED: Definition(
        _O, "stopped by its agent, which had not heard from the controller for {lease_s} s"
    ),
    ReasonCode.AGENT_LOST: Definition(
        _O, "agent {agent} was silent until the kernel's lease ran out"
    ),
    ReasonCode.AGENT_GIVEN_UP: Definition(
        _O, "the machine of agent {agent} is gone or was rebooted, says {by}"
    ),
    ReasonCode.AGENT_REBOOTED: Definition(_O, "the machine of agent {agent} rebooted"),
    ReasonCode.SUPERVISOR_LOST: Definition(
        _O, "the process that held the kernel on agent {agent} died"
    ),
    ReasonCode.KERNEL_VANISHED: Definition(_O, "agent {agent} no longer knows the kernel"),
    ReasonCode.NEVER_STARTED: Definition(_W, "taken back before it started"),
    ReasonCode.STOPPED: Definition(_W, "stopped on request: {detail}"),
    ReasonCode.STOP_UNCONFIRMED: Definition(
        _O,
        "agent {agent} was told to stop kernel {index}, and has not reported its end",
        "Look at the process there: it may wait for a disk or a driver. Its room stays charged.",
    ),
    ReasonCode.WORKDIR_MISSING: Definition(
        _R,
        "the working directory cannot be entered on agent {agent}: {detail}",
        "Create it there, let the user enter it as whom the work runs, or change workdir.",
    ),
    ReasonCode.BAD_FILE_PATH: Definition(_R, "a file's path leaves the directory: {detail}"),
    ReasonCode.DISK_FULL: Definition(_O, "the disk of agent {agent} is full: {detail}"),
    ReasonCode.NO_PROCESSES: Definition(_O, "agent {agent} cannot start another process: {detail}"),
    ReasonCode.NO_PORTS: Definition(_O, "agent {agent} has no free port: {detail}"),
    ReasonCode.PORT_IN_USE: Definition(
        _W,
        "port {port} is in use on the machine of agent {agent}",
        "Nothing: other agents are tried, and this one again after a while.",
    ),
    ReasonCode.VARIABLES_NOT_USED: Definition(
        _R,
        "its values of {names} are not used: Muster sets {several:?them}{several:!it} for each "
        "kernel",
        "Leave {several:?them}{several:!it} out of `env`; the command may set another value by "
        "itself.",
    ),
    ReasonCode.CREATE_FAILED: Definition(_O, "agent {agent} could not start it: {detail}"),
    ReasonCode.CANCELLED: Definition(_W, "cancelled by {by}{forced:?, with force}"),
    ReasonCode.PREEMPTED: Definition(
        _W, "displaced by work of priority {priority}; it goes back to the queue"
    ),
    ReasonCode.PREEMPTED_FOR_GOOD: Definition(_W, "ended for work of priority {priority}"),
    ReasonCode.DRAINED: Definition(
        _O, "agent {agent} was drained{note:? ({note})} and its time to leave was over"
    ),
    ReasonCode.TO_LEAVE: Definition(
        _O,
        "agent {agent} is being drained{note:? ({note})}: what still runs there in {in_s:~} "
        "is stopped",
        "Nothing: the tasks of jobs start again on another agent.",
    ),
    ReasonCode.SCHEDULING_TIMEOUT: Definition(
        _R,
        "not started within its scheduling timeout of {timeout_s} s",
        "Look at the reasons before it in `muster history`.",
    ),
    ReasonCode.RESCHEDULE_LIMIT: Definition(
        _O,
        "could not be started on {tried:placement}; the last: {how}",
        "Look at `muster history` and at those agents.",
    ),
    ReasonCode.NO_AGENT_ABLE: Definition(
        _R,
        "no agent can run it, each has said why; the last: {how}",
        "Mend what they say, then hand it in again.",
    ),
    ReasonCode.PHASE_EXPIRED: Definition(_O, "{phase} took longer than {timeout_s} s"),
    ReasonCode.PHASE_GAVE_UP: Definition(_O, "{phase} failed {tries:time}: {how}"),
    ReasonCode.HANDLER_ERROR: Definition(
        _O, "{handler} raised {error}", "This is a defect of Muster; please report it."
    ),
    ReasonCode.REPRIORITISED: Definition(_W, "priority {before} → {after}, by {by}"),
    ReasonCode.SETTING_CHANGED: Definition(
        _W, "by {by:?{by}}{by:!the controller}{changes:?: }{changes:>}"
    ),
    ReasonCode.AGENT_JOINED: Definition(_W, "joined group {group}"),
    ReasonCode.AGENT_SILENT: Definition(_O, "silent for {silent_s} s"),
    ReasonCode.AGENT_RETURNED: Definition(_W, "speaks again"),
    ReasonCode.AGENT_OFFERS_OTHER: Definition(_W, "its machine has changed: {changes:>}"),
    ReasonCode.AGENT_REMOVED: Definition(_W, "removed by {by}"),
    ReasonCode.AGENT_REMOVED_AS_LOST: Definition(
        _W, "removed by {by}, who says that its machine is gone or was rebooted"
    ),
    ReasonCode.AGENT_REPLACED: Definition(_W, "another machine has its name now, as {by} allowed"),
    ReasonCode.AGENT_BARRED: Definition(
        _O,
        "{bar}{by:? by {by}}{note:? ({note})}: it takes nothing new",
        "`muster uncordon {agent:!AGENT}{agent:?{agent}}` has it take work again.",
    ),
    ReasonCode.AGENT_UNBARRED: Definition(_W, "takes work again, says {by}"),
    ReasonCode.DISK_LIMIT: Definition(
        _R,
        "killed for keeping more in its scratch directory than it may: {detail}",
        "Ask for more `disk`, or keep less there.",
    ),
    ReasonCode.NO_ACCOUNT: Definition(
        _O,
        "agent {agent} has no account for its owner: {detail}",
        "Map the user to an account of that machine: `muster agent --map-user USER=ACCOUNT`.",
    ),
    ReasonCode.UID_CLASH: Definition(
        _O,
        "its owner cannot have its uid of this cluster on agent {agent}: {detail}",
        "Free the uid on that machine, or map the user to an account of it: "
        "`muster agent --map-user USER=ACCOUNT`.",
    ),
    ReasonCode.NO_UID: Definition(
        _O,
        "its owner has no uid on agent {agent}: {detail}",
        "Start the controller with a larger --uid-range, or map the user to an account of that "
        "machine: `muster agent --map-user USER=ACCOUNT`.",
    ),
    ReasonCode.NOTICE_REFUSED: Definition(
        _R,
        "the channel did not take the notice, it answered {answer}",
        "Check the channel's URL.",
    ),
    ReasonCode.NOTICE_UNREACHABLE: Definition(
        _O, "the channel could not be reached from the controller's machine"
    ),
    ReasonCode.NOTICE_TIMED_OUT: Definition(_O, "the channel did not answer within {timeout_s} s"),
    ReasonCode.NOTICE_FORBIDDEN: Definition(
        _R,
        "nothing may be sent there: {detail}",
        "An operator can allow it in notices.yaml.",
    ),
    ReasonCode.NOTICE_NOT_UNDERSTOOD: Definition(
        _R,
        "the channel's URL is not as its service wants it",
        "See the service's page at https://appriseit.com.",
    ),
    ReasonCode.NOTICES_NOT_INSTALLED: Definition(
        _O,
        "the controller has no library to send notices with",
        "Install it there: pip install 'muster-scheduler[notices]'.",
    ),
    ReasonCode.NOTICE_UNKNOWN: Definition(
        _O, "nothing was heard for {waited_s} s of what became of the notice"
    ),
    ReasonCode.NOTICES_TOO_MANY: Definition(
        _R,
        "{waiting} notices of its owner were waiting already",
        "Tell the end of fewer jobs, or look at what their channels answer.",
    ),
    ReasonCode.FOREIGN_REPORT: Definition(
        _O,
        "reported kernel {kernel}, which is on agent {agent}; that was not believed",
        "Remove the agent, unless it is known why it says so.",
    ),
}
