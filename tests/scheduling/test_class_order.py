"""A pass tries sessions in the order that the sequencer's keys have at each moment."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scheduling.clusters import ask, box, cluster, context, policy, session
from tests.scheduling.test_sequencers import contexts, order, owners

from muster.core.specs.group import QueuePolicy
from muster.scheduling.explaining.explain import explain
from muster.scheduling.passes.placement import place
from muster.scheduling.passes.queue import Queue
from muster.scheduling.policy.group_policy import Policy
from muster.scheduling.policy.plugins import PassContext, SessionSequencer
from muster.scheduling.policy.sequencers import Drf, FairShare, Fifo, Lifo
from muster.scheduling.workload import SessionWorkload


class Varied(Drf):
    """A dynamic one whose key is not the owner's alone: who holds more goes for the small first."""

    by_owner = False

    def key(self, each: SessionWorkload, context: PassContext) -> tuple[float, ...]:
        (share,) = super().key(each, context)
        return (share * each.workload.total["cpu"],)


queues = st.lists(
    st.tuples(owners, st.sampled_from([1, 2, 3]), st.integers(0, 4), st.sampled_from([50, 60])),
    max_size=25,
).map(
    lambda rows: [
        session(f"{n:02}", ask(cpu=cpu), at=at, owner=owner, priority=priority)
        for n, (owner, cpu, at, priority) in enumerate(rows)
    ]
)

equals = st.lists(
    st.tuples(st.sampled_from([1, 2]), st.integers(0, 1)), min_size=3, max_size=12
).map(lambda rows: [session(f"{n:02}", ask(cpu=cpu), at=at) for n, (cpu, at) in enumerate(rows)])
"""Of two classes and two ages: many a one is between two others of one class and age."""


@pytest.mark.parametrize(
    "sequencer",
    [Fifo(), Lifo(), Drf(), FairShare(), Varied()],
    ids=lambda each: type(each).__name__,
)
@settings(deadline=None)
@given(queue=queues | equals, running=contexts)
def test_pass_places_in_the_order_of_the_keys_of_each_moment(
    sequencer: SessionSequencer, queue: Sequence[SessionWorkload], running: PassContext
) -> None:
    running = replace(running, snapshot=cluster(a=box(cpu=1000, gib=1000)))
    policy = Policy(sequencer=sequencer, queue=QueuePolicy.BEST_EFFORT)
    result = place(Queue(queue), running.snapshot, policy, running)
    placed = [each.session.id.removeprefix("ses-") for each in result.placed]
    assert placed == order(queue, sequencer, running)


@pytest.mark.parametrize("sequencer", ["fifo", "lifo"])
@settings(deadline=None)
@given(queue=equals)
def test_position_among_equals_is_that_in_which_a_pass_places_them(
    sequencer: str, queue: Sequence[SessionWorkload]
) -> None:
    snapshot = cluster(a=box(cpu=0))
    by, seen = policy(sequencer=sequencer), context(snapshot)
    positions = {
        explain(each, Queue(queue), snapshot, by, seen).position: each.id for each in queue
    }
    ids = [f"ses-{name}" for name in order(queue, by.sequencer, seen)]
    assert positions == dict(enumerate(ids, 1))
