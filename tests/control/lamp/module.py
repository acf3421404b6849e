"""The module of lamps: it has them lit, and puts them out when it is asked to."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sqlalchemy import select
from tests.control.lamp.entity import LAMP, LAMP_TABLE, Lamp, LampStatus, lamps
from tests.control.lamp.spec import LampSpec

from muster.control.engine.declared import Declared
from muster.control.engine.effects import Performer, Surroundings
from muster.control.engine.handler import (
    NO_CHANGE,
    FollowingHandler,
    HandlerResult,
    LifecycleHandler,
    Stage,
    StatusTransitions,
    TransitionStatus,
)
from muster.control.engine.inputs import Input
from muster.control.engine.lifecycle import Lifecycle
from muster.control.engine.module import Context, EntityModule, Parts
from muster.control.engine.owned_work import OwnedWork
from muster.control.engine.retries import RetryPolicy
from muster.control.engine.work import Move, Work
from muster.control.notice.ends import Writer
from muster.control.notice.entity import Message, Tone
from muster.core.errors import NotFound
from muster.core.ids import SessionId
from muster.core.owner import Owner, Principal
from muster.core.reasons.of_kernels import KernelNotCreated
from muster.core.reasons.of_sessions import Cancelled
from muster.store.audit.finding import Audit, AuditFinding, Stored

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


class TellEndsOfLamps(FollowingHandler[Lamp]):
    name = "TellEndsOfLamps"
    stage = Stage.TELL
    entity = Lamp
    statuses = frozenset(LAMP_TABLE.terminal)

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def follow(self, record: Lamp, work: Work) -> None:
        said = f"lamp {record.name} is out"
        message = Message(said, said, Tone.FAILURE)
        self._writer.tell_end(work, record.id, record.owner, record.spec.notify, message)


class LampRequests(OwnedWork):
    plural = "lamps"

    def __init__(self, lifecycle: LampLifecycle) -> None:
        self._lifecycle = lifecycle

    def owned(self, work: Work, concerned: Callable[[Owner], bool]) -> list[str]:
        return [each.id for each in work.live.of(Lamp).values() if concerned(each.owner)]

    def end(self, work: Work, by: Principal, id_: str) -> None:
        self.put_out(work, by, id_)

    def hang_up(self, work: Work, principal: Principal, spec: LampSpec) -> Lamp:
        if spec.session is not None:
            session = work.live.sessions.get(SessionId(spec.session))
            if session is None or not principal.may_see(session.owner):
                raise NotFound(f"there is no live session {spec.session}")
        lamp = Lamp(
            id=work.ids.new(LAMP.prefix),
            name=spec.name,
            owner=principal.owner,
            spec=spec,
            session_id=spec.session,
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


def _dark_without_reason(stored: Stored) -> Iterator[AuditFinding]:
    out = select(lamps.c.id).where(lamps.c.status == LampStatus.OUT, lamps.c.reason.is_(None))
    for row in stored.connection.execute(out):
        yield AuditFinding(row.id, "is out, and has no reason")


class LampModule(EntityModule):
    entities = (LAMP,)
    after = ("notice",)
    audits = (Audit("a lamp that is out has a reason", _dark_without_reason),)

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self.performers = (LampLighter(surroundings),)

    def declare(self, context: Context) -> Declared:
        lifecycle = LampLifecycle()
        return Declared(
            lifecycles=[lifecycle],
            handlers=[LightLamps(), TellEndsOfLamps(context.parts[Writer])],
            offers=[LampRequests(lifecycle)],
        )
