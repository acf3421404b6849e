"""Reasons: one class a code, their sentences, and what is stored and told of them."""

import json
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core import reasons as of_entities
from muster.core.ids import SessionId
from muster.core.packages import classes_of, modules_of
from muster.core.reasons import Reason, ReasonCode
from muster.core.reasons.catalogue import CATALOGUE, reason_from_json, reason_of
from muster.core.reasons.of_agents import LacksCapacity
from muster.core.reasons.of_demand import GroupAtCeiling
from muster.core.reasons.of_groups import GangNeverFits, NoRoom
from muster.core.reasons.of_kernels import AgentLost, Exited
from muster.core.reasons.of_queue import BehindReservation
from muster.core.reasons.of_sessions import Cancelled, HandlerError
from muster.core.reasons.of_settings import SettingChanged
from muster.core.reasons.of_slices import SliceIdle
from muster.core.reasons.of_tasks import TasksFailed
from muster.core.reasons.stored import StoredReason
from muster.core.resources import AmountUnit
from muster.core.views.base import ReasonView, View
from muster.core.views.projection import view_of

KINDS = sorted(CATALOGUE.values(), key=lambda kind: kind.code)
COMMON = {each.name for each in fields(Reason)}


def values_of(declared: str) -> st.SearchStrategy[Any]:
    """Values of a field of this type, other than None."""
    texts = st.text(max_size=5)
    if "Difference" in declared:
        difference = st.tuples(texts, st.none() | texts, st.none() | texts)
        return st.lists(difference, max_size=3).map(tuple)
    if "bool" in declared:
        return st.booleans()
    if "float" in declared:
        return st.floats(0, 1e6) | st.integers(0, 10**6)
    return st.integers(0, 2**50) if "int" in declared else texts


@st.composite
def reasons(draw: st.DrawFn) -> Reason:
    """A reason of any kind, with some of the numbers that it need not have."""
    kind = draw(st.sampled_from(KINDS))
    numbers = {}
    for each in fields(kind):
        if each.default is MISSING or draw(st.booleans()):
            numbers[each.name] = draw(values_of(str(each.type)))
    return kind(**numbers)


def names_of(kind: type[Reason]) -> list[str]:
    return [each.name for each in fields(kind) if each.name not in COMMON]


def test_each_code_has_exactly_one_class() -> None:
    kinds = classes_of(modules_of(of_entities, "of_"), Reason)
    assert sorted(kind.code for kind in kinds) == sorted(ReasonCode)
    assert {code: kind.code for code, kind in CATALOGUE.items()} == {
        code: code for code in CATALOGUE
    }


@given(reasons())
def test_reason_is_the_same_after_storing(why: Reason) -> None:
    stored = why.to_json()
    assert reason_from_json(why.code, stored) == why
    assert reason_from_json(why.code, stored).to_json() == stored
    assert hash(reason_from_json(why.code, stored)) == hash(why)
    assert StoredReason.of(why).reason() == why
    assert set(why.public_numbers()) <= set(why.numbers())


@given(reasons(), st.data())
def test_stored_reason_is_read_whatever_it_lacks_and_whatever_else_it_has(
    why: Reason, data: st.DataObject
) -> None:
    numbers = why.numbers()
    kept = data.draw(st.sets(st.sampled_from(sorted(numbers)))) if numbers else set()
    known = {name: numbers[name] for name in kept} | {"unheard": [1, {"of": 2}]}
    found = reason_of(why.code, json.loads(json.dumps(known)))
    assert isinstance(found.sentence(), str)
    assert found.numbers() == {name: numbers[name] for name in numbers if name in kept}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_every_sentence_is_formed_with_all_numbers_and_with_none(kind: type[Reason]) -> None:
    full = reason_of(kind.code, dict.fromkeys(names_of(kind), 1))
    assert "?" not in full.sentence()
    empty = reason_of(kind.code, {})
    needed = [
        each for each in fields(kind) if each.default is MISSING and "private" not in each.metadata
    ]
    assert "?" in f"{empty.sentence()} {empty.remedy()}" or not needed
    for text in (full.sentence(), full.remedy(), empty.sentence(), empty.remedy()):
        assert not {"{", "}", "None", "self."} & {*text, *text.split()}


def test_times_and_prices_in_sentences_have_their_units() -> None:
    idle = SliceIdle(idle_s=95, in_s=0)
    assert idle.sentence() == "idle for 1m35s; it is deleted in 0s"
    dear = GroupAtCeiling(
        pool="a",
        group="b",
        what="price",
        unit="price",
        hourly=True,
        limit=1055.0,
        used=1048,
        more=8.5,
    )
    assert dear.sentence() == (
        "a slice of pool a would bring group b above its max_price of 1,055.00 an hour: "
        "1,048.00 + 8.50"
    )


