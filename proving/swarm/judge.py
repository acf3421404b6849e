"""The judge of a run: all invariants, and what they know together."""

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, TypeVar, cast

from muster.core.ids import AgentId
from muster.store.unit import Unit
from muster.wire.messages import AgentMessage, ControllerMessage, KernelReport
from proving.hollow.agent import HollowAgent
from proving.hollow.supervisor import Kernel
from proving.hollow.witness import Witness
from proving.hollow.world import World
from proving.swarm.scene import Scene
from proving.swarm.story import Story, Tell, in_silence


class Violation(AssertionError):
    """An invariant does not hold: ``kind`` is what the invariant says, ``text`` why it does not."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)
        self.kind = kind
        self.text = text

    def __str__(self) -> str:
        return self.text


class Observer(Witness):
    """A witness that takes part in the judgement, or gathers facts for those that do."""

    def __init__(self, judge: "Judge") -> None:
        self.judge = judge

    @property
    def scene(self) -> Scene:
        return self.judge.scene

    @property
    def world(self) -> World:
        return self.judge.scene.world

    @property
    def now(self) -> float:
        return self.world.clock.now()

    @property
    def controller_ahead_s(self) -> float:
        """By how much the controller's time is ahead of the time that passes; negative where it is
        behind, as it may be on another machine."""
        controller = self.world.controller
        return 0.0 if controller is None else controller.time_ahead_s


class Invariant(Observer):
    """Something that must hold in every run.

    A violation that is seen while control is inside a wake is told of after the wake, because an
    exception there would be taken for a defect of a handler.
    """

    says: ClassVar[str]
    """The invariant in a sentence; runs are told apart, and shrunk, by it."""

    def expect(self, holds: bool, wrong: str) -> None:
        """Take note of one evaluation; ``wrong`` describes the state in which the invariant does
        not hold."""
        self.judge.evaluated[self.says] += 1
        if not holds:
            self.judge.found.append(Violation(self.says, wrong))

    def between_steps(self) -> None:
        """Judge the world as it stands after a step."""

    def at_rest(self) -> None:
        """Judge the world once faults have stopped and all work could end."""


AnObserver = TypeVar("AnObserver", bound=Observer)

_HEARD_OF = (
    "begun",
    "gone",
    "journalled",
    "heard",
    "sent",
    "overtaken_sent",
    "committed",
    "woke",
    "controller_died",
)


class Judge(Witness):
    """Passes each event on to all observers, and raises at the first violation.

    Args:
        invariants: those that are judged.
        tell: hears the story: moments in seconds since the beginning, and sentences.
    """

    def __init__(
        self, scene: Scene, invariants: Sequence[type[Invariant]], tell: Tell = in_silence
    ) -> None:
        self.scene = scene
        self.found: list[Violation] = []
        self.evaluated: Counter[str] = Counter()
        self.story = Story(scene, tell)
        self._told_by = () if tell is in_silence else (self.story,)
        self._observers: dict[type[Observer], Observer] = {}
        self._invariants = [self.of(kind) for kind in invariants]
        self._listening = {
            name: [
                getattr(each, name)
                for each in (*self._told_by, *self._observers.values())
                if getattr(type(each), name) is not getattr(Witness, name)
            ]
            for name in _HEARD_OF
        }

    def of(self, kind: type[AnObserver]) -> AnObserver:
        """The observer of this class, which is called with each event before the caller is."""
        if kind not in self._observers:
            observer = kind(self)
            self._observers[kind] = observer
        return cast(AnObserver, self._observers[kind])

    def judge(self) -> None:
        """Judge the world after a step.

        Raises:
            Violation: something that was seen, or is so now, must not be.
        """
        for story in self._told_by:
            for request in self.scene.requests:
                story.answered(request)
        for each in self._invariants:
            each.between_steps()
        self.scene.requests.clear()
        self._speak()

    def judge_rest(self) -> None:
        """Judge the world at rest.

        Raises:
            Violation: see ``judge``.
        """
        self.judge()
        for each in self._invariants:
            each.at_rest()
        self._speak()

    def _speak(self) -> None:
        if self.found:
            raise self.found[0]

    # -- witness ---------------------------------------------------------------------------------

    def begun(self, agent: HollowAgent, kernel: Kernel) -> None:
        for listen in self._listening["begun"]:
            listen(agent, kernel)

    def gone(self, agent: HollowAgent, kernel: Kernel) -> None:
        for listen in self._listening["gone"]:
            listen(agent, kernel)

    def journalled(self, agent: HollowAgent, report: KernelReport) -> None:
        for listen in self._listening["journalled"]:
            listen(agent, report)

    def heard(self, agent: AgentId, message: AgentMessage) -> None:
        for listen in self._listening["heard"]:
            listen(agent, message)

    def sent(self, agent: AgentId, message: ControllerMessage) -> None:
        for listen in self._listening["sent"]:
            listen(agent, message)

    def overtaken_sent(self, agent: AgentId, message: ControllerMessage) -> None:
        for listen in self._listening["overtaken_sent"]:
            listen(agent, message)

    def committed(self, unit: Unit) -> None:
        for listen in self._listening["committed"]:
            listen(unit)

    def woke(self) -> None:
        """
        Raises:
            Violation: the wake showed something that must not be; the run need not go on.
        """
        for listen in self._listening["woke"]:
            listen()
        self._speak()

    def controller_died(self) -> None:
        for listen in self._listening["controller_died"]:
            listen()
