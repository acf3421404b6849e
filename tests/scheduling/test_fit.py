"""Finding room for kernels: on which agent, on which devices, and what selectors may not do."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scheduling.clusters import agent, ask, box, cluster, contents, places, put, workload

from muster.core.errors import MusterError, NotFound
from muster.core.resources import DeviceShare, Resources
from muster.scheduling.cluster.columns import Floats, Ints, Shares
from muster.scheduling.cluster.devices import choose, choose_all
from muster.scheduling.cluster.order import Ranking
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.fit import devices_at, fill, fit_session
from muster.scheduling.policy.plugins import AgentSelector
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.workload import WorkloadClass


class Emptiest(Concentrated):
    """Concentrated turned round."""

    packs = False
    ranking = Ranking.EMPTIEST


class InTurn(Concentrated):
    """One agent after the other."""

    packs = False
    ranking = Ranking.ROUND_ROBIN


def placed(
    snapshot: Snapshot, each: WorkloadClass, count: int = 1, selector: AgentSelector | None = None
) -> list[str]:
    """The agents to which sessions of a class went; they stay there."""
    with Statement(snapshot) as statement:
        found = fill(statement, selector or Concentrated(), each, count)
        statement.keep()
    return places(found)


# Which agent


def test_fullest_agent_is_filled_first_and_then_the_smaller_one() -> None:
    snapshot = cluster(a=box(cpu=8), b=box(cpu=4), c=box(cpu=4), d=box(cpu=4))
    snapshot.take(agent("d"), ask(2))
    assert placed(snapshot, workload(ask(1)), 8) == ["d"] * 2 + ["b"] * 4 + ["c"] * 2
    assert placed(snapshot, workload(ask(3)), 9) == ["a"] * 2


def test_emptiest_agent_is_next_and_the_larger_one_first() -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=8), c=box(cpu=4))
    assert placed(snapshot, workload(ask(1)), 7, Emptiest()) == ["b", "a", "c", "b", "b", "a", "c"]


def test_agents_take_turns_from_where_the_last_kernel_went() -> None:
    snapshot = cluster(a=box(cpu=2), b=box(cpu=1), c=box(cpu=3))
    assert placed(snapshot, workload(ask(1)), 2, InTurn()) == ["a", "b"]
    assert placed(snapshot, workload(ask(1)), 9, InTurn()) == ["c", "a", "c", "c"]


def test_turn_goes_back_with_what_is_undone() -> None:
    snapshot = cluster(a=box(), b=box(), c=box())
    placed(snapshot, workload(ask(1)), 1, InTurn())
    with Statement(snapshot) as statement:
        assert places(fill(statement, InTurn(), workload(ask(1)), 4)) == ["b", "c", "a", "b"]
        assert fit_session(statement, InTurn(), workload(*[ask(9)] * 2)).kernels is None
    assert placed(snapshot, workload(ask(1)), 1, InTurn()) == ["b"]


@pytest.mark.parametrize("selector", [Concentrated(), Emptiest(), InTurn()])
@pytest.mark.parametrize("count", [1, 200])
def test_overbooked_silent_and_unfit_agents_get_nothing(
    selector: AgentSelector, count: int
) -> None:
    snapshot = cluster(
        a=box(status="LOST"), b=box(), c=box(gpus=1), d=box(licence=1), e=box(cpu=0), f=box()
    )
    snapshot.take(agent("b"), ask(0, gib=17), force=True)
    snapshot.take(agent("c"), ask(0, gpu=1), (DeviceShare(4, 1000),), force=True)
    snapshot.take(agent("d"), ask(0, licence=2), force=True)
    assert placed(snapshot, workload(ask(0.1)), count, selector) == ["f"] * min(count, 40)


def test_fill_answers_fewer_when_there_is_no_more_room() -> None:
    snapshot = cluster(a=box(cpu=2), b=box(cpu=1))
    assert placed(snapshot, workload(ask(1)), 500) == ["b", "a", "a"]
    assert placed(snapshot, workload(ask(1)), 500) == []
    assert placed(snapshot, workload(ask(0)), 3) == ["b"] * 3


@pytest.mark.parametrize("request_", [ask(99), ask(0, gib=99), ask(1, unheard=1), ask(0, gpu=1)])
def test_what_is_larger_than_any_agent_fits_nowhere(request_: Resources) -> None:
    assert placed(cluster(a=box(), b=box()), workload(request_), 2) == []
    assert placed(cluster(), workload(request_), 2) == []


def test_more_agents_and_larger_ones_are_found_as_they_come() -> None:
    snapshot = cluster(a=box(cpu=1))
    assert placed(snapshot, workload(ask(2))) == []
    put(snapshot, "b", box(cpu=3))
    assert placed(snapshot, workload(ask(2))) == ["b"]
    put(snapshot, "a", box(cpu=64, gpus=1))
    assert placed(snapshot, workload(ask(40))) == ["a"]
    put(snapshot, "c", box(cpu=4, licence=1))
    assert placed(snapshot, workload(ask(1, licence=1))) == ["c"]
    snapshot.remove_agent(agent("a"))
    assert placed(snapshot, workload(ask(2)), 9) == ["c"]


# Which devices


def test_devices_of_one_agent_now() -> None:
    snapshot = cluster(a=box(gpus=3), b=box(status="LOST", gpus=3))
    snapshot.take(agent("a"), ask(0, gpu=0.5), (DeviceShare(1, 500),))

    def devices(request: Resources, name: str = "a") -> Shares | None:
        return devices_at(snapshot, Concentrated(), request, agent(name))

    assert devices(ask(1)) == ()
    assert devices(ask(1, gpu=2)) == (DeviceShare(0, 1000), DeviceShare(2, 1000))
    assert devices(ask(1, gpu=0.5)) == (DeviceShare(1, 500),)
    assert devices(ask(1, gpu=3)) is None
    assert devices(ask(5)) is None
    assert devices(ask(1, unheard=1)) is None
    assert devices(ask(1), "b") is None
    with pytest.raises(NotFound):
        devices(ask(1), "gone")


@pytest.mark.parametrize(
    ("fullest", "expected"),
    [(True, [2, 2, 0, 0, 0, 1]), (False, [1, 1, 0, 1, 0, 2])],
    ids=["fullest", "emptiest"],
)
def test_fractions_go_to_the_fullest_or_the_emptiest_device(
    fullest: bool, expected: list[int]
) -> None:
    need = cluster(a=box(gpus=3)).columns.need(ask(0, gpu=0.2))
    assert need is not None
    devices = [(700, 0), (1000, 1), (500, 2)]
    chosen = choose(devices, need, 6, fullest=fullest)
    assert [share.index for (share,) in chosen] == expected


@given(
    free=st.lists(
        st.lists(st.sampled_from([0, 100, 250, 500, 999, 1000]), min_size=3, max_size=3),
        min_size=1,
        max_size=4,
    ),
    gpu=st.sampled_from([0.05, 0.25, 0.4, 1, 2]),
    models=st.sampled_from([(), ("H100",)]),
    fullest=st.booleans(),
    data=st.data(),
)
def test_devices_of_many_kernels_are_those_chosen_one_by_one(
    free: list[list[int]], gpu: float, models: tuple[str, ...], fullest: bool, data: st.DataObject
) -> None:
    machine = box(gpus=3, model=["H100", "L4", "H100"])
    snapshot = cluster(**{f"n{number}": machine for number in range(len(free))})
    for slot, devices in enumerate(free):
        shares = tuple(DeviceShare(index, 1000 - left) for index, left in enumerate(devices))
        snapshot.take_at(slot, ask(0), shares)
    request = ask(0, gpu=gpu, models=models)
    columns = snapshot.columns
    need = columns.need(request)
    slots = columns.fitting(request)
    assert need is not None
    most = columns.copies(request, slots, 50).tolist()
    number = np.array([data.draw(st.integers(1, each)) for each in most], np.int64)

    together = choose_all(columns, need, slots, number, fullest=fullest).tolist()
    expected: list[int] = []
    for slot, count in zip(slots.tolist(), number.tolist(), strict=True):
        at_once = choose(need.devices_in(columns.agent(slot)), need, count, fullest=fullest)
        one_by_one = []
        for _ in range(count):
            (shares,) = choose(need.devices_in(columns.agent(slot)), need, 1, fullest=fullest)
            snapshot.take_at(slot, ask(0), shares)
            one_by_one.append(shares)
        assert at_once == one_by_one
        expected += [share.index for shares in one_by_one for share in shares]
    assert together == expected


# Selectors that are not built in


class Stranger(AgentSelector):
    """Answers what it is told to."""

    def __init__(
        self,
        scores: object = None,
        shares: object = None,
        error: Exception | None = None,
        packs: bool = False,
    ) -> None:
        self._scores, self._shares, self._error = scores, shares, error
        self.packs = packs

    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        if self._error is not None:
            raise self._error
        if self._scores is None:
            return np.arange(candidates.size, dtype=float)
        return np.array(self._scores)

    def devices(self, request: Resources, snapshot: Snapshot, slot: int) -> Shares:
        return self._shares  # type: ignore[return-value]


def test_stranger_decides_by_its_scores() -> None:
    snapshot = cluster(a=box(cpu=2), b=box(cpu=2))
    assert placed(snapshot, workload(ask(1)), 3, Stranger()) == ["b", "b", "a"]
    fresh = cluster(a=box(cpu=2), b=box(cpu=2))
    assert placed(fresh, workload(ask(1)), 3, Stranger(packs=True)) == ["b", "b", "a"]


@pytest.mark.parametrize(
    "stranger",
    [
        Stranger([1.0]),
        Stranger([1.0, 2.0, 3.0]),
        Stranger([1.0, float("nan")]),
        Stranger([1.0, float("inf")]),
        Stranger("best"),
        Stranger([[1.0], [2.0]]),
        Stranger(error=RuntimeError("lost")),
    ],
    ids=["few", "many", "nan", "infinite", "text", "shape", "raises"],
)
@pytest.mark.parametrize(
    "ask_for",
    [
        lambda statement, stranger: fill(statement, stranger, workload(ask(1)), 2),
        lambda statement, stranger: fit_session(statement, stranger, workload(ask(1), ask(2))),
        lambda statement, stranger: fit_session(
            statement, stranger, workload(ask(1), ask(2), mode="single-node")
        ),
    ],
    ids=["sessions", "gang", "single node"],
)
def test_selector_that_answers_nonsense_is_named_and_nothing_is_taken(
    stranger: Stranger, ask_for: Callable[[Statement, Stranger], object]
) -> None:
    snapshot = cluster(a=box(), b=box())
    with Statement(snapshot) as statement:
        fill(statement, Concentrated(), workload(ask(1)), 1)
        before = contents(snapshot)
        with pytest.raises(MusterError, match="selector Stranger"):
            ask_for(statement, stranger)
        assert contents(snapshot) == before  # what was there before stays


H100 = "H100"


@pytest.mark.parametrize(
    ("request_", "shares"),
    [
        (ask(0, gpu=1), (DeviceShare(1, 1000),)),
        (ask(0, gpu=1), (DeviceShare(0, 500),)),
        (ask(0, gpu=1), (DeviceShare(7, 1000),)),
        (ask(0, gpu=1), (DeviceShare(-1, 1000),)),
        (ask(0, gpu=1), (DeviceShare(0, 1000), DeviceShare(2, 1000))),
        (ask(0, gpu=2), (DeviceShare(0, 1000), DeviceShare(0, 1000))),
        (ask(0, gpu=2), (DeviceShare(0, 2000),)),
        (ask(0, gpu=0.5), (DeviceShare(1, 500),)),
        (ask(0, gpu=0.5), (DeviceShare(0, 250), DeviceShare(2, 250))),
        (ask(0, gpu=1, models=[H100]), (DeviceShare(2, 1000),)),
        (ask(0, gpu=1), ()),
        (ask(0, gpu=1), None),
        (ask(0, gpu=1), ["first"]),
    ],
    ids=[
        "held",
        "too little",
        "no such device",
        "negative index",
        "too many",
        "twice",
        "too much of one",
        "held fraction",
        "several fractions",
        "another model",
        "none",
        "nothing",
        "text",
    ],
)
@pytest.mark.parametrize("packs", [False, True])
def test_selector_that_names_devices_that_cannot_be_is_named_and_nothing_is_taken(
    request_: Resources, shares: object, packs: bool
) -> None:
    snapshot = cluster(a=box(gpus=3, model=[H100, H100, "L4"]))
    snapshot.take(agent("a"), ask(0, gpu=0.7), (DeviceShare(1, 700),))
    before = contents(snapshot)
    with Statement(snapshot) as statement:
        with pytest.raises(MusterError, match="selector Stranger"):
            fill(statement, Stranger(shares=shares, packs=packs), workload(request_), 2)
        assert contents(snapshot) == before


def names(places_: Sequence[str]) -> set[str]:
    return {place.split(":")[0] for place in places_}


@pytest.mark.parametrize("selector", [Concentrated(), Emptiest(), InTurn()])
@pytest.mark.parametrize(
    "request_", [ask(1), ask(0.3, gpu=0.3), ask(1, gpu=1), ask(1, gpu=2)], ids=str
)
def test_many_kernels_are_placed_as_one_after_the_other(
    selector: AgentSelector, request_: Resources
) -> None:
    """Enough of them, on enough agents, that they are placed together."""

    def machines() -> Snapshot:
        sizes = {f"n{n}": box(4 + n % 5, 16, gpus=n * 3 % 5, licence=n % 2) for n in range(50)}
        snapshot = cluster(**sizes)
        for number in range(0, 50, 3):
            snapshot.take(agent(f"n{number}"), ask(number % 4, 1))
        return snapshot

    one, other = machines(), machines()
    together = placed(one, workload(request_), 90, selector)
    one_by_one = [
        place for _ in range(90) for place in placed(other, workload(request_), 1, selector)
    ]
    assert together == one_by_one
    assert contents(one) == contents(other)
    assert len(names(together)) > 5
