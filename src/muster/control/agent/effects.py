"""Effects whose performers talk to agents (design: Effects)."""

from dataclasses import dataclass

from muster.core.ids import AgentId
from muster.wire.messages import Command, Hello


@dataclass(frozen=True, slots=True)
class CommandAgent:
    """An effect: have an agent do something. Idempotent by (kernel, generation); what is lost is
    told again when the agent says Hello."""

    agent: AgentId
    command: Command


@dataclass(frozen=True, slots=True)
class AcknowledgeReports:
    """An effect: the reports of an agent up to ``seq`` are committed."""

    agent: AgentId
    seq: int


@dataclass(frozen=True, slots=True)
class AnswerHello:
    """An effect: the stream of this Hello is the agent's from now on, with the lease that it asked
    for."""

    hello: Hello

    @property
    def agent(self) -> AgentId:
        return self.hello.agent
