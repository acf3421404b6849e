"""Silent machines of a slice, as `muster slices` and `muster slices show` tell of them."""

from tests.cli.fake_cluster import NOW, because
from tests.cli.rendered import shown, wide

from muster.cli.commands.slices import slices_table
from muster.cli.described.slice import slice_parts
from muster.core.reasons import ReasonCode
from muster.core.states.slice import SliceStatus
from muster.core.views.pools import MachineView, SliceView

SLICE = SliceView(
    id="slc-01kaec7mc2qv3x9p",
    pool="cpu",
    group="default",
    status=SliceStatus.READY,
    status_changed_at=NOW - 600,
    revision=1,
    machines=(
        MachineView(name="cpu-0", joined=True),
        MachineView(name="cpu-1", joined=True, silent_since=NOW - 40),
    ),
    silent=because(
        ReasonCode.SLICE_SILENT,
        slice="slc-01kaec7mc2qv3x9p",
        machine="cpu-1",
        silent_s=40,
        in_s=290,
    ),
    stays=because(ReasonCode.SLICE_BUSY),
    joined=1,
    created_at=NOW - 700,
)
TOLD = (
    "its machine cpu-1 has been silent for 40s: the slice is replaced in 4m50s unless it is heard "
    "again"
)


def test_listing_counts_machines_that_are_heard_and_says_which_is_not() -> None:
    (row,) = [each for each in shown([slices_table(wide(), [SLICE], NOW)]) if "ready" in each]
    assert " 1/2 " in row
    assert TOLD in row


def test_machine_that_is_silent_is_told_with_since_when() -> None:
    text = " ".join(" ".join(shown(slice_parts(SLICE, NOW))).split())
    assert "cpu-0: joined cpu-1: silent for 40s" in text
    assert TOLD in text
    assert "stays work runs on it" in text
