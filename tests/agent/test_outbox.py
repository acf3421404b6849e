"""The outbox loses nothing: what was not acknowledged is told again."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from muster.agent.outbox import Outbox
from muster.core.ids import KernelId
from muster.wire.messages import KernelReport, ReportKind

PREPARED = KernelReport(KernelId("prepared"), 1, ReportKind.PREPARED, 0.0)


def report(seq: int) -> KernelReport:
    return KernelReport(KernelId(f"krn-{seq}"), 1, ReportKind.STARTED, float(seq))


class Telling(RuleBasedStateMachine):
    """An agent and a controller that commits what it hears, over streams that break."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox()
        self.last_seq = 0
        self.heard: list[int] = []  # on this stream
        self.committed = 0  # everything up to here, by the controller's acknowledgement
        self.acknowledgements: list[int] = []  # on their way, perhaps over an older stream

    @rule()
    def something_happens(self) -> None:
        self.last_seq += 1
        self.outbox.add(self.last_seq, report(self.last_seq))

    @rule()
    def something_unnumbered_happens(self) -> None:
        self.outbox.add_unnumbered(PREPARED)

    @rule(limit=st.integers(1, 3))
    def a_batch_is_sent(self, limit: int) -> None:
        batch = self.outbox.take(limit)
        self.heard += [int(each.at) for each in batch.reports if each is not PREPARED]
        # What an acknowledgement of this batch claims must have been heard, now or before.
        assert all(
            seq in self.heard or seq <= self.committed for seq in range(1, batch.last_seq + 1)
        )
        self.acknowledgements.append(batch.last_seq)

    @rule()
    def an_acknowledgement_arrives(self) -> None:
        if self.acknowledgements:
            seq = self.acknowledgements.pop(0)
            self.committed = max(self.committed, seq)
            self.outbox.acknowledge(seq)

    @rule()
    def the_stream_breaks(self) -> None:
        self.heard.clear()
        self.outbox.rewind([PREPARED])

    @rule()
    def the_supervisor_is_attached_anew(self) -> None:
        self.outbox.clear()
        self.heard.clear()
        self.outbox.rewind()
        for seq in range(self.committed + 1, self.last_seq + 1):
            self.outbox.add(seq, report(seq))

    @invariant()
    def what_is_heard_is_in_order_and_without_gaps(self) -> None:
        assert self.heard == sorted(set(self.heard))
        # What was committed over an older stream meanwhile need not be heard on this one.
        new = [seq for seq in self.heard if seq > self.committed]
        assert new == list(range(self.committed + 1, self.committed + 1 + len(new)))

    def teardown(self) -> None:
        while self.outbox:
            self.a_batch_is_sent(limit=2)
        told = max([self.committed, *self.heard])
        assert told == self.last_seq


Telling.TestCase.settings = settings(max_examples=200, stateful_step_count=30)
test_outbox_loses_nothing = Telling.TestCase


def test_batch_of_unnumbered_reports_repeats_the_last_number() -> None:
    outbox = Outbox()
    outbox.add(4, report(4))
    assert outbox.take(10).last_seq == 4
    outbox.add_unnumbered(PREPARED)
    batch = outbox.take(10)
    assert (batch.last_seq, batch.reports) == (4, (PREPARED,))
