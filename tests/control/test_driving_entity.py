"""An entity that drives sessions takes no line of the product: kiosks, each of which keeps a
session alive, as a deployment would."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import pytest
from proving.hollow.supervisor import Run
from sqlalchemy import MetaData, select
from tests.control.conftest import MakeWorld, cpus
from tests.control.driven_agent import DrivenAgent
from tests.control.world import ADA, World
from tests.databases import ON_BOTH

from muster.control.engine.declared import Declared
from muster.control.engine.handler import FollowingHandler, Stage, TransitionStatus
from muster.control.engine.lifecycle import Lifecycle
from muster.control.engine.module import Context, EntityModule
from muster.control.engine.retries import NO_LIMIT, RetryPolicy
from muster.control.engine.work import Move, Work
from muster.control.modules import ENTITY_MODULES
from muster.control.session.lifecycle import SessionLifecycle
from muster.control.session.requests import SessionRequests
from muster.core.errors import Conflict
from muster.core.ids import SessionId
from muster.core.owner import Owner, Principal, Role
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_sessions import Cancelled
from muster.core.specs import SessionSpec
from muster.core.states import SESSION_TABLE, SessionStatus, StateTable
from muster.store import schema
from muster.store.entity import Entity, Tried, Visible
from muster.store.fields import Fixed, Key
from muster.store.record_table import RecordTable
from muster.store.records import Session

pytestmark = ON_BOTH

ATTENDANT = SessionSpec.model_validate(
    {"type": "inference", "kernels": [{"command": ["serve"], "resources": {"cpu": 1}}]}
)
SERVES = Run(1e6)
PATIENCE = RetryPolicy(NO_LIMIT, backoff_s=10.0, at_once=1)


class KioskStatus(StrEnum):
    OPEN = "OPEN"
    CLOSED = "CLOSED"


KIOSK_TABLE: StateTable[KioskStatus] = StateTable(
    "kiosk",
    initial=KioskStatus.OPEN,
    terminal=frozenset({KioskStatus.CLOSED}),
    allowed={(KioskStatus.OPEN, KioskStatus.CLOSED): "it was closed"},
)


@dataclass(slots=True, eq=False, kw_only=True)
class Kiosk(Tried):
    """A kiosk refers to its session by id, as a task does; its tries are the sessions in a row that
    ended before they ran."""

    id: Key[str]
    owner: Fixed[Owner]
    status: KioskStatus
    session_id: SessionId | None = None


KIOSKS = RecordTable(
    Kiosk,
    "kiosks",
    KIOSK_TABLE,
    among=MetaData(),  # its own: the product's migrations do not make it
)
kiosks = KIOSKS.table

KIOSK = Entity(
    "kiosk",
    KIOSKS,
    described="a place that is attended as long as it is open",
    prefix="ksk",
    visible=Visible.TO_OWNER,
)


class KioskLifecycle(Lifecycle[Kiosk]):
    entity = Kiosk

    def __init__(self, sessions: SessionLifecycle) -> None:
        self._sessions = sessions

    def open(self, work: Work, owner: Owner) -> Kiosk:
        now, id_ = work.now, work.ids.new("ksk")
        kiosk = Kiosk(id=id_, owner=owner, status=KioskStatus.OPEN, status_changed_at=now)
        work.unit.add(kiosk)
        work.mark(kiosk)
        return kiosk

    def close(self, work: Work, kiosk: Kiosk) -> None:
        why = Move("Request", reason=Cancelled(by=kiosk.owner.user))
        self.move(work, [kiosk], KIOSK_TABLE.live, TransitionStatus(KioskStatus.CLOSED), why)

    def moved(self, work: Work, record: Kiosk, move: Move) -> None:
        session = work.live.sessions.get(record.session_id) if record.session_id else None
        if session is not None:
            self._sessions.terminate(work, [session], move.phase, move.reason)


class AttendKiosks(FollowingHandler[Kiosk]):
    name = "AttendKiosks"
    stage = Stage.EXPAND
    entity = Kiosk
    statuses = frozenset(KIOSK_TABLE.live)

    def __init__(self, sessions: SessionRequests) -> None:
        self._sessions = sessions

    def follow(self, record: Kiosk, work: Work) -> None:
        session = work.live.sessions.get(record.session_id) if record.session_id else None
        if session is not None and session.status in SESSION_TABLE.live:
            return
        if record.session_id is not None:
            self._ended(record, session, work)
        if work.may_try(record):
            try:
                owner = Principal(record.owner, Role.USER)
                record.session_id = self._sessions.submit(work, owner, ATTENDANT).id
                work.unit.touch(record)
            except Conflict:  # a quota; nothing has changed
                work.charge_try(record, PATIENCE)

    def _ended(self, kiosk: Kiosk, session: Session | None, work: Work) -> None:
        kiosk.session_id = None
        work.unit.touch(kiosk)
        if session is None or session.started_at is None:
            work.charge_try(kiosk, PATIENCE)
        else:
            work.forget_tries(kiosk)


class FollowAttendants(FollowingHandler[Session]):
    name = "FollowAttendants"
    stage = Stage.SETTLE
    entity = Session
    statuses = frozenset(SESSION_TABLE.terminal)

    def follow(self, record: Session, work: Work) -> None:
        for kiosk in work.live.of(Kiosk).values():
            if kiosk.session_id == record.id:
                work.mark(kiosk)


class KioskModule(EntityModule):
    entities = (KIOSK,)

    def declare(self, context: Context) -> Declared:
        lifecycle = KioskLifecycle(context.parts[SessionLifecycle])
        attends = AttendKiosks(context.parts[SessionRequests])
        return Declared([lifecycle], [attends, FollowAttendants()], offers=[lifecycle])


MakeKiosk = Callable[..., tuple[World, Kiosk]]


@pytest.fixture
def opened(worlds: MakeWorld) -> MakeKiosk:
    """A world of two agents, and a kiosk that was opened there."""

    def make(run: Run = SERVES) -> tuple[World, Kiosk]:
        modules = (*ENTITY_MODULES, KioskModule)
        agents = {name: cpus(1) for name in "ab"}
        world = worlds(agents, behaviour=lambda start: run, entity_modules=modules)
        kiosk: Kiosk = world.ask(lambda work, parts: parts[KioskLifecycle].open(work, ADA.owner))
        return world, kiosk

    return make


def attendants(world: World) -> list[SessionStatus]:
    return [session.status for session in world.plane.live.sessions.values()]


def agent_of(world: World) -> DrivenAgent:
    session = world.only_session()
    (kernel,) = session.kernels
    assert kernel.agent_id is not None
    return world.agents[kernel.agent_id]


def lose_the_agent(world: World) -> None:
    agent_of(world).online = False
    world.run(600.0)


def cancel_the_session(world: World) -> None:
    (id_,) = world.plane.live.sessions
    world.ask(lambda work, parts: parts[SessionRequests].cancel(work, ADA, id_))
    world.run(5.0)


@pytest.mark.parametrize("disturb", [lose_the_agent, cancel_the_session])
def test_session_that_ends_is_followed_by_another(
    opened: MakeKiosk, disturb: Callable[[World], None]
) -> None:
    world, kiosk = opened()
    first = kiosk.session_id
    assert attendants(world) == [SessionStatus.RUNNING]
    disturb(world)
    assert attendants(world) == [SessionStatus.RUNNING]
    assert kiosk.session_id != first


def test_restarted_control_goes_on_with_the_session_that_runs(opened: MakeKiosk) -> None:
    world, kiosk = opened()
    world.restart_controller()
    world.run(120.0)
    (stored,) = world.plane.live.of(Kiosk).values()
    assert (stored.session_id, attendants(world)) == (kiosk.session_id, [SessionStatus.RUNNING])


def test_sessions_that_never_run_follow_each_other_ever_more_slowly(opened: MakeKiosk) -> None:
    world, kiosk = opened(Run(create_failure=ReasonCode.DISK_FULL))
    world.run(1200.0, step_s=5.0)
    lives = select(schema.sessions.c.created_at, schema.sessions.c.finished_at)
    with world.store.engine.connect() as connection:
        ended = connection.execute(lives.order_by(schema.sessions.c.created_at)).all()
    waits_s = [later.created_at - one.finished_at for one, later in itertools.pairwise(ended)]
    assert waits_s[:6] == [0.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    assert kiosk.tries >= len(waits_s)


def test_session_ends_with_the_record_that_drives_it(opened: MakeKiosk) -> None:
    world, kiosk = opened()
    world.ask(lambda work, parts: parts[KioskLifecycle].close(work, kiosk))
    world.run(5.0)
    assert (attendants(world), dict(world.plane.live.of(Kiosk))) == ([], {})
