"""Demand, pools and slices as data, and what is routed where."""

import pytest
from tests.autoscaling.fleets import pool, routed, sentences, sessions, several, where
from tests.scheduling.clusters import ask, box, cluster, workload

from muster.autoscaling.first_fit import FirstFit, GangRoom
from muster.autoscaling.modelled import Destination
from muster.autoscaling.pool_state import Ceilings, ComingSlice
from muster.core.reasons.of_pools import PoolPaused
from muster.scheduling.workload import WorkloadClass

BACKING_OFF = PoolPaused(pool="a")


def test_session_gets_a_slice_of_the_first_pool_by_priority() -> None:
    one = several(1, workload(ask(1)))
    decision = routed(one, pool("late", priority=20), pool("early", priority=10))
    assert where(decision) == {"000": "early+1/0"}
    assert decision.launches == {"early": 1}


def test_sessions_share_machines_as_far_as_these_have_room() -> None:
    decision = routed(several(100, workload(ask(1))), pool("a", cpu=8, slice_size=2))
    assert decision.launches == {"a": 7}  # 16 on a slice


def test_hundred_single_sessions_open_as_many_slices_as_one_of_a_hundred() -> None:
    single = routed(several(100, workload(ask(1))), pool("a", max_slices=100))
    gang = routed(several(1, workload(*[ask(1)] * 100)), pool("a", max_slices=100))
    assert single.launches == gang.launches == {"a": 25}


def test_capacity_that_is_coming_is_used_before_new_slices() -> None:
    coming = [ComingSlice("sl-1", "a", 1)]
    decision = routed(several(5, workload(ask(1))), pool("a", slices=1), coming=coming)
    assert list(where(decision).values()) == ["sl-1/0"] * 4 + ["a+1/0"]
    kinds = [each.destination for each in decision.routed]
    assert kinds == [Destination.COMING] * 4 + [Destination.LAUNCH]


def test_slices_in_flight_that_suffice_have_nothing_launched() -> None:
    coming = [ComingSlice("sl-1", "a", 2)]
    decision = routed(several(1, workload(ask(4), ask(4))), pool("a", slices=1), coming=coming)
    assert where(decision) == {"000": "sl-1/0 sl-1/1"}
    assert decision.launches == {}


def test_gang_takes_free_agents_and_only_the_slices_that_it_needs_besides() -> None:
    agents = cluster(x=box(), y=box())
    decision = routed(several(1, workload(*[ask(4)] * 5)), pool("a"), agents=agents)
    assert where(decision) == {"000": "agt-x agt-y a+1/0 a+2/0 a+3/0"}


def test_gang_is_routed_whole_or_not_at_all() -> None:
    waiting = sessions(("gang", workload(*[ask(4)] * 3)), ("one", workload(ask(4))))
    decision = routed(waiting, pool("a", max_slices=2))
    assert where(decision) == {"one": "a+1/0", "gang": ["a: POOL_GANG_TOO_LARGE"]}
    assert sentences(decision) == [
        "2 of 3 kernels fit if pool a gets the 2 slices that it may get still"
    ]


def test_gang_takes_slices_of_several_pools_where_none_suffices() -> None:
    pools = pool("a", max_slices=2), pool("b", priority=200, max_slices=4)
    assert routed(several(1, workload(*[ask(4)] * 5)), *pools).launches == {"a": 2, "b": 3}
    assert routed(several(1, workload(*[ask(4)] * 4)), *pools).launches == {"b": 4}


def test_gang_of_unlike_kernels_is_counted_by_what_each_asks_for() -> None:
    gang = several(1, workload(ask(1, gpu=1), ask(1, gpu=1), ask(3), ask(3)))
    pools = pool("cpu"), pool("one", gpus=1, priority=200), pool("two", gpus=2, priority=300)
    assert routed(gang, *pools).launches == {"one": 2}
    decision = routed(gang, pool("cpu"), pool("one", gpus=1, max_slices=1))
    assert where(decision) == {"000": ["cpu: POOL_GANG_TOO_LARGE", "one: POOL_GANG_TOO_LARGE"]}
    assert decision.launches == {}


def test_slices_that_a_gang_tried_in_vain_serve_others_and_the_next_gang() -> None:
    large, three = workload(*[ask(4)] * 5), workload(*[ask(3)] * 3)
    waiting = sessions(("large", large), ("one", workload(ask(2))), ("three", three))
    decision = routed(waiting, pool("a", max_slices=2), pool("b", max_slices=2, priority=200))
    assert where(decision)["large"] == ["a: POOL_GANG_TOO_LARGE", "b: POOL_GANG_TOO_LARGE"]
    assert where(decision)["one"] == "a+1/0"
    assert decision.launches == {"a": 2, "b": 2}


