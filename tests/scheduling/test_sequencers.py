"""In which order sessions are tried, and how it changes as they are placed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import ANN, BOB, ask, box, cluster, session

from muster.core.errors import MusterError
from muster.core.owner import Owner
from muster.core.specs import Level, QuotaSpec
from muster.scheduling.accounting.fairness import DecayedUsage
from muster.scheduling.accounting.usage import Quotas, Usage
from muster.scheduling.policy.plugins import PassContext, SessionSequencer, find
from muster.scheduling.policy.sequencers import Drf, FairShare, Fifo, Lifo
from muster.scheduling.workload import SessionWorkload

CAT = Owner("default", "sales", "cat")
DAN = Owner("other", "lab", "dan")
DAY_S = 86_400.0
Key = tuple[object, ...]


def context(
    cpu: float = 100,
    gib: float = 100,
    gpus: int = 0,
    held: Mapping[Owner, Mapping[str, float]] | None = None,
    used: Mapping[Owner, float] | None = None,
    weights: Mapping[str, float] | None = None,
    half_life_s: float = 7 * DAY_S,
) -> PassContext:
    """A pass at second 0.

    Args:
        held: in processors or GPUs, by owner.
        used: processors that each held for the half-life before; nobody holds them now.
    """
    usage, fairness = Usage(), DecayedUsage(half_life_s)
    for owner, amounts in (held or {}).items():
        usage.placed(owner, {name: round(amount * 1000) for name, amount in amounts.items()})
    for owner, cpus in (used or {}).items():
        past = {"cpu": round(cpus * 1000)}
        fairness.placed(owner, past, -half_life_s)
        fairness.released(owner, past, 0)
    levels = (Level.DOMAIN, Level.PROJECT, Level.USER)
    quotas = Quotas(
        QuotaSpec(level=levels[name.count("/")], name=name, weight=weight)
        for name, weight in (weights or {}).items()
    )
    snapshot = cluster(a=box(cpu=cpu, gib=gib, gpus=gpus))
    return PassContext(snapshot, 0, usage=usage, quotas=quotas, fairness=fairness)


def key(sequencer: SessionSequencer, each: SessionWorkload, running: PassContext) -> Key:
    """The key by which a pass orders sessions."""
    return -each.workload.priority, sequencer.key(each, running), each.submitted_at, each.id


def order(
    queue: Sequence[SessionWorkload],
    sequencer: SessionSequencer,
    running: PassContext,
    *,
    room: Mapping[str, float] | None = None,
) -> list[str]:
    """The order in which a pass places them, all of them or all that there is ``room`` for."""
    left = {name: round(amount * 1000) for name, amount in (room or {}).items()}
    waiting, names = list(queue), list[str]()
    while waiting:
        head = min(waiting, key=lambda each: key(sequencer, each, running))
        waiting.remove(head)
        if all(head.workload.total.get(name, 0) <= free for name, free in left.items()):
            for name in left:
                left[name] -= head.workload.total.get(name, 0)
            running.usage.placed(head.workload.owner, head.workload.total)
            names.append(head.id.removeprefix("ses-"))
    return names


def queue_of(*names: str, **rest: object) -> list[SessionWorkload]:
    """One-processor sessions in the order of their age; the owner is the first letter's."""
    owners = {"a": ANN, "b": BOB, "c": CAT, "d": DAN}
    return [
        session(name, ask(cpu=1), at=at, owner=owners[name[0]], **rest)
        for at, name in enumerate(names)
    ]


# First and last


def test_fifo_goes_by_age() -> None:
    assert order(queue_of("b1", "a1", "a2", "b2"), Fifo(), context()) == ["b1", "a1", "a2", "b2"]


def test_lifo_goes_by_youth() -> None:
    assert order(queue_of("b1", "a1", "a2", "b2"), Lifo(), context()) == ["b2", "a2", "a1", "b1"]


@pytest.mark.parametrize("sequencer", [Fifo(), Lifo(), Drf(), FairShare()])
def test_priority_goes_before_whatever_a_sequencer_says(sequencer: SessionSequencer) -> None:
    queue = [session("low", ask(1), at=0), session("high", ask(1), at=1, priority=60)]
    queue.append(session("lower", ask(1), at=2, priority=40))
    assert order(queue, sequencer, context()) == ["high", "low", "lower"]


