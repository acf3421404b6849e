"""Nothing shares what a service has to itself, whatever happens."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from proving.hollow.supervisor import Run
from tests.control.conftest import cpus
from tests.control.test_services import WHY, begin, job
from tests.control.world import World

from muster.control.engine.module import Parts
from muster.control.engine.work import Work
from muster.control.session.services import Services
from muster.core.health.service import Service, ServiceName
from muster.core.ids import SessionId
from muster.store.records import Session

_SERVICES = st.tuples(
    st.just("service"), st.sampled_from("ab"), st.sets(st.integers(0, 2)).map(tuple)
)
_EVENTS = st.one_of(
    _SERVICES,
    st.tuples(st.just("job"), st.integers(0, 3), st.integers(1, 5)),
    st.tuples(st.just("time"), st.sampled_from([0.25, 1.0, 4.0, 40.0])),
    st.tuples(st.just("crash")),
    st.tuples(st.just("stop")),
    st.tuples(st.just("reboot"), st.sampled_from("ab")),
    st.tuples(st.just("silence"), st.sampled_from("ab")),
    st.tuples(st.just("hello"), st.sampled_from("ab")),
)


def _carry_out(world: World, event: tuple[object, ...]) -> None:
    match event:
        case ("service", str(name), tuple(devices)):
            begin(world, name, Service(ServiceName.CHECK, devices))
        case ("job", int(gpus), int(tasks)):
            world.submit(job(gpus=gpus, tasks=tasks))
        case ("time", float(seconds)):
            world.run(seconds)
        case ("crash",):
            world.restart_controller()
        case ("stop",):
            _stop_all(world)
        case ("reboot" | "silence" | "hello" as what, str(name)):
            agent = world.agent(name)
            if agent.online:
                world.disconnect(agent)
            if what == "reboot":
                agent.reboot()
            if what != "silence":
                world.connect(agent)


def _stop_all(world: World) -> None:
    def stop(id_: SessionId, work: Work, parts: Parts) -> None:
        parts[Services].stop(work, work.live.sessions[id_], "Test", WHY)

    for session in _services(world):
        world.ask(partial(stop, session.id))


def _services(world: World) -> list[Session]:
    return [each for each in world.plane.live.sessions.values() if each.service is not None]


def _violations(world: World) -> Iterator[str]:
    """Every sharing of what a service has to itself."""
    live = world.plane.live
    for name in "ab":
        rows = list(live.allocations_on.get(world.agent(name).id, {}).values())
        for row in rows:
            kernel = live.kernels.get(row.kernel_id) or live.left.get(row.kernel_id)
            service = kernel.session.service if kernel is not None else None
            if service is None:
                continue
            others = [each for each in rows if each is not row]
            taken = {share.index for share in row.shares}
            if service.is_whole and others:
                yield f"{others} are beside a service of all of {name}"
            for other in others:
                if taken & {share.index for share in other.shares}:
                    yield f"{other} shares a device of {name} with a service"
    for session in live.sessions.values():
        if session.service is not None and session.kernels[0].generation:
            yield f"{session.id} was placed anew"


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(st.lists(_EVENTS, max_size=25))
def test_nothing_ever_shares_what_a_service_has_to_itself(
    events: list[tuple[object, ...]],
) -> None:
    with TemporaryDirectory() as path:
        world = World(
            Path(path),
            {"a": cpus(8), "b": cpus(8)},
            gpus={"a": 3, "b": 3},
            behaviour=lambda start: Run(3),
        )
        try:
            for event in events:
                _carry_out(world, event)
                assert not list(_violations(world))
            for name in "ab":
                if not world.agent(name).online:
                    world.connect(world.agent(name))
            world.run(60)
            assert not _services(world)
            assert not world.plane.live.ledger
        finally:
            world.close()