def test_gang_of_one_slice_waits_where_no_slice_is_large_enough() -> None:
    gang = workload(*[ask(4)] * 3, together="slice")
    assert routed(several(1, gang), pool("a", slice_size=4)).launches == {"a": 1}
    decision = routed(several(1, gang), pool("a", slice_size=2))
    assert where(decision) == {"000": ["a: POOL_GANG_UNFIT"]}


def test_gang_as_large_as_a_slice_takes_it_whole() -> None:
    gang = workload(*[ask(4)] * 2, together="slice")
    decision = routed(several(3, gang), pool("a", slice_size=2))
    assert where(decision) == {"000": "a+1/0 a+1/1", "001": "a+2/0 a+2/1", "002": "a+3/0 a+3/1"}


def test_gang_on_one_agent_needs_one_large_machine() -> None:
    gang = workload(*[ask(2)] * 3, mode="single-node")
    decision = routed(several(1, gang), pool("small"), pool("large", cpu=8, priority=200))
    assert where(decision) == {"000": "large+1/0"}


def test_devices_and_their_models_choose_pools() -> None:
    pools = [
        pool("cpu"),
        pool("a100", gpus=8, model="NVIDIA A100 80GB"),
        pool("h100", gpus=8, model="NVIDIA H100 80GB HBM3", priority=200),
    ]
    waiting = sessions(
        ("any", workload(ask(1, gpu=1))),
        ("h100", workload(ask(1, gpu=8, models=["H100"]))),
        ("b200", workload(ask(1, gpu=1, models=["B200"]))),
    )
    decision = routed(waiting, *pools)
    assert where(decision) == {
        "any": "a100+1/0",
        "h100": "h100+1/0",
        "b200": ["cpu: POOL_NO_DEVICE", "a100: POOL_OTHER_DEVICE", "h100: POOL_OTHER_DEVICE"],
    }
    assert sentences(decision)[1] == "machines of pool a100 have NVIDIA A100 80GB, not B200"


def test_of_equal_pools_the_one_that_leaves_devices_unused_is_taken_then_the_cheaper() -> None:
    one = several(1, workload(ask(1)))
    cheap_gpu = pool("gpu", gpus=8, price=1)
    assert routed(one, cheap_gpu, pool("dear", price=3)).launches == {"dear": 1}
    assert routed(one, pool("dear", price=3), pool("cheap", price=2)).launches == {"cheap": 1}
    shaky = pool("a", interruptions=2)
    assert routed(one, shaky, pool("b", interruptions=1)).launches == {"b": 1}


@pytest.mark.parametrize(
    ("constraint", "launches"),
    [
        ("zone=b", {"b": 1}),
        ("zone in b,c", {"b": 1}),
        ("disk>=100", {"b": 1}),
        ("!disk", {"a": 1}),
        ("preemptible=true", {"b": 1}),
        ({"attribute": "zone", "values": "z", "soft": True}, {"a": 1}),
    ],
)
def test_constraints_choose_pools(constraint: object, launches: dict[str, int]) -> None:
    pools = [
        pool("a", attributes={"zone": "a"}),
        pool("b", attributes={"zone": "b", "disk": "200"}, preemptible=True, priority=200),
    ]
    decision = routed(several(1, workload(ask(1), constraints=[constraint])), *pools)
    assert decision.launches == launches


def test_rule_that_no_pool_meets_is_told_with_what_was_perhaps_meant() -> None:
    pools = [pool("a", attributes={"zone": "east"}), pool("b")]
    decision = routed(several(1, workload(ask(1), constraints=["zone=eats"])), *pools)
    assert sentences(decision) == [
        "machines of pool a do not meet zone=eats: they have east",
        "machines of pool b do not meet zone=eats: they have no such attribute",
    ]
    assert decision.unmet[0].why.nearest == "zone=east"


def test_work_for_named_agents_alone_gets_no_new_machine() -> None:
    decision = routed(several(1, workload(ask(1), agents=["node7"])), pool("a"))
    assert where(decision) == {"000": ["a: POOL_NOT_DESIGNATED"]}


