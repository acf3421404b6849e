"""State machines as data: a module an entity, with its states and the changes it allows."""

from muster.core.states.agent import AGENT_TABLE, AgentBar, AgentStatus
from muster.core.states.job import JOB_TABLE, JobState
from muster.core.states.kernel import KERNEL_TABLE, KernelStatus
from muster.core.states.session import PLACED_SESSION, SESSION_TABLE, SessionStatus
from muster.core.states.table import IllegalTransition, StateTable
from muster.core.states.task import TASK_TABLE, TaskState

__all__ = [
    "AGENT_TABLE",
    "JOB_TABLE",
    "KERNEL_TABLE",
    "PLACED_SESSION",
    "SESSION_TABLE",
    "TASK_TABLE",
    "AgentBar",
    "AgentStatus",
    "IllegalTransition",
    "JobState",
    "KernelStatus",
    "SessionStatus",
    "StateTable",
    "TaskState",
]
