"""Constraints and preferences of sessions on their agents."""

import pytest
from tests.scheduling.clusters import agent, ask, box, cluster, places, put, workload

from muster.core.resources import DeviceShare, Resources
from muster.core.specs import PlacementSpec
from muster.core.specs.placement import Constraint
from muster.scheduling.cluster.constraints import eligible, is_met, meets, soft_ranks, tiers
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.fit import fill, fit_session
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import WorkloadClass


def constraint(**fields: object) -> Constraint:
    return Constraint.model_validate(fields)


def placed(snapshot: Snapshot, each: WorkloadClass, count: int = 1) -> list[str]:
    with Statement(snapshot) as statement:
        return places(fill(statement, Concentrated(), each, count))


# Operators


@pytest.mark.parametrize(
    ("fields", "met_by", "not_by"),
    [
        ({"values": "b"}, ["b"], ["a", "B", "", None]),
        ({"op": "NE", "values": "b"}, ["a", "", None], ["b"]),
        ({"op": "IN", "values": ["a", "b"]}, ["a", "b"], ["c", None]),
        ({"op": "EXISTS"}, ["", "false"], [None]),
        ({"op": "NOT_EXISTS"}, [None], ["", "false"]),
        ({"op": "GT", "values": "10"}, ["11", "1e9", " 10.5 "], ["10", "9", "x", "", None]),
        ({"op": "GE", "values": "10"}, ["10", "10.0"], ["9.99", "nan", "inf", None]),
        ({"op": "LT", "values": "-1"}, ["-1.5", "-1e3"], ["-1", "0", "-inf", None]),
        ({"op": "LE", "values": "2.5"}, ["2.5", "2", "-7"], ["2.51", "two", None]),
    ],
    ids=["EQ", "NE", "IN", "EXISTS", "NOT_EXISTS", "GT", "GE", "LT", "LE"],
)
def test_operator_is_met_by(
    fields: dict[str, object], met_by: list[str | None], not_by: list[str | None]
) -> None:
    rule = constraint(attribute="x", **fields)
    assert [value for value in [*met_by, *not_by] if is_met(rule, value)] == met_by


def test_constraints_look_at_each_agents_own_attribute() -> None:
    snapshot = cluster(
        a=box(has={"zone": "x", "disk": "100"}), b=box(has={"zone": "y"}), c=box(has={"disk": "7"})
    )
    rules = ["zone=x", "zone!=x", "disk>=50", "!disk", "unheard", "!unheard"]
    found = {
        rule: meets(snapshot, PlacementSpec.model_validate({"constraints": [rule]}).constraints[0])
        for rule in rules
    }
    assert {rule: mask.tolist() for rule, mask in found.items()} == {
        "zone=x": [True, False, False],
        "zone!=x": [False, True, True],
        "disk>=50": [True, False, False],
        "!disk": [False, True, False],
        "unheard": [False, False, False],
        "!unheard": [True, True, True],
    }


# Hard rules


def test_all_hard_constraints_must_hold() -> None:
    snapshot = cluster(
        a=box(has={"zone": "x"}),
        b=box(has={"zone": "x", "nvlink": "1"}),
        c=box(has={"nvlink": "1"}),
    )
    each = workload(ask(1), constraints=["zone=x", "nvlink"])
    assert placed(snapshot, each, 9) == ["b"] * 4
    assert placed(snapshot, workload(ask(1), constraints=["zone=y"])) == []


def test_designated_agents_are_the_only_ones() -> None:
    snapshot = cluster(a=box(), b=box(), c=box())
    assert placed(snapshot, workload(ask(2), agents=["c", "b", "gone"]), 9) == ["b", "b", "c", "c"]
    assert placed(snapshot, workload(ask(2), agents=["gone"]), 9) == []


def test_what_has_no_rules_may_go_anywhere() -> None:
    snapshot = cluster(a=box(), b=box())
    plain = workload(ask(1))
    equal = WorkloadClass(plain.owner, plain.group, 50, plain.kernels, placement=PlacementSpec())
    soft = workload(ask(1), constraints=[{"attribute": "zone", "op": "EXISTS", "soft": True}])
    for each in (plain, equal, soft):
        assert eligible(snapshot, each) is None
        assert placed(snapshot, each, 9) == ["a"] * 4 + ["b"] * 4


