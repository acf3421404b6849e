"""Effects whose performers talk to agents (design: Effects)."""

from dataclasses import dataclass

from muster.core.ids import AgentId
from muster.wire.messages import Command, Hello


@dataclass(frozen=True, slots=True)
class CommandAgent:
    """Have an agent do something. Idempotent by (kernel, generation); a lost command is repeated
    when the agent says Hello."""

    agent: AgentId
    command: Command


@dataclass(frozen=True, slots=True)
class AcknowledgeReports:
    """Tell an agent that its reports up to ``seq`` are committed."""

    agent: AgentId
    seq: int


@dataclass(frozen=True, slots=True)
class AnswerHello:
    """Make the stream of this Hello the agent's, and grant the lease that it asked for."""

    hello: Hello

    @property
    def agent(self) -> AgentId:
        return self.hello.agent
