"""The module of lamps: it has them lit, and puts them out when it is asked to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tests.control.lamp.entity import LAMP, LAMP_TABLE, Lamp, LampStatus

from muster.control.engine.declared import Declared
from muster.control.engine.effects import Performer, Surroundings
from muster.control.engine.handler import (
    NO_CHANGE,
    HandlerResult,
    LifecycleHandler,
    StatusTransitions,
    TransitionStatus,
)
from muster.control.engine.inputs import Input
from muster.control.engine.lifecycle import Lifecycle
from muster.control.engine.module import Context, EntityModule, Parts
from muster.control.engine.retries import RetryPolicy
from muster.control.engine.work import Move, Work
from muster.core.errors import NotFound
from muster.core.owner import Principal
from muster.core.reasons.of_kernels import KernelNotCreated
from muster.core.reasons.of_sessions import Cancelled

ANSWER_S = 30.0


@dataclass(frozen=True, slots=True)
class LightLamp:
    """An effect, idempotent by (lamp, generation)."""

    lamp: str
    generation: int


@dataclass(frozen=True, slots=True)
class LampWasLit(Input):
    lamp: str
    generation: int
    lit: bool

    def take(self, work: Work, parts: Parts) -> None:
        lamp = work.live.of(Lamp).get(self.lamp)
        if lamp is not None and lamp.generation == self.generation and lamp.asked_at is not None:
            lamp.was_lit = self.lit
            work.mark(lamp)

    def refuse(self, error: Exception) -> None: ...


class LampLighter(Performer[LightLamp]):
    """Lights at once, but for the first ``fails`` times, and not while it ``is_away``."""

    kind = LightLamp
    asked: ClassVar[list[LightLamp]] = []
    fails: ClassVar[int] = 0
    is_away: ClassVar[bool] = False

    def __init__(self, surroundings: Surroundings) -> None:
        self._report = surroundings.report

    def perform(self, effects: Sequence[LightLamp]) -> None:
        for effect in effects:
            self.asked.append(effect)
            if not LampLighter.is_away:
                lit = LampLighter.fails <= 0
                LampLighter.fails -= 1
                self._report(LampWasLit(effect.lamp, effect.generation, lit))


class LampLifecycle(Lifecycle[Lamp]):
    entity = Lamp

    def moved(self, work: Work, record: Lamp, move: Move) -> None:
        record.reason = move.reason

    def deadlines(self, record: Lamp, work: Work) -> Iterable[float]:
        if record.asked_at is not None:
            yield record.asked_at + ANSWER_S

    def retry_policy(self, record: Lamp, work: Work) -> RetryPolicy:
        return RetryPolicy(max_tries=4, backoff_s=5.0)


class LightLamps(LifecycleHandler[Lamp]):
    name = "LightLamps"
    entity = Lamp
    statuses = frozenset({LampStatus.OFF})
    transitions = StatusTransitions(
        success=TransitionStatus(LampStatus.LIT),
        need_retry=NO_CHANGE,
        give_up=TransitionStatus(LampStatus.OUT),
    )

    def execute(self, targets: Sequence[Lamp], work: Work) -> HandlerResult[Lamp]:
        result: HandlerResult[Lamp] = HandlerResult()
        for lamp in targets:
            if lamp.asked_at is None:
                lamp.generation += 1
                lamp.asked_at = work.now
                work.unit.touch(lamp)
                work.emit(LightLamp(lamp.id, lamp.generation))
                continue
            if lamp.was_lit:
                result.successes.append(lamp)
            elif lamp.was_lit is False or work.now >= lamp.asked_at + ANSWER_S:
                result.failures[lamp] = KernelNotCreated(agent="-", detail="dark")
            else:
                continue
            lamp.asked_at = lamp.was_lit = None
        return result


class LampRequests:
    def __init__(self, lifecycle: LampLifecycle) -> None:
        self._lifecycle = lifecycle

    def hang_up(self, work: Work, principal: Principal, name: str) -> Lamp:
        lamp = Lamp(
            id=work.ids.new(LAMP.prefix),
            name=name,
            owner=principal.owner,
            status=LampStatus.OFF,
            status_changed_at=work.now,
        )
        work.unit.add(lamp)
        work.mark(lamp)
        return lamp

    def put_out(self, work: Work, principal: Principal, id_: str) -> Lamp:
        lamp = work.live.of(Lamp).get(id_)
        if lamp is None or not principal.may_change(lamp.owner):
            raise NotFound(f"there is no live lamp {id_}")
        move = Move("Request", reason=Cancelled(by=principal.owner.user))
        to = TransitionStatus(LampStatus.OUT)
        self._lifecycle.move(work, [lamp], LAMP_TABLE.live, to, move)
        return lamp


class LampModule(EntityModule):
    entities = (LAMP,)

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self.performers = (LampLighter(surroundings),)

    def declare(self, context: Context) -> Declared:
        lifecycle = LampLifecycle()
        return Declared(
            lifecycles=[lifecycle], handlers=[LightLamps()], offers=[LampRequests(lifecycle)]
        )
