"""Parts of a policy are found by name; those of strangers are on a leash, built-in ones serve."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.scheduling.clusters import (
    BOB,
    ask,
    box,
    cluster,
    context,
    group,
    policy,
    session,
    where,
)

import muster.scheduling
from muster.core.errors import InvalidSpec, MusterError
from muster.core.reasons import Reason
from muster.core.reasons.of_sessions import RoomTakenMeanwhile
from muster.core.resources import Resources
from muster.core.specs import Level, SessionType
from muster.core.specs.group import DEFAULT_VALIDATORS, PreemptionSpec, QueuePolicy
from muster.scheduling.cluster.columns import Floats, Ints, Shares
from muster.scheduling.cluster.snapshot import Snapshot
from muster.scheduling.cluster.statement import Statement
from muster.scheduling.fitting.filling import Filling
from muster.scheduling.passes.placement import place
from muster.scheduling.passes.queue import Queue
from muster.scheduling.policy.group_policy import Policy, check_options, missing_parts
from muster.scheduling.policy.guard import GuardedSelector, PluginFault, guarded_selector
from muster.scheduling.policy.hooks import BatchHook
from muster.scheduling.policy.plugins import PassContext, SessionSequencer
from muster.scheduling.policy.selectors import Concentrated
from muster.scheduling.policy.sequencers import FairShare, Fifo
from muster.scheduling.workload import SessionWorkload, WorkloadClass


def test_policy_takes_its_parts_from_the_group() -> None:
    built = Policy.of(group(starvation_after=7, preemption={"scope": "user"}))
    assert isinstance(built.selector, Concentrated)
    assert isinstance(built.sequencer, Fifo)
    assert len(built.validators) == 1 + len(DEFAULT_VALIDATORS), "and that of held jobs"
    assert (built.queue, built.starvation_after_s) == (QueuePolicy.BACKFILL, 7)
    assert built.preemption == PreemptionSpec.model_validate({"scope": "user"})
    assert built.refused == ()


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        ({"sequencer": "lottery"}, "no sequencer named 'lottery'; known: drf, fair_share, fifo, l"),
        ({"selector": "best"}, "no selector named 'best'; known: concentrated"),
        ({"validators": ["quota"]}, "no validator named 'quota'; known: concurrency, dependencies"),
        ({"options": {"fifo": {"x": 1}}}, "sequencer 'fifo' has no option 'x'; it has none"),
        (
            {"selector": "fragmentation", "options": {"fragmentation": {"halflife": 5}}},
            "selector 'fragmentation' has no option 'halflife'; it has seed, half_life",
        ),
        (
            {"sequencer": "fair_share", "options": {"fair_share": {"half_life": "never"}}},
            "sequencer 'fair_share' cannot be made with {'half_life': 'never'}",
        ),
    ],
)
def test_unknown_part_or_setting_is_refused_with_what_is_known(
    parts: dict[str, object], sentence: str
) -> None:
    with pytest.raises(MusterError) as caught:
        Policy.of(group(**parts))
    assert sentence in str(caught.value)


def test_part_is_made_with_the_options_of_its_name() -> None:
    options = {"fair_share": {"half_life": "1d"}, "unnamed": {"x": 1}}
    built = Policy.of(group(sequencer="fair_share", options=options))
    assert isinstance(built.sequencer, FairShare)
    assert built.sequencer.half_life_s == 86_400


def test_options_of_a_part_that_the_group_does_not_use_are_refused() -> None:
    used: dict[str, object] = {"concentrated": {}, "concurrency": {}, "interactive": {}, "fifo": {}}
    check_options(group(options=used))
    asked = group(options={**used, "concentratde": {"resources": ["gpu"]}, "lifo": {}})
    with pytest.raises(InvalidSpec) as caught:
        check_options(asked)
    near, unused = caught.value.problems
    assert (near.field, near.value) == ("options.concentratde", "{'resources': ['gpu']}")
    assert near.expected.startswith("expected the name of a part that the group uses (keypair_res")
    assert near.expected.endswith("; did you mean 'concentrated'?")
    assert unused.field == "options.lifo"


def test_built_in_part_serves_without_the_options_with_which_it_cannot_be_had() -> None:
    asked = group(options={"concentrated": {"resources": ["gpus"]}})
    (fault,) = missing_parts(asked)
    assert "did you mean 'gpu'?" in fault.why
    assert isinstance(Policy.of(asked, (fault,)).selector, Concentrated)


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
        "[muster.sequencers]\n"
        "stranger = stranger_parts:Dispersed\n"
        "[muster.validators]\n"
        "stranger = stranger_parts:Dispersed\n"
        "[muster.hooks]\n"
        "stranger = stranger_parts:Dispersed\n"
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
    assert isinstance(stranger.selector, GuardedSelector)
    result = place(Queue(queue), snapshot, stranger, context(snapshot))
    assert where(result) == {"0": ["a"], "1": ["b"], "2": ["a"]}


@pytest.mark.usefixtures("installed")
def test_installed_selector_that_fails_is_named_and_the_built_in_one_serves_then() -> None:
    snapshot, asked = cluster(a=box(gpus=1)), group(selector="stranger")
    with pytest.raises(PluginFault, match="selector 'stranger' raised Not") as caught:
        place(Queue([session("s", ask(1, gpu=1))]), snapshot, Policy.of(asked), context(snapshot))

    served = Policy.of(asked, (caught.value,))
    assert isinstance(served.selector, Concentrated)
    assert served.refused == (caught.value,)
    result = place(Queue([session("s", ask(1, gpu=1))]), snapshot, served, context(snapshot))
    assert where(result) == {"s": ["a:0"]}


@pytest.mark.usefixtures("installed")
def test_refused_parts_of_each_kind_give_way_to_built_in_ones() -> None:
    asked = group(
        sequencer="stranger",
        validators=["stranger", "concurrency"],
        hooks={"batch": "stranger"},
    )
    faults = [PluginFault(kind, "stranger", "broke") for kind in ("sequencer", "validator", "hook")]
    served = Policy.of(asked, tuple(faults))
    assert isinstance(served.sequencer, Fifo)
    assert len(served.validators) == 2, "and that of held jobs"
    assert type(served.hooks[SessionType.BATCH]) is BatchHook


def test_fault_of_another_kind_of_the_same_name_refuses_nothing() -> None:
    fault = PluginFault("validator", "concentrated", "broke")
    assert isinstance(Policy.of(group(), (fault,)).selector, Concentrated)


@pytest.mark.usefixtures("installed")
def test_installed_selector_that_cannot_be_loaded_is_refused_by_name() -> None:
    with pytest.raises(MusterError, match=r"selector 'broken' cannot be loaded: .*Missing"):
        policy(selector="broken")


@pytest.mark.usefixtures("installed")
def test_built_in_selector_cannot_be_replaced() -> None:
    assert isinstance(policy(selector="concentrated").selector, Concentrated)
    with pytest.raises(MusterError, match="known: broken, concentrated"):
        policy(selector="unheard")


class OneAPass:
    """A validator that counts what was placed earlier in the pass."""

    def validate(self, workload: WorkloadClass, context: PassContext) -> Sequence[Reason]:
        placed = context.usage.of((Level.USER, Level.USER.of(workload.owner))).sessions
        return [RoomTakenMeanwhile()] if placed else []


def test_validator_sees_what_was_placed_before_and_its_refusal_blocks_nobody() -> None:
    queue = Queue([session(str(n), ask(1), at=n) for n in range(3)])
    snapshot = cluster(a=box(cpu=4))
    strict = replace(policy(queue="strict"), validators=(OneAPass(),))
    assert where(place(queue, snapshot, strict, context(snapshot))) == {
        "0": ["a"],
        "1": ["LOST_RACE"],
        "2": ["LOST_RACE"],
    }


class Alternating(SessionSequencer):
    """A dynamic sequencer: whoever has had less in this pass is next."""

    dynamic = True

    def key(self, session: SessionWorkload, context: PassContext) -> tuple[float, ...]:
        user = Level.USER, Level.USER.of(session.workload.owner)
        return (context.usage.of(user).sessions,)


def test_dynamic_sequencer_sees_what_was_placed_before() -> None:
    queue = Queue([session(f"a{n}", ask(1)) for n in range(3)])
    for n in range(2):
        queue.add(session(f"b{n}", ask(1), owner=BOB))
    fair = replace(policy(), sequencer=Alternating())
    snapshot = cluster(x=box(cpu=5))
    assert list(where(place(queue, snapshot, fair, context(snapshot)))) == [
        "a0",
        "b0",
        "a1",
        "b1",
        "a2",
    ]


def test_plugins_are_asked_for_nothing_but_what_a_protocol_names() -> None:
    source = Path(muster.scheduling.__file__).parent
    asking = re.compile(r"\b(?:get|has)attr\(")
    assert [path.name for path in source.rglob("*.py") if asking.search(path.read_text())] == []


def test_selector_with_nothing_but_the_methods_of_a_plugin_serves() -> None:
    class Bare:
        def score(self, request: Resources, snapshot: Snapshot, candidates: Ints) -> Floats:
            return -candidates.astype(float)

        def devices(self, request: Resources, snapshot: Snapshot, slot: int) -> Shares:
            return ()

    selector = guarded_selector("bare", Bare())
    assert (selector.packs, selector.ranking, selector.fullest_device) == (False, None, None)
    snapshot = cluster(a=box(cpu=4), b=box(cpu=4))
    with Statement(snapshot, trial=True) as statement:
        found = Filling(statement, selector, session("s", ask(1)).workload).fill(ask(1), 1)
    assert [place.agent_id for place in found] == ["agt-a"]


def test_sequencer_of_the_page_orders_sessions_as_the_page_says() -> None:
    page = (Path(__file__).parents[2] / "docs" / "placement.md").read_text()
    code = re.search(r"```python\n# acme_muster\.py\n(.*?)```", page, re.DOTALL)
    assert code is not None
    names: dict[str, type[SessionSequencer]] = {}
    exec(code[1], names)
    shortest_first = names["ShortestFirst"]()
    waiting = [
        session("long", ask(1), runs_s=9),
        session("endless", ask(1)),
        session("short", ask(1), runs_s=1),
    ]
    keys = {shortest_first.key(each, context(cluster(a=box()))): each.id for each in waiting}
    assert [keys[key] for key in sorted(keys)] == ["ses-short", "ses-long", "ses-endless"]
