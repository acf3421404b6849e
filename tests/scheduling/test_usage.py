"""The usage of an owner is always the sum of the resources placed and not yet given back."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import ANN, BOB

from muster.core.owner import Owner
from muster.core.specs import Level, QuotaLimits, QuotaSpec
from muster.scheduling.accounting.usage import Quotas, Scope, ScopeUsage, Usage, scopes
from muster.scheduling.cluster.snapshot import NotHeld

CAT = Owner("default", "sales", "cat")
DAN = Owner("other", "research", "dan")
OWNERS = (ANN, BOB, CAT, DAN)
SCOPES = tuple({scope for owner in OWNERS for scope in scopes(owner)})

NOTHING = ScopeUsage()


def held(usage: Usage) -> dict[str, ScopeUsage]:
    """All that is held, by name; who holds nothing is left out."""
    return {
        name: usage.of((level, name))
        for level, name in SCOPES
        if usage.of((level, name)) != NOTHING
    }


def test_session_counts_for_its_user_project_and_domain() -> None:
    usage = Usage()
    usage.placed(ANN, {"cpu": 3000, "gpu": 1000})
    usage.placed(BOB, {"cpu": 2000}, sessions=2)
    usage.placed(CAT, {"memory": 7})
    usage.waits(ANN, 4)
    research = ScopeUsage({"cpu": 5000, "gpu": 1000}, sessions=3, pending=4)
    assert held(usage) == {
        "default/research/ann": ScopeUsage({"cpu": 3000, "gpu": 1000}, sessions=1, pending=4),
        "default/research/bob": ScopeUsage({"cpu": 2000}, sessions=2),
        "default/sales/cat": ScopeUsage({"memory": 7}, sessions=1),
        "default/research": research,
        "default/sales": ScopeUsage({"memory": 7}, sessions=1),
        "default": ScopeUsage(research.amounts | {"memory": 7}, sessions=4, pending=4),
    }


def test_what_was_placed_and_given_back_leaves_no_trace() -> None:
    usage = Usage()
    usage.placed(BOB, {"cpu": 1000})
    before = held(usage.fork())
    usage.placed(ANN, {"cpu": 3000, "gpu": 1000}, sessions=2)
    usage.placed(ANN, {"cpu": 3000, "gpu": 1000}, sessions=-2)
    assert held(usage) == before


@pytest.mark.parametrize(
    ("amounts", "sessions"),
    [({"cpu": 1001}, -1), ({"cpu": 1000, "gpu": 1}, -1), ({"cpu": 1000}, -2)],
    ids=["more of it", "what was never held", "more sessions"],
)
def test_more_than_is_held_cannot_be_given_back(amounts: dict[str, int], sessions: int) -> None:
    usage = Usage()
    usage.placed(ANN, {"cpu": 1000})
    usage.placed(BOB, {"cpu": 9000, "gpu": 8000}, sessions=9)  # the same project has enough
    before = repr(held(usage))
    with pytest.raises(NotHeld, match=r"default/research/ann holds .*1000"):
        usage.placed(ANN, amounts, sessions)
    assert repr(held(usage)) == before


def test_fewer_than_none_cannot_wait() -> None:
    usage = Usage()
    usage.waits(ANN, 1)
    usage.waits(BOB, 5)
    with pytest.raises(NotHeld, match="default/research/ann has 1 sessions waiting, not 2"):
        usage.waits(ANN, -2)
    usage.waits(ANN, -1)
    assert usage.of((Level.PROJECT, "default/research")).pending == 5


def test_fork_starts_from_the_original_and_leaves_it_as_it_was() -> None:
    usage = Usage()
    usage.placed(ANN, {"cpu": 1000})
    usage.waits(BOB, 7)
    fork = usage.fork()
    fork.placed(BOB, {"cpu": 500})
    twig = fork.fork()
    twig.placed(ANN, {"cpu": 1000}, sessions=-1)
    twig.waits(ANN, 1)
    project = (Level.PROJECT, "default/research")
    assert usage.of(project) == ScopeUsage({"cpu": 1000}, sessions=1, pending=7)
    assert fork.of(project) == ScopeUsage({"cpu": 1500}, sessions=2, pending=7)
    assert twig.of(project) == ScopeUsage({"cpu": 500}, sessions=1, pending=8)


Session = tuple[Owner, dict[str, int]]

sessions: st.SearchStrategy[Session] = st.tuples(
    st.sampled_from(OWNERS),
    st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(1, 3)),
)


def added_up(placed: Iterable[Session]) -> dict[str, ScopeUsage]:
    sums: dict[str, ScopeUsage] = {}
    for owner, amounts in placed:
        for _, name in scopes(owner):
            holding = sums.setdefault(name, ScopeUsage())
            holding.sessions += 1
            for resource, amount in amounts.items():
                holding.amounts[resource] = holding.amounts.get(resource, 0) + amount
    return sums


@settings(deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from("++-f?"), sessions), max_size=30))
def test_usage_is_what_its_sessions_add_up_to(steps: list[tuple[str, Session]]) -> None:
    """Placed, given back, refused, or gone on with in a fork, in any order."""
    usage, placed, originals = Usage(), list[Session](), list[tuple[Usage, list[Session]]]()
    for step, (owner, amounts) in steps:
        if step == "+":
            usage.placed(owner, amounts)
            placed.append((owner, amounts))
        elif step == "-" and placed:
            gone, its = placed.pop(0)
            usage.placed(gone, its, sessions=-1)
        elif step == "f":
            originals.append((usage, list(placed)))
            usage = usage.fork()
        elif step == "?":
            with pytest.raises(NotHeld):
                usage.placed(owner, {**amounts, "disk": 1}, sessions=-1)
        assert held(usage) == added_up(placed)
    for original, then in originals:
        assert held(original) == added_up(then)


# Quotas


def quota(level: Level, name: str, cpu: int) -> QuotaSpec:
    return QuotaSpec(level=level, name=name, limits=QuotaLimits(cpu=cpu))


QUOTAS = Quotas(
    [
        quota(Level.USER, "*/*/*", cpu=1),
        quota(Level.USER, "default/*/*", cpu=2),
        quota(Level.USER, "default/research/*", cpu=3),
        quota(Level.USER, "default/research/ann", cpu=4),
        quota(Level.DOMAIN, "default", cpu=5),
    ]
)


@pytest.mark.parametrize(
    ("scope", "cpu"),
    [
        ((Level.USER, "default/research/ann"), 4),
        ((Level.USER, "default/research/bob"), 3),
        ((Level.USER, "default/sales/ann"), 2),
        ((Level.USER, "other/research/ann"), 1),
        ((Level.PROJECT, "default/research"), None),
        ((Level.DOMAIN, "default"), 5),
        ((Level.DOMAIN, "other"), None),
    ],
)
def test_nearest_quota_holds(scope: Scope, cpu: int | None) -> None:
    for _ in range(2):  # found, then remembered
        found = QUOTAS.of(scope)
        limits = None if found is None else dict(found.limits.amounts)
        assert limits == (None if cpu is None else {"cpu": cpu * 1000})