@pytest.mark.parametrize("sequencer", [Fifo(), Lifo(), Drf(), FairShare()])
def test_sessions_of_one_moment_go_by_identifier(sequencer: SessionSequencer) -> None:
    queue = [session(name, ask(1), at=7) for name in ("q", "p", "r")]
    assert order(queue, sequencer, context()) == ["p", "q", "r"]


# Dominant resource fairness


def test_drf_lets_users_take_turns_though_one_came_first() -> None:
    queue = queue_of("a1", "a2", "a3", "a4", "b1", "b2")
    assert order(queue, Drf(), context()) == ["a1", "b1", "a2", "b2", "a3", "a4"]


def test_drf_starts_with_whoever_holds_the_least() -> None:
    busy = context(held={ANN: {"cpu": 2}})
    assert order(queue_of("a1", "a2", "b1", "b2", "b3"), Drf(), busy) == [
        "b1",
        "b2",
        "a1",  # now both hold two, and this one is older
        "b3",
        "a2",
    ]


def test_drf_shares_as_in_its_paper() -> None:
    """The example of (source: Ghodsi 2011): 9 processors and 18 GB, one user's tasks take 1 and 4,
    the other's 3 and 1: three of the one and two of the other start."""
    running = context(cpu=9, gib=18)
    queue = [session(f"a{n}", ask(cpu=1, gib=4), at=n) for n in range(9)]
    queue += [session(f"b{n}", ask(cpu=3, gib=1), at=n + 9, owner=BOB) for n in range(9)]
    room = {"cpu": 9, "memory": 18 * 2**30 / 1000}
    assert order(queue, Drf(), running, room=room) == ["a0", "b0", "a1", "b1", "a2"]


def test_drf_counts_gpus_as_a_resource() -> None:
    busy = context(cpu=100, gpus=4, held={ANN: {"cpu": 30}, BOB: {"gpu": 2}})
    assert order(queue_of("b1", "a1"), Drf(), busy) == ["a1", "b1"]


def test_drf_takes_nothing_of_what_the_group_does_not_have() -> None:
    busy = context(held={ANN: {"licence": 50}, BOB: {"cpu": 1}})
    assert order(queue_of("b1", "a1"), Drf(), busy) == ["a1", "b1"]


def test_drf_counts_one_user_by_project() -> None:
    elsewhere = Owner("default", "sales", "ann")
    busy = context(held={elsewhere: {"cpu": 50}, BOB: {"cpu": 1}})
    assert order(queue_of("b1", "a1"), Drf(), busy) == ["a1", "b1"]


# Fair share


def test_fair_share_starts_with_whoever_used_the_least_of_late() -> None:
    past = context(used={ANN: 3})
    assert order(queue_of("a1", "b1", "a2", "b2"), FairShare(), past) == ["b1", "b2", "a1", "a2"]


def test_fair_share_sets_what_is_held_now_against_what_was_used() -> None:
    """Three processors for a half-life are one and a half on average."""
    past = context(used={ANN: 3})
    assert order(queue_of("a1", "a2", "b1", "b2", "b3", "b4"), FairShare(), past) == [
        "b1",
        "b2",
        "a1",
        "b3",
        "a2",
        "b4",
    ]


def test_fair_share_forgets_with_time() -> None:
    past = context(used={ANN: 3})
    long_after = replace(past, now=40 * 7 * DAY_S)
    assert order(queue_of("a1", "b1", "a2"), FairShare(), long_after) == ["a1", "b1", "a2"]


def test_fair_share_weighs_users() -> None:
    heavy = context(weights={"default/research/ann": 2})
    assert order(queue_of("b1", "b2", "b3", "a1", "a2", "a3", "a4"), FairShare(), heavy) == [
        "b1",
        "a1",
        "a2",
        "b2",
        "a3",
        "a4",
        "b3",
    ]


def test_fair_share_compares_domains_then_projects_then_users() -> None:
    past = context(used={ANN: 1, BOB: 2, CAT: 4, DAN: 8})
    queue = queue_of("d", "c", "b", "a")
    # default has used 7 and other 8; of default, research 3 and sales 4.
    assert sorted(queue, key=lambda each: key(FairShare(), each, past)) == [
        queue[3],
        queue[2],
        queue[1],
        queue[0],
    ]


