"""The environment of kernels, and the template from which agents start them. Pure functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.core.host_port import joined
from muster.core.ids import AgentId
from muster.core.serving.health_command import SCRIPT, SCRIPT_FILE, VARIABLE
from muster.core.specs.matrix import Point, filled, variables
from muster.core.specs.session import KernelSpec, Stderr
from muster.core.specs.variables import TORCHRUN_RANK, amounts, threads, torchrun
from muster.core.uids import ClusterUid
from muster.store.records import Agent, Kernel, Session
from muster.wire.messages import KernelTemplate, Prepare

MAX_HOSTS_BYTES = 16 * 1024
"""The longest ``MUSTER_HOSTS``. Each machine of a gang gets it, and Linux starts no program with a
variable longer than 128 KiB."""
HOSTS_FILE = "muster-hosts"
SERVICE_SHAPE = "service"


def is_gang(session: Session) -> bool:
    """Whether the kernels get the variables of a gang. A gang of one kernel gets them too, so that
    its program runs unchanged with any number of tasks."""
    return len(session.kernels) > 1 or (session.job is not None and session.job.spec.coscheduled)


def ports_needed(kernel: Kernel) -> int:
    """The number of ports that the agent reserves: the spec's, and one more for the first kernel of
    a gang, where the others meet it."""
    meeting = 1 if is_gang(kernel.session) and kernel.index == 0 else 0
    return kernel.process.ports + meeting


def fixed_port(kernel: Kernel) -> int | None:
    """The port on which the kernel's program listens by itself, if it has one."""
    process = kernel.process
    return process.port if isinstance(process, KernelSpec) else None


def needs_preparation(kernel: Kernel) -> bool:
    """Whether the agent has to get the kernel ready before it starts it."""
    return ports_needed(kernel) > 0 or fixed_port(kernel) is not None


def preparation(kernel: Kernel) -> Prepare:
    """The command by which the agent gets the kernel ready."""
    return Prepare(kernel.id, kernel.generation, ports_needed(kernel), fixed_port(kernel))


def keeps_result(session: Session) -> bool:
    """Whether what a kernel of the session wrote to $MUSTER_RESULT is kept: of a service its
    verdict, and of a task with parameters what came of them."""
    job = session.job
    return session.service is not None or (job is not None and job.spec.matrix is not None)


def has_own_command(kernel: Kernel) -> bool:
    """Whether command or environment tell the values of the kernel's task."""
    job = kernel.session.job
    return job is not None and job.spec.has_placeholders


def point_of(kernel: Kernel) -> Point:
    """The values of the parameters of the kernel's task, if it has any."""
    job, index = kernel.session.job, kernel.task_index
    return {} if job is None or index is None else job.spec.point(index)


@dataclass(frozen=True, slots=True, eq=False)
class Gang:
    """The facts that the kernels of one placed session know of each other.

    Args:
        shared: variables that are the same for all kernels.
        hosts: the kernels' hosts by rank, one a line, where the list is too long for a variable:
            the file ``HOSTS_FILE`` of the first kernel. Empty where ``shared`` has the list.
        places: by rank ``LOCAL_RANK``, ``LOCAL_WORLD_SIZE`` and ``GROUP_RANK``.
    """

    shared: Mapping[str, str]
    hosts: str
    places: Sequence[tuple[int, int, int]]

    @property
    def endpoint(self) -> str:
        """Host and port at which the kernels meet."""
        return joined(self.shared["MASTER_ADDR"], self.shared["MASTER_PORT"])


def gang_of(session: Session, agents: Mapping[AgentId, Agent]) -> Gang:
    """The facts for a gang. They are made once for all of its kernels, because their size grows
    with the gang."""
    first = session.kernels[0]
    hosts = [_host(kernel, agents) for kernel in session.kernels]
    on_agent: dict[AgentId | None, int] = {}
    local_ranks = []
    for kernel in session.kernels:
        local_ranks.append(on_agent.get(kernel.agent_id, 0))
        on_agent[kernel.agent_id] = local_ranks[-1] + 1
    nodes = {agent: index for index, agent in enumerate(on_agent)}
    places = [
        (local_rank, on_agent[kernel.agent_id], nodes[kernel.agent_id])
        for kernel, local_rank in zip(session.kernels, local_ranks, strict=True)
    ]
    shared = _of_session(session) | {
        "MASTER_ADDR": hosts[0],
        "MASTER_PORT": str(first.ports[-1]) if first.ports else "",
        "WORLD_SIZE": str(len(session.kernels)),
    }
    listed = ",".join(hosts)
    if len(listed) <= MAX_HOSTS_BYTES:
        return Gang(shared | {"MUSTER_HOSTS": listed}, "", places)
    return Gang(shared, "".join(f"{host}\n" for host in hosts), places)


