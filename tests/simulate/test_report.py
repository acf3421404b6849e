import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.scheduling.clusters import ask, box, cluster
from tests.simulate.worlds import BOB, comes, machine, policy, replayed

from muster.core.errors import MusterError
from muster.core.resources import DeviceShare
from muster.simulate.measures import jain, usable_milli
from muster.simulate.plot import check_plot, plot
from muster.simulate.report import report

TWO = (machine(gpus=2),)


def test_means_over_time_weigh_by_how_long_things_held() -> None:
    found = report(
        replayed(comes("a", runs=30), comes("b", at=10, gpu=2, runs=10), comes("c", at=40), on=TWO)
    )
    # One of two GPUs for 30 s, then both for 10 s, in a window of 40 s.
    assert found.window_s == 40
    assert found.gpu_percent == 62.5
    assert found.gpu_peak_percent == 100
    assert found.gpu_under_demand_percent == 50  # b waited from 10 to 30
    assert (found.queue_mean, found.queue_max) == (0.5, 1)
    assert found.makespan_s == 50


def test_window_leaves_out_the_first_and_the_last_percent_of_the_sessions() -> None:
    trace = [comes(f"{number}", at=1000 + number) for number in range(198)]
    found = report(replayed(comes("early"), *trace, comes("late", at=9000), on=TWO))
    assert found.window_s == 195


def test_window_is_all_of_the_time_when_all_sessions_come_at_once() -> None:
    found = report(replayed(comes("a", runs=10), comes("b", runs=30)))
    assert (found.window_s, found.gpu_percent) == (40, 100)


def test_waits_are_those_until_the_first_start() -> None:
    waits = report(replayed(*(comes(f"{number}", runs=1) for number in range(100)))).waits
    assert waits is not None
    assert (waits.mean_s, waits.p50_s, waits.p99_s, waits.max_s) == (49.5, 49, 98, 99)


def test_backfill_rate_is_of_all_that_started() -> None:
    found = report(
        replayed(
            comes("first", runs=100),
            comes("big", at=1, gpu=2),
            comes("small", at=2),
            comes("other", at=3, gpu=0),
            comes("huge", at=3, gpu=9),
            on=TWO,
            under=policy(queue="best_effort"),
        )
    )
    assert (found.backfilled, found.backfill_percent) == (2, 50)


def test_sessions_that_never_started_are_counted_by_reason() -> None:
    found = report(
        replayed(comes("a"), comes("b", gpu=2), comes("c", gpu=4), comes("d", gpu=1, kernels=2))
    )
    assert [(each.code, each.sessions, each.example) for each in found.unstarted] == [
        ("NEVER_FITS", 2, "b"),
        ("GANG_NEVER_FITS", 1, "d"),
    ]
    assert "2 gpu" in found.unstarted[0].why
    assert (found.sessions, found.started) == (4, 1)


def test_cluster_without_gpus_has_no_figures_of_them() -> None:
    found = report(replayed(comes("a", gpu=0), on=(machine(gpus=0),)))
    assert found.gpu_percent is found.fragmentation_percent is found.stranded_percent is None
    assert found.cpu_percent > 0


# -- fairness ------------------------------------------------------------------------------------


def test_jain_is_one_for_equals_and_one_of_n_when_one_has_all() -> None:
    assert jain([0.2, 0.2, 0.2]) == pytest.approx(1)
    assert jain([0.5, 0, 0, 0]) == 0.25
    assert jain([1]) is jain([0, 0]) is jain([]) is None


def test_fairness_counts_owners_that_wait_with_nothing() -> None:
    trace = [comes("ann", runs=100), comes("bob", owner=BOB, runs=100)]
    assert report(replayed(*trace)).fairness == 0.5  # until 100; then bob is alone
    assert report(replayed(*trace, on=TWO)).fairness == 1


# -- fragmentation -------------------------------------------------------------------------------


def test_free_gpus_are_of_no_use_to_who_finds_no_processors_beside_them() -> None:
    snapshot = cluster(a=box(cpu=4, gpus=2), b=box(cpu=4, gpus=2))
    snapshot.take(snapshot.ids[0], ask(cpu=3))
    assert usable_milli(snapshot, {ask(cpu=1, gpu=1): 1}) == 4000
    assert usable_milli(snapshot, {ask(cpu=2, gpu=1): 1}) == 2000
    assert usable_milli(snapshot, {ask(cpu=1, gpu=1): 3, ask(cpu=2, gpu=1): 1}) == 3500