# Ranks


def test_more_soft_constraints_met_come_first_and_none_still_counts() -> None:
    soft = [
        {"attribute": "zone", "values": "x", "soft": True},
        {"attribute": "ssd", "op": "EXISTS", "soft": True},
    ]
    snapshot = cluster(
        a=box(cpu=1),
        b=box(cpu=1, has={"zone": "x"}),
        c=box(cpu=1, has={"zone": "x", "ssd": "1"}),
        d=box(cpu=1, has={"ssd": "1"}),
    )
    assert placed(snapshot, workload(ask(1), constraints=soft), 9) == ["c", "b", "d", "a"]


def test_preferred_agents_come_before_soft_constraints_and_failed_ones_last() -> None:
    soft = [{"attribute": "ssd", "op": "EXISTS", "soft": True}]
    snapshot = cluster(
        a=box(cpu=1, has={"ssd": "1"}),
        b=box(cpu=1),
        c=box(cpu=1, has={"ssd": "1"}),
        d=box(cpu=1),
        e=box(cpu=1),
    )
    each = workload(
        ask(1), constraints=soft, agents=["d", "e"], agents_only=False, failed=["a", "d"]
    )
    assert placed(snapshot, each, 9) == ["e", "c", "b", "d", "a"]
    ranks = soft_ranks(snapshot, each)
    assert ranks is not None
    assert sorted(range(5), key=ranks.tolist().__getitem__) == [4, 2, 1, 3, 0]


def test_hard_rules_hold_in_every_rank() -> None:
    snapshot = cluster(
        a=box(cpu=1, has={"zone": "x"}), b=box(cpu=1), c=box(cpu=1, has={"zone": "x"})
    )
    each = workload(ask(1), constraints=["zone=x"], failed=["a"])
    assert placed(snapshot, each, 9) == ["c", "a"]


def test_agents_without_gpus_are_preferred_for_work_without_gpus() -> None:
    snapshot = cluster(gpu=box(cpu=4, gpus=2), plain=box(cpu=4), other=box(cpu=4, gpus=1))
    snapshot.take(agent("gpu"), ask(3))  # the fullest
    assert placed(snapshot, workload(ask(1)), 6) == ["plain"] * 4 + ["gpu", "other"]
    assert placed(snapshot, workload(ask(1, gpu=1))) == ["gpu:0"]
    assert placed(snapshot, workload(ask(1), agents=["gpu", "plain"]), 5) == ["plain"] * 4 + ["gpu"]
    rule = [{"attribute": "x", "op": "EXISTS", "soft": True}]
    put(snapshot, "other", box(cpu=4, gpus=1, has={"x": ""}))
    assert placed(snapshot, workload(ask(1), constraints=rule)) == ["other"]  # what was asked for


# Device models


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ask(0, gpu=1, models=["L4"]), ["low:0", "mixed:1", "mixed:3"]),
        (ask(0, gpu=2, models=["L4"]), ["mixed:1,3"]),
        (ask(0, gpu=1, models=["H100"]), ["mixed:0", "mixed:2"]),
        (ask(0, gpu=0.5, models=["H100 80GB"]), ["mixed:0=500"] * 2),
        (ask(0, gpu=3, models=["H100"]), []),
        (ask(0, gpu=1, models=["A100"]), []),
        (ask(0, gpu=3, models=["A100", "H100", "L4"]), ["mixed:0,1,2"]),
    ],
    ids=["variant", "two", "other", "fraction", "too many", "none", "any of them"],
)
def test_only_devices_of_an_allowed_model_count(request_: Resources, expected: list[str]) -> None:
    models = ["NVIDIA H100 80GB HBM3", "NVIDIA L4", "NVIDIA H100 PCIe", "NVIDIA L4"]
    snapshot = cluster(mixed=box(gpus=4, model=models), low=box(gpus=1, model="NVIDIA L4"))
    found = placed(snapshot, workload(request_), 9)
    assert found == expected
    slots = [snapshot.slot(agent(name)) for name in {each.split(":")[0] for each in expected}]
    assert snapshot.columns.fitting(request_).tolist() == sorted(slots)