def template(kernel: Kernel, gang: Gang | None, uid: ClusterUid | None) -> KernelTemplate:
    """The template of all kernels of one process on agents where their owner has this uid; ``gang``
    is None for a lone kernel. Where the gang has ``hosts``, its first kernel has a template of its
    own, and so has each task whose command tells the values of its parameters."""
    process, service = kernel.process, kernel.session.service
    point = point_of(kernel)
    env = {name: filled(text, point) for name, text in process.env.items()}
    env, files = {**env, **amounts(process)}, process.files
    if VARIABLE in process.env:
        files = {SCRIPT_FILE: SCRIPT, **files}
    if gang is None:
        env = {**threads(process), **env}
    else:
        node = torchrun(process, len(kernel.session.kernels), gang.endpoint)
        env = {**threads(process, _programs(node)), **node, **env, **gang.shared}
        if gang.hosts and kernel.index == 0:
            files = {HOSTS_FILE: gang.hosts, **files}
    return KernelTemplate(
        command=tuple(filled(each, point) for each in process.command),
        env=env,
        workdir=process.workdir,
        files=files,
        grace_s=process.grace,
        cpu_milli=process.resources.cpu or 0,
        least_cpu=process.resources.cpu == 0 and service is None,
        memory_bytes=kernel.resources.memory_bytes,
        # A service hands its room to nobody.
        shape=kernel.resources.shape if service is None else SERVICE_SHAPE,
        owner=str(kernel.session.owner),
        uid=uid,
        disk_bytes=kernel.resources.disk_bytes,
        service=service,
        stderr_apart=process.stderr is Stderr.APART,
        keeps_result=keeps_result(kernel.session),
    )


def _programs(torchrun_options: Mapping[str, str]) -> int:
    """How many programs torchrun begins in a kernel, as far as Muster tells it."""
    return int(torchrun_options.get("PET_NPROC_PER_NODE", "1"))


def own_variables(kernel: Kernel, gang: Gang | None, agent: str) -> dict[str, str]:
    """The variables of one kernel beside the template's; their number does not grow with the gang.
    ``agent`` is the name of the agent that it runs on.

    Programs in the manner of torchrun read a gang's variables. Those that a type of session needs
    are its hook's (``Hooks.variables``).
    """
    own = {"MUSTER_KERNEL_INDEX": str(kernel.index), "MUSTER_AGENT": agent}
    if gang is None:
        own |= _of_session(kernel.session)
    else:
        local_rank, on_agent, node = gang.places[kernel.index]
        own |= {
            "RANK": str(kernel.index),
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(on_agent),
            "GROUP_RANK": str(node),
        }
        if TORCHRUN_RANK not in kernel.process.env:
            own[TORCHRUN_RANK] = str(kernel.index)
    if kernel.session.job is not None:
        own["MUSTER_TASK_INDEX"] = str(kernel.task_index)
        own["MUSTER_ATTEMPT"] = str(kernel.attempt)
        own |= variables(point_of(kernel))
    if kernel.process.ports:
        own["MUSTER_PORTS"] = ",".join(map(str, kernel.ports[: kernel.process.ports]))
    return own


def _host(kernel: Kernel, agents: Mapping[AgentId, Agent]) -> str:
    agent = agents.get(kernel.agent_id) if kernel.agent_id else None
    return agent.host if agent else ""


def _of_session(session: Session) -> dict[str, str]:
    own = {
        "MUSTER_SESSION_ID": session.id,
        "MUSTER_KERNEL_COUNT": str(len(session.kernels)),
    }
    if session.job is not None:
        own |= {
            "MUSTER_JOB_ID": session.job.id,
            "MUSTER_JOB_NAME": session.job.name,
            "MUSTER_TASK_COUNT": str(session.job.spec.tasks),
        }
        recovery = session.job.spec.recovery
        checkpoints = recovery and (recovery.checkpoint_dir or session.job.spec.workdir)
        if checkpoints:
            own["MUSTER_CHECKPOINT_DIR"] = checkpoints
    return own
