"""A state machine as a table, and its diagram (design: State machines are data)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Generic, TypeVar

S = TypeVar("S", bound=StrEnum)


class IllegalTransition(Exception):
    """A change that the entity's table does not allow: a defect of the caller."""


class StateTable(Generic[S]):
    """The allowed changes of one entity, each with the name of what triggers it.

    Args:
        name: the entity's name.
        initial: the state in which it is created.
        terminal: states that never change again.
        allowed: trigger by (from, to).
        words: for the arrival in a state, by the state, as history tells it after the entity's
            name: ``fell silent``; of other states the name is told.
    """

    def __init__(
        self,
        name: str,
        initial: S,
        terminal: frozenset[S],
        allowed: Mapping[tuple[S, S], str],
        words: Mapping[S, str] | None = None,
    ) -> None:
        self.name = name
        self.initial = initial
        self.terminal = terminal
        self.allowed = dict(allowed)
        self.words: Mapping[str, str] = {str(state): said for state, said in (words or {}).items()}
        self.live: frozenset[S] = frozenset(type(initial)) - terminal
        leaving = {start for start, _ in self.allowed} & terminal
        if leaving:
            raise ValueError(f"{name}: terminal states cannot be left: {sorted(leaving)}")

    def check(self, start: S, end: S) -> None:
        """Refuse a change that the table does not hold.

        Raises:
            IllegalTransition: (start, end) is not allowed.
        """
        if (start, end) not in self.allowed:
            raise IllegalTransition(f"{self.name}: {start} → {end} is not allowed")

    def mermaid(self) -> str:
        """The machine as a Mermaid state diagram, for docs/states.md."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial}"]
        lines += [
            f"    {start} --> {end}: {trigger}" for (start, end), trigger in self.allowed.items()
        ]
        ends = self.terminal & {end for _, end in self.allowed}
        lines += [f"    {state} --> [*]" for state in type(self.initial) if state in ends]
        return "\n".join(lines)
