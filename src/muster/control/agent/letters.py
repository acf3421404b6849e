"""The messages for one agent after a commit."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from muster.control.tell_agent import TellAgent
from muster.core.ids import AgentId
from muster.core.serving.port_holders import PortOrder
from muster.core.serving.probes import ProbeOrder
from muster.wire.messages import (
    Acknowledge,
    Command,
    HealthNoted,
    Hello,
    KernelKey,
    Stop,
)


@dataclass(slots=True)
class Letters:
    """The messages for one agent after a commit. Commands are kept by kernel; those that a later
    message or decision of the wake has made needless are left out."""

    hello: Hello | None = None
    commands: dict[KernelKey, list[Command]] = field(default_factory=dict)
    acknowledged: Acknowledge | None = None
    noted: HealthNoted | None = None
    orders: dict[str, ProbeOrder] = field(default_factory=dict)
    ports: dict[str, PortOrder] = field(default_factory=dict)

    @classmethod
    def of(cls, effects: Iterable[TellAgent]) -> dict[AgentId, Self]:
        """The messages for each agent."""
        found: dict[AgentId, Self] = {}
        for effect in effects:
            letters = found.get(effect.agent)
            if letters is None:
                letters = found[effect.agent] = cls()
            match effect.message:
                case Hello() as hello:
                    found[effect.agent] = cls(hello)
                case None:
                    letters.hello = None
                case Acknowledge() as acknowledged:
                    letters.acknowledged = acknowledged
                case HealthNoted() as noted:
                    letters.noted = noted
                case ProbeOrder(route=route) as order:
                    letters.orders[route] = order
                case PortOrder(route=route) as port_order:
                    letters.ports[route] = port_order
                case tuple() as ended:
                    letters.commands.pop(ended, None)
                case command:
                    letters.add(command)
        return found

    def add(self, command: Command) -> None:
        """Add a message. A Stop replaces all earlier commands for its kernel."""
        key = command.kernel, command.generation
        earlier = self.commands.get(key)
        if earlier is None or isinstance(command, Stop):
            self.commands[key] = [command]
        elif command not in earlier:
            earlier.append(command)