def test_part_of_a_device_is_of_use_to_those_who_ask_for_no_more() -> None:
    snapshot = cluster(a=box(cpu=8, gpus=2))
    snapshot.take(snapshot.ids[0], ask(cpu=0, gpu=0.6), (DeviceShare(0, 600),))
    assert usable_milli(snapshot, {ask(gpu=0.4): 1}) == 1400
    assert usable_milli(snapshot, {ask(gpu=0.5): 1}) == 1000
    assert usable_milli(snapshot, {ask(gpu=1): 1}) == 1000
    assert usable_milli(snapshot, {ask(gpu=2): 1}) == 0


def test_devices_of_another_model_are_of_no_use() -> None:
    snapshot = cluster(a=box(gpus=2, model="T4"), b=box(gpus=1, model="H100"))
    wants = ask(gpu=1)
    picky = type(wants)(wants.cpu_milli, gpu_milli=1000, gpu_models=("H100",))
    nowhere = type(wants)(wants.cpu_milli, gpu_milli=1000, gpu_models=("B200",))
    assert usable_milli(snapshot, {picky: 1}) == 1000
    assert usable_milli(snapshot, {nowhere: 1}) == 0


def test_usable_capacity_agrees_with_asking_agent_by_agent() -> None:
    rng = np.random.default_rng(7)
    machines = {
        f"m{number}": box(cpu=int(rng.integers(2, 9)), gpus=int(rng.integers(0, 5)))
        for number in range(20)
    }
    snapshot = cluster(**machines)
    requests = [ask(cpu=1, gpu=0.3), ask(cpu=2, gpu=1), ask(cpu=4, gpu=2)]
    for _ in range(60):
        request = requests[int(rng.integers(3))]
        slots = snapshot.columns.fitting(request)
        if slots.size:
            slot = int(rng.choice(slots))
            found = snapshot.columns.devices_for(request, slot)
            milli = min(request.gpu_milli, 1000)
            shares = [DeviceShare(index, milli) for _, index in found[: request.gpu_devices]]
            snapshot.take(snapshot.ids[slot], request, tuple(shares))
    for request in requests:
        slots = snapshot.columns.fitting(request)
        each = min(request.gpu_milli, 1000)
        free = snapshot.columns.device_free[slots]
        assert usable_milli(snapshot, {request: 2}) == free[free >= each].sum()


# -- as JSON and as a picture --------------------------------------------------------------------


def test_report_is_json_and_names_times_of_this_machine_only_when_asked() -> None:
    found = report(replayed(comes("a"), comes("b", gpu=3)))
    assert "timings" not in found.as_dict()
    assert found.as_dict(timings=True)["timings"]["all_s"] > 0
    assert json.loads(json.dumps(found.as_dict()))["waits"]["max_s"] == 0


def test_course_is_no_longer_however_long_the_trace() -> None:
    found = report(replayed(*(comes(f"{n}", at=n, runs=2) for n in range(600)))).course
    assert len(found.at_s) == len(found.waiting) == len(found.gpu_percent) <= 300
    assert len(found.waits_s) <= 300
    assert list(found.at_s) == sorted(found.at_s)


def test_plot_is_the_same_each_time_and_says_what_it_shows(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="drawing needs the extra: plot")
    found = [
        report(replayed(comes("a", runs=100), comes("b", at=1), under=policy(queue=queue)))
        for queue in ("strict", "backfill")
    ]
    for name in ("one.svg", "two.svg", "one.png"):
        plot(found, tmp_path / name)
    svg = (tmp_path / "one.svg").read_text()
    assert svg == (tmp_path / "two.svg").read_text()
    assert len(re.findall("the policy", svg)) == 2  # once in the legend for each
    assert "sessions waiting" in svg
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def test_plot_of_a_replay_in_which_nothing_happens_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="drawing needs the extra: plot")
    plot([report(replayed(comes("a", runs=0)))], tmp_path / "still.svg")
    assert (tmp_path / "still.svg").stat().st_size > 0


@pytest.mark.parametrize(
    ("name", "message"),
    [("a.pdf", r"ends in \.png or \.svg"), ("none/a.svg", "there is no directory")],
)
def test_plot_to_where_it_cannot_go_is_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(MusterError, match=message):
        check_plot(tmp_path / name)


def test_plot_without_matplotlib_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MusterError, match=r"pip install 'muster-scheduler\[plot\]'"):
        check_plot(tmp_path / "a.svg")