def test_fair_share_weighs_domains_before_anything_below() -> None:
    past = context(used={ANN: 1, DAN: 8}, weights={"other": 10, "default/research/ann": 1000})
    assert order(queue_of("a", "d"), FairShare(), past) == ["d", "a"]


def test_fair_share_weighs_projects_before_their_users() -> None:
    past = context(used={ANN: 1, CAT: 3}, weights={"default/sales": 4, "*/*/*": 5})
    assert order(queue_of("a", "c"), FairShare(), past) == ["c", "a"]


@pytest.mark.parametrize("half_life", [3600, "1h", "60m"])
def test_half_life_is_an_option_in_seconds_or_as_text(half_life: float | str) -> None:
    made = find("sequencers", "fair_share", {"fair_share": FairShare}, {"half_life": half_life})
    assert made.half_life_s == 3600


@pytest.mark.parametrize("half_life", [0, -1, "soon", None])
def test_half_life_that_is_none_is_refused(half_life: object) -> None:
    with pytest.raises(
        MusterError, match=r"'fair_share' cannot be made with .*expected a duration"
    ):
        find("sequencers", "fair_share", {"fair_share": FairShare}, {"half_life": half_life})


def test_usage_that_decays_otherwise_is_refused() -> None:
    with pytest.raises(ValueError, match=r"kept with a half-life of 5\.0 s"):
        FairShare("1h").key(session("a", ask(1)), context(half_life_s=5.0))


# What must hold of all of them

owners = st.sampled_from([ANN, BOB, CAT, DAN])
queues = st.lists(
    st.tuples(
        owners,
        st.sampled_from([1, 2]),
        st.sampled_from([0, 1]),
        st.integers(0, 3),
        st.sampled_from([50, 60]),
    ),
    max_size=10,
).map(
    lambda rows: [
        session(str(n), ask(cpu=cpu, gpu=gpu), at=at, owner=owner, priority=priority)
        for n, (owner, cpu, gpu, at, priority) in enumerate(rows)
    ]
)
contexts = st.builds(
    lambda gpus, held, used, weights: context(
        gpus=gpus,
        held={owner: {"cpu": cpu, "gpu": 1} for owner, cpu in held.items()},
        used=used,
        weights=weights,
    ),
    st.integers(0, 8),
    st.dictionaries(owners, st.integers(1, 9)),
    st.dictionaries(owners, st.integers(1, 9)),
    st.dictionaries(st.sampled_from(["default", "*/*", "*/*/*"]), st.floats(0.1, 10)),
)
sequencers: st.SearchStrategy[SessionSequencer] = st.sampled_from(
    [Fifo(), Lifo(), Drf(), FairShare()]
)


@settings(deadline=None)
@given(queues, contexts, sequencers, st.randoms(use_true_random=False))
def test_order_is_the_same_however_the_queue_is_handed_in(
    queue: list[SessionWorkload], running: PassContext, sequencer: SessionSequencer, rng: Random
) -> None:
    other = list(queue)
    rng.shuffle(other)
    keys = [key(sequencer, each, running) for each in queue]
    assert len(set(keys)) == len(queue)
    twin = replace(running, usage=running.usage.fork())
    assert order(other, sequencer, twin) == order(queue, sequencer, running)


@settings(deadline=None)
@given(queues, contexts, sequencers)
def test_no_key_falls_as_sessions_are_placed_and_only_a_dynamic_one_changes(
    queue: list[SessionWorkload], running: PassContext, sequencer: SessionSequencer
) -> None:
    before = [sequencer.key(each, running) for each in queue]
    for placed in queue:
        running.usage.placed(placed.workload.owner, placed.workload.total)
        after = [sequencer.key(each, running) for each in queue]
        assert after == before or sequencer.dynamic
        assert all(new >= old for new, old in zip(after, before, strict=True))
        before = after


@settings(deadline=None)
@given(queues, contexts, st.sampled_from([Drf(), FairShare()]))
def test_dynamic_key_is_the_owners(
    queue: list[SessionWorkload], running: PassContext, sequencer: SessionSequencer
) -> None:
    keys: dict[Owner, tuple[float, ...]] = {}
    for each in queue:
        assert keys.setdefault(each.workload.owner, sequencer.key(each, running)) == sequencer.key(
            each, running
        )