def test_reason_as_people_see_it_has_the_numbers_that_its_texts_tell_and_no_others() -> None:
    why = BehindReservation(group="pool", session=SessionId("ses-1"), in_s=5)
    assert ReasonView.of(why).numbers == {"group": "pool", "in_s": 5}
    some = NoRoom(agents=3, group="pool", request="1 cpu", barred=1)
    assert ReasonView.of(some).numbers == some.numbers()


class Seen(View):
    """Something with a reason, as people see it."""

    why: ReasonView | None


@dataclass(frozen=True)
class Known:
    """Something with a reason."""

    why: Reason | None


def test_reason_of_something_is_seen_with_it() -> None:
    lost = AgentLost(agent="a")
    assert view_of(Seen, Known(lost)) == Seen(why=ReasonView.of(lost))
    assert view_of(Seen, Known(None)) == Seen(why=None)


def test_differences_are_told_as_a_text() -> None:
    why = SettingChanged(by="ann", token="t", changes=(("limits.gpu", "8", "10"), ("a", None, "x")))
    assert why.sentence() == "by ann: limits.gpu: 8 → 10; a: x"
    assert why.public_numbers() == {"by": "ann", "changes": "limits.gpu: 8 → 10; a: x"}
    assert reason_from_json(why.code, why.to_json()) == why


def test_amount_is_written_in_its_unit_and_one_stored_as_a_text_as_it_is() -> None:
    why = LacksCapacity(resource="memory", unit=AmountUnit.BYTES, requested=2**31, capacity=2**30)
    assert why.sentence() == "memory: 2GiB asked, the agent has 1GiB"
    stored = reason_from_json(why.code, why.to_json())
    assert stored == why
    amounts = {"resource": "memory", "requested": 2**31, "capacity": 2**30}
    assert ReasonView.of(stored).numbers == {**amounts, "unit": "bytes"}
    texts = '{"resource": "memory", "requested": "2GiB", "capacity": "1GiB"}'
    assert reason_from_json(why.code, texts).sentence() == why.sentence()
    of_count = '{"resource": "sessions", "requested": 1, "limit": 0, "over": 1}'
    said = reason_from_json(ReasonCode.ABOVE_QUOTA, of_count).sentence()
    assert said.startswith("sessions: requested 1 > limit 0, over by 1 ")


def test_number_that_a_stored_reason_lacks_reads_as_a_question_mark() -> None:
    assert reason_of(ReasonCode.AGENT_LOST, {"agent": None}) == reason_of(ReasonCode.AGENT_LOST, {})
    lost = reason_from_json(ReasonCode.AGENT_LOST, '{"machine": "m"}')
    assert isinstance(lost, AgentLost)
    assert lost.sentence() == "agent ? was silent until the kernel's lease ran out"
    assert (lost.to_json(), lost.public_numbers(), bool(lost.agent)) == ("{}", {}, False)


def test_part_of_a_sentence_is_there_with_its_number_only() -> None:
    full = NoRoom(agents=3, group="g", request="1 cpu")
    some = replace(full, closed=1, statuses="1 cordoned", barred=1)
    nothing = "Nothing: it starts when running work ends."
    assert full.remedy() == nothing
    assert full.sentence() == ("none of 3 agents in group g has 1 cpu free now")
    assert some.sentence() == (
        "none of 3 agents in group g has 1 cpu free now; no new work goes to 1 of them (1 cordoned)"
    )
    assert some.remedy() == f"{nothing} `muster uncordon AGENT` has an agent take work again."
    assert replace(full, leaving=True).remedy() == (
        "Nothing: it starts when those that make room for it have left."
    )


@pytest.mark.parametrize(
    ("why", "stored"),
    [
        (Exited(exit_code=3), '{"exit_code": 3}'),
        (Exited(exit_code=1, told="", oom_kills=2), '{"exit_code": 1, "told": "", "oom_kills": 2}'),
        (Cancelled(by="ada"), '{"by": "ada"}'),
        (Cancelled(by="ada", forced=True), '{"by": "ada", "forced": true}'),
        (HandlerError(handler="H", error="e"), '{"handler": "H", "error": "e"}'),
        (
            LacksCapacity(resource="cpu", unit=AmountUnit.MILLI, requested=2, capacity=1),
            '{"resource": "cpu", "unit": "milli", "requested": 2, "capacity": 1}',
        ),
        (
            TasksFailed(
                failed=1, others=0, tolerated=0, index=3, how="x", job="j", stopped=False, none=True
            ),
            '{"failed": 1, "others": 0, "tolerated": 0, "index": 3, "how": "x", "job": "j", '
            '"stopped": false, "none": true}',
        ),
        (
            GangNeverFits(placed=1, kernels=2, agents=3, group="g", together="rack"),
            '{"placed": 1, "kernels": 2, "agents": 3, "group": "g", "together": "rack"}',
        ),
    ],
)  # fmt: skip
def test_numbers_are_stored_as_former_versions_stored_them(why: Reason, stored: str) -> None:
    assert why.to_json() == stored