def test_request_larger_than_a_machine_is_told_with_its_numbers() -> None:
    decision = routed(several(1, workload(ask(8, gib=64))), pool("a"))
    assert sentences(decision) == [
        "cpu: 8 asked, a machine of pool a has 4",
        "memory: 64GiB asked, a machine of pool a has 16GiB",
    ]


def test_pool_at_its_most_and_closed_pools_say_so_and_the_next_pool_serves() -> None:
    full, closed = pool("full", slices=10), pool("closed", closed=BACKING_OFF)
    one = several(1, workload(ask(1)))
    assert where(routed(one, full, closed)) == {
        "000": ["full: POOL_AT_MAX", "closed: POOL_PAUSED"],
    }
    assert routed(one, full, closed, pool("other", priority=200)).launches == {"other": 1}


def test_pool_that_is_probed_makes_one_slice_at_a_time() -> None:
    decision = routed(several(5, workload(ask(4))), pool("a", at_once=1))
    assert decision.launches == {"a": 1}
    assert where(decision)["001"] == ["a: POOL_PROBED"]


def test_ceilings_of_the_group_bind_all_of_its_pools_together() -> None:
    pools = pool("a", gpus=2, price=1), pool("b", gpus=4, price=8, priority=200)
    waiting = several(9, workload(ask(1, gpu=1)))
    gpus = routed(waiting, *pools, ceilings=Ceilings(gpus=7))
    assert gpus.launches == {"a": 3}
    assert sentences(gpus)[:2] == [
        "a slice of pool a would bring group pool above its max_gpus of 7: 6 + 2",
        "a slice of pool b would bring group pool above its max_gpus of 7: 6 + 4",
    ]
    assert routed(waiting, *pools, ceilings=Ceilings(price=10)).launches == {"a": 5}
    price = routed(waiting, *pools, ceilings=Ceilings(price=3))
    assert sentences(price)[0] == (
        "a slice of pool a would bring group pool above its max_price of 3.00 an hour: 3.00 + 1.00"
    )
    assert routed(waiting, *pools, ceilings=Ceilings(machines=0)).launches == {}


def test_earlier_entries_of_the_queue_are_served_first() -> None:
    large, small = workload(ask(4)), workload(ask(1))
    waiting = sessions(("s1", small), ("l1", large), ("s2", small), ("l2", large))
    assert where(routed(waiting, pool("a", max_slices=2))) == {
        "s1": "a+1/0",
        "l1": "a+2/0",
        "s2": "a+1/0",
        "l2": ["a: POOL_AT_MAX"],
    }


def test_room_that_is_free_is_no_reason_to_make_machines() -> None:
    decision = routed(several(2, workload(ask(2))), pool("a"), agents=cluster(x=box()))
    assert [each.destination for each in decision.routed] == [Destination.FREE] * 2
    assert decision.launches == {}


def test_agents_that_are_there_stay_as_they_are() -> None:
    agents = cluster(x=box(cpu=1))
    before = agents.columns.free.tolist(), agents.version, agents.ids[:]
    routed(several(20, workload(ask(1, gib=1), agents_only=False)), pool("a"), agents=agents)
    assert (agents.columns.free.tolist(), agents.version, agents.ids[:]) == before


def test_gang_on_machines_of_one_value_is_tried_by_placement_once_for_all_values_of_agents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each agent may have a value of its own: to try them one by one is quadratic."""
    tried: list[object] = []
    fit = FirstFit.fit

    def noted(self: FirstFit, asked: WorkloadClass) -> GangRoom:
        tried.append(asked)
        return fit(self, asked)

    monkeypatch.setattr(FirstFit, "fit", noted)
    hosts = {f"h{number:03}": box(8, 64, has={"rack": f"{number}"}) for number in range(100)}
    gang = workload(*[ask(2)] * 3, *[ask(1)] * 8, together="rack")
    paused = pool("p", 64, closed=PoolPaused(pool="p"), attributes={"rack": "p"})
    decision = routed(several(1, gang), paused, agents=cluster(**hosts))
    assert len(decision.unmet) == 1
    assert len(tried) <= 2
    tried.clear()
    few = {name: hosts[name] for name in [*hosts][:10]}
    alike = workload(*[ask(2)] * 4, together="rack")
    assert len(routed(several(11, alike), paused, agents=cluster(**few)).routed) == 10
    assert not tried, "where kernels are alike, first fit knows"
    roomy = cluster(**hosts | {"last": box(16, 64, has={"rack": "last"})})
    decision = routed(several(1, gang), paused, agents=roomy)
    assert {kernel.agent_id for kernel in decision.routed[0].kernels} == {"agt-last"}