def test_busy_devices_of_other_models_do_not_stand_in_the_way() -> None:
    snapshot = cluster(a=box(gpus=3, model=["H100", "L4", "L4"]))
    snapshot.take(agent("a"), ask(0, gpu=1), (DeviceShare(1, 1000),))
    assert placed(snapshot, workload(ask(0, gpu=1, models=["L4"])), 3) == ["a:2"]
    assert placed(snapshot, workload(ask(0, gpu=1, models=["H100"])), 3) == ["a:0"]


# Sets


def test_sessions_of_a_set_are_spread_over_agents() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=2), c=box(cpu=9))
    each = workload(ask(1), set="replicas")
    assert placed(snapshot, each, 7) == ["b", "a", "c", "b", "a", "c", "a"]
    assert placed(snapshot, each, 1) == ["b"]  # as before: nothing was kept


def test_sessions_of_a_set_are_packed_onto_few_agents() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=2), c=box(cpu=9))
    each = workload(ask(1), set="cache", set_grouping="pack")
    snapshot.set_joined(agent("c"), (each.owner, "cache"), 1)
    snapshot.take(agent("a"), ask(3))  # the fullest
    assert placed(snapshot, each, 10) == ["c"] * 9 + ["a"]


def test_sets_of_others_and_other_sets_do_not_count() -> None:
    snapshot = cluster(a=box(), b=box())
    each = workload(ask(1), set="replicas")
    snapshot.set_joined(agent("a"), (workload(ask(1)).owner, "others"), 3)
    assert placed(snapshot, each) == ["a"]
    snapshot.set_joined(agent("a"), (each.owner, "replicas"), 1)
    assert placed(snapshot, each) == ["b"]
    snapshot.set_joined(agent("a"), (each.owner, "replicas"), -1)
    assert placed(snapshot, each) == ["a"]


def test_set_of_an_agent_that_left_is_forgotten() -> None:
    snapshot = cluster(a=box(), b=box())
    key = workload(ask(1)).owner, "replicas"
    snapshot.set_joined(agent("a"), key, 2)
    snapshot.remove_agent(agent("a"))
    assert snapshot.in_set(key) == {}
    snapshot.set_joined(agent("a"), key, -2)  # left with it
    put(snapshot, "c", box())
    # in the slot of a
    assert placed(snapshot, workload(ask(1), set="replicas"), 2) == ["c", "b"]


def test_kernels_of_one_session_are_spread_with_its_set() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4))
    with Statement(snapshot) as statement:
        fit = fit_session(
            statement, Concentrated(), workload(ask(1), ask(1), ask(2), set="replicas")
        )
        assert places(fit.kernels or ()) == ["b", "a", "a"]
        statement.keep()
    key = workload(ask(1)).owner, "replicas"
    assert snapshot.in_set(key) == {0: 2, 1: 1}


# What is remembered


def test_rules_are_looked_at_anew_when_agents_change() -> None:
    snapshot = cluster(a=box(has={"zone": "x"}), b=box())
    each = workload(ask(1), constraints=["zone=x"])
    assert placed(snapshot, each) == ["a"]
    put(snapshot, "a", box(has={"zone": "y"}))
    assert placed(snapshot, each) == []
    put(snapshot, "c", box(has={"zone": "x"}))
    assert placed(snapshot, each) == ["c"]
    snapshot.remove_agent(agent("c"))
    assert placed(snapshot, each) == []
    put(snapshot, "d", box())  # in the slot of c, without its attribute
    assert placed(snapshot, each) == []


def test_rules_are_not_looked_at_anew_when_amounts_change() -> None:
    snapshot = cluster(a=box(has={"zone": "x"}), b=box())
    each = workload(ask(1), constraints=["zone=x"])
    known = tiers(snapshot, each)
    snapshot.take(agent("a"), ask(1))
    put(snapshot, "b", box(cpu=9, status="LOST"))
    assert tiers(snapshot, each) is known


def test_equal_rules_of_other_objects_are_one() -> None:
    snapshot = cluster(a=box(has={"zone": "x"}), b=box())
    specs = [PlacementSpec.model_validate({"constraints": ["zone=x"]}) for _ in range(2)]
    one, other = (
        WorkloadClass(workload(ask(1)).owner, "pool", 50, (ask(1),), placement=spec)
        for spec in specs
    )
    assert tiers(snapshot, one) is tiers(snapshot, other)
