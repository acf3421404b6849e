"""What a kernel finds in its environment, and what it is started with. Pure."""

from collections.abc import Mapping, Sequence

from muster.core.ids import AgentId
from muster.store.records import Agent, Kernel, Session
from muster.wire.messages import KernelTemplate


def ports_needed(kernel: Kernel) -> int:
    """Ports that the agent reserves: the spec's, and one to meet at for a gang's first kernel."""
    meeting = 1 if len(kernel.session.kernels) > 1 and kernel.index == 0 else 0
    return kernel.process.ports + meeting


def needs_preparation(kernel: Kernel) -> bool:
    return ports_needed(kernel) > 0


def template(kernel: Kernel) -> KernelTemplate:
    """What kernels of one process share. Make it once for all of them."""
    process = kernel.process
    return KernelTemplate(
        command=tuple(process.command),
        env=process.env,
        workdir=process.workdir,
        files=process.files,
        grace_s=process.grace,
        cpu_milli=process.resources.cpu or 0,
        memory_bytes=kernel.resources.memory_bytes,
        shape=kernel.resources.shape,
    )


def session_environments(
    session: Session, agents: Mapping[AgentId, Agent]
) -> Sequence[dict[str, str]]:
    """The variables of each kernel: MUSTER_* for all, and for a gang those that torchrun-style
    programs read. LOCAL_RANK counts the gang's kernels on the same agent."""
    if len(session.kernels) == 1:
        return [_own(session, session.kernels[0])]
    first = session.kernels[0]
    hosts = [_host(kernel, agents) for kernel in session.kernels]
    on_agent: dict[AgentId | None, int] = {}
    environments = []
    local_ranks = []
    for kernel in session.kernels:
        local_ranks.append(on_agent.get(kernel.agent_id, 0))
        on_agent[kernel.agent_id] = local_ranks[-1] + 1
    nodes = {agent: index for index, agent in enumerate(on_agent)}
    for kernel, local_rank in zip(session.kernels, local_ranks, strict=True):
        environments.append(
            _own(session, kernel)
            | {
                "MASTER_ADDR": hosts[0],
                "MASTER_PORT": str(first.ports[-1]) if first.ports else "",
                "RANK": str(kernel.index),
                "WORLD_SIZE": str(len(session.kernels)),
                "LOCAL_RANK": str(local_rank),
                "LOCAL_WORLD_SIZE": str(on_agent[kernel.agent_id]),
                "GROUP_RANK": str(nodes[kernel.agent_id]),
                "MUSTER_HOSTS": ",".join(hosts),
            }
        )
    return environments


def _host(kernel: Kernel, agents: Mapping[AgentId, Agent]) -> str:
    agent = agents.get(kernel.agent_id) if kernel.agent_id else None
    return agent.host if agent else ""


def _own(session: Session, kernel: Kernel) -> dict[str, str]:
    own = {
        "MUSTER_SESSION_ID": session.id,
        "MUSTER_KERNEL_INDEX": str(kernel.index),
        "MUSTER_KERNEL_COUNT": str(len(session.kernels)),
    }
    if session.job is not None:
        own |= {
            "MUSTER_JOB_ID": session.job.id,
            "MUSTER_JOB_NAME": session.job.name,
            "MUSTER_TASK_INDEX": str(kernel.task_index),
            "MUSTER_TASK_COUNT": str(session.job.tasks_total),
            "MUSTER_ATTEMPT": str(kernel.attempt),
        }
    if kernel.process.ports:
        own["MUSTER_PORTS"] = ",".join(map(str, kernel.ports[: kernel.process.ports]))
    return own
