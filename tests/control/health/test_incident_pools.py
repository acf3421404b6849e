"""Machines of pools that fall ill: rebooted by their provider, replaced once they are isolated."""

from tests.control.health.conftest import MakeWard
from tests.control.health.ward import Ward
from tests.control.pool_scenarios import pool

from muster.control.health.ladder import Heal
from muster.control.pool.slices import DEAD_S
from muster.core.health.remedy import Remedy
from muster.core.reasons import ReasonCode
from muster.core.reasons.of_health import HealthIsolatedBy
from muster.core.states.health import HealthStatus

_H = HealthStatus


def pooled(make: MakeWard, slices: int = 2, boot_s: float = 60.0, **health: object) -> Ward:
    """A ward whose machines are those of a pool."""
    w = make([], boot_s=boot_s, **health)
    w.world.apply(pool(min_slices=slices, max_slices=8))
    w.run(60)
    for agent in w.world.agents.values():
        w.adopt(agent)
    assert len(w.world.agents) == slices
    return w


def first(w: Ward) -> str:
    return min(agent.name for agent in w.world.agents.values())


def test_an_isolated_machine_is_replaced_with_its_slice(ward: MakeWard) -> None:
    w = pooled(ward)
    name = first(w)
    w.suspect(name, remedy=Remedy.OPERATOR, confirmed=True)
    w.run(120)
    ended = w.last(name)
    assert ended is not None
    assert ended.status is _H.GONE
    assert len(w.world.agents) == 2
    assert name not in {agent.name for agent in w.world.agents.values()}


def test_an_isolated_machine_stays_where_the_group_says_so(ward: MakeWard) -> None:
    w = pooled(ward, replace_isolated=False)
    name = first(w)
    w.suspect(name, remedy=Remedy.OPERATOR, confirmed=True)
    w.run(600)
    assert w.of(name).status is _H.ISOLATED


def test_a_machine_that_an_operator_isolated_stays(ward: MakeWard) -> None:
    w = pooled(ward)
    name = first(w)
    why = HealthIsolatedBy(agent=name, by="ada", note="")
    w.decide("isolate", name, why)
    w.run(600)
    assert w.of(name).status is _H.ISOLATED


def test_a_machine_that_an_operator_isolated_outlives_an_idle_slice(ward: MakeWard) -> None:
    w = ward([])
    w.world.apply(pool(min_slices=1, max_slices=8))
    w.run(60)
    name = first(w)
    w.decide("isolate", name, HealthIsolatedBy(agent=name, by="ada", note=""))
    w.world.apply(pool(min_slices=0, max_slices=8, idle_timeout=60))
    w.run(600)
    assert w.of(name).status is _H.ISOLATED
    (slice_,) = w.world.slices()
    assert slice_.stays is not None
    assert slice_.stays.code is ReasonCode.SLICE_ISOLATED
    w.decide("return", name)
    w.run(600)
    assert not w.world.agents


def test_a_machine_that_reboots_for_long_is_not_taken_for_dead(ward: MakeWard) -> None:
    w = pooled(ward, slices=6, boot_s=DEAD_S + 400)
    name = first(w)
    w.suspect(name, remedy=Remedy.REBOOT, confirmed=True)
    w.run(DEAD_S + 500)
    assert w.is_well(name)
    assert not any(each.doomed for each in w.world.slices())


def test_a_machine_that_does_not_return_is_rebooted_by_its_provider_and_then_replaced(
    ward: MakeWard,
) -> None:
    w = pooled(ward, slices=6, reboot_timeout=300)
    name = first(w)
    w.bricks.add(name)
    w.suspect(name, remedy=Remedy.REBOOT, confirmed=True)
    w.run(330)
    assert w.of(name).heal is Heal.HARD_REBOOT
    w.run(600)
    ended = w.last(name)
    assert ended is not None
    assert ended.status is _H.GONE
    w.run(120)
    assert len(w.world.agents) == 6
