"""Parts of a policy are found by name; what they answer is checked."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.scheduling.clusters import ask, box, cluster, contents, group, policy, session, where

from muster.core.errors import MusterError
from muster.core.reasons import Reason, ReasonCode, reason
from muster.core.resources import DeviceShare, Resources
from muster.scheduling.columns import Floats, Ints, Shares
from muster.scheduling.placement import place
from muster.scheduling.plugins import PassContext
from muster.scheduling.policy import Policy
from muster.scheduling.selectors import Concentrated
from muster.scheduling.snapshot import OverCapacity, Snapshot
from muster.scheduling.workload import SessionWorkload


def test_policy_takes_its_parts_from_the_group() -> None:
    built = Policy.of(group(starvation_after=7))
    assert isinstance(built.selector, Concentrated)
    assert (built.validators, built.starvation_after_s) == ((), 7)


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"sequencer": "lottery"}, "there is no sequencer named 'lottery'; known: fifo"),
        ({"selector": "best"}, "there is no selector named 'best'; known: concentrated"),
    ],
)
def test_unknown_part_is_refused_with_the_known_ones(parts: dict[str, str], sentence: str) -> None:
    with pytest.raises(MusterError) as caught:
        Policy.of(group(**parts))
    assert str(caught.value) == sentence


def test_unknown_validator_is_refused() -> None:
    with pytest.raises(MusterError, match="no validator named 'quota'; known: none"):
        Policy.of(group(), validators=["quota"])


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with plug-ins, as an installer leaves it."""
    (tmp_path / "stranger_parts.py").write_text(
        "class Dispersed:\n"
        "    packs = False\n"
        "    def score(self, request, snapshot, candidates):\n"
        "        return -snapshot.columns.utilisation[candidates]\n"
        "    def devices(self, request, snapshot, slot):\n"
        "        raise NotImplementedError\n"
    )
    metadata = tmp_path / "stranger-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[muster.selectors]\n"
        "stranger = stranger_parts:Dispersed\n"
        "broken = stranger_parts:Missing\n"
        "concentrated = stranger_parts:Dispersed\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
def test_installed_selector_is_found_by_its_name_and_decides() -> None:
    queue = [session(str(n), ask(1), at=n) for n in range(3)]
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4))
    stranger = policy(selector="stranger")
    assert where(place(queue, snapshot, stranger, 5)) == {"0": ["a"], "1": ["b"], "2": ["a"]}


@pytest.mark.usefixtures("installed")
def test_installed_selector_that_cannot_be_loaded_is_refused_by_name() -> None:
    with pytest.raises(MusterError, match=r"selector 'broken' cannot be loaded: .*Missing"):
        policy(selector="broken")


@pytest.mark.usefixtures("installed")
def test_built_in_selector_cannot_be_replaced() -> None:
    assert isinstance(policy(selector="concentrated").selector, Concentrated)
    with pytest.raises(MusterError, match="known: broken, concentrated, stranger"):
        policy(selector="unheard")


class Answers(Concentrated):
    """A selector that answers what it is told to."""

    def __init__(self, *scores: float, shares: Shares | None = None) -> None:
        self._scores = scores
        self._shares = shares

    def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
        if self._scores:
            return np.array(self._scores)
        return super().score(request, snapshot, candidates)

    def devices(self, request: Resources, snapshot: Snapshot, slot: int) -> Shares:
        return self._shares or super().devices(request, snapshot, slot)


@pytest.mark.parametrize(
    "selector",
    [Answers(1, float("nan")), Answers(1, float("inf")), Answers(1), Answers(1, 2, 3)],
    ids=["not a number", "infinite", "too few", "too many"],
)
def test_selector_that_answers_nonsense_is_named_and_nothing_is_taken(selector: Answers) -> None:
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4))
    before = contents(snapshot)
    with pytest.raises(MusterError, match="selector Answers must answer a finite number"):
        place([session("s", ask(1))], snapshot, replace(policy(), selector=selector), 5)
    assert contents(snapshot) == before


def test_selector_that_names_held_devices_is_refused_and_nothing_is_taken() -> None:
    snapshot = cluster(a=box(cpu=4, gpus=2))
    stuck = replace(policy(), selector=Answers(shares=(DeviceShare(1, 1000),)))
    before = contents(snapshot)
    queue = [session("s", ask(1, gpu=1)), session("t", ask(1, gpu=1))]
    with pytest.raises(OverCapacity, match="agent a has no room"):
        place(queue, snapshot, stuck, 5)
    assert contents(snapshot) == before


class OneAPass:
    """A validator that counts what was placed earlier in the pass."""

    def validate(self, session: SessionWorkload, context: PassContext) -> Sequence[Reason]:
        return [reason(ReasonCode.LOST_RACE)] if context.placed else []


def test_validator_sees_what_was_placed_before_and_its_refusal_blocks_nobody() -> None:
    queue = [session(str(n), ask(1), at=n) for n in range(3)]
    strict = replace(policy(starvation_after=0), validators=(OneAPass(),))
    assert where(place(queue, cluster(a=box(cpu=4)), strict, 5)) == {
        "0": ["a"],
        "1": ["LOST_RACE"],
        "2": ["LOST_RACE"],
    }


class Alternating:
    """A lazy sequencer: whoever had less in this pass is next."""

    def sequence(
        self, sessions: Sequence[SessionWorkload], context: PassContext
    ) -> Iterator[SessionWorkload]:
        left = list(sessions)
        while left:
            started = [each.id[:5] for each in context.placed]
            left.sort(key=lambda each: (started.count(each.id[:5]), each.id))
            yield left.pop(0)


def test_lazy_sequencer_sees_what_was_placed_before() -> None:
    queue = [session(name, ask(1)) for name in ("a1", "a2", "a3", "b1", "b2")]
    fair = replace(policy(), sequencer=Alternating())
    assert list(where(place(queue, cluster(x=box(cpu=5)), fair, 5))) == [
        "a1",
        "b1",
        "a2",
        "b2",
        "a3",
    ]
