"""The courses of replays as a picture, through matplotlib (the extra ``plot``)."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.core.errors import MusterError
from muster.simulate.report import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("png", "svg")

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Colours that the colour-blind can tell apart too (source: Okabe 2008)."""
_STYLES = ("-", "--", "-.", ":")

_WAITS = (
    *((0.0, "0"), (1.0, "1s"), (10.0, "10s"), (60.0, "1m"), (600.0, "10m"), (3600.0, "1h")),
    *((36_000.0, "10h"), (259_200.0, "3d"), (2_592_000.0, "30d")),
)
"""Marks on the axis of waiting times."""
_UNITS = ((4 * 86_400.0, 86_400.0, "days"), (2 * 3600.0, 3600.0, "hours"), (120.0, 60.0, "minutes"))


def check_plot(path: Path) -> None:
    """Raise before a long replay the error that ``plot`` would raise after it.

    Raises:
        MusterError: the format is unknown, there is no such directory, or matplotlib is not
            installed.
    """
    if path.suffix.removeprefix(".") not in FORMATS:
        raise MusterError(f"cannot plot to {path}: expected a name that ends in .png or .svg")
    if not path.parent.is_dir():
        raise MusterError(f"cannot plot to {path}: there is no directory {path.parent}")
    if find_spec("matplotlib") is None:
        raise MusterError(
            "a plot needs matplotlib: pip install 'muster-scheduler[plot]', or leave out --plot"
        )


def plot(reports: Sequence[Report], path: Path) -> None:
    """Draw the allocation of GPUs, the length of the queue, the distribution of waiting times and,
    where there are pools, the number of slices.

    Equal reports give equal files.

    Raises:
        MusterError: see ``check_plot``; the file cannot be written.
    """
    check_plot(path)
    import matplotlib
    from matplotlib.figure import Figure

    settings: Any = {
        "axes.grid": True,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "font.size": 9,
        "grid.alpha": 0.3,
        "lines.linewidth": 1.2,
        "svg.fonttype": "none",  # text stays text: small, and searchable
        "svg.hashsalt": "muster",
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a picture that does not depend on anybody's own settings
        matplotlib.rcParams.update(settings)
        pools = any(report.pools for report in reports)
        figure = Figure(figsize=(9, 9.6 if pools else 7.2), layout="constrained")
        panels = figure.subplots(4 if pools else 3, 1)
        top, middle, bottom = panels[:3]
        middle.sharex(top)
        top.tick_params(labelbottom=False)
        for index, report in enumerate(reports):
            line = {
                "color": _COLOURS[index % len(_COLOURS)],
                "linestyle": _STYLES[index % len(_STYLES)],
                "label": report.title,
            }
            _draw(report, _scale(reports), (top, middle, bottom), line)
            if pools:
                _draw_slices(report, _scale(reports), panels[3], line)
        lines, labels = top.get_legend_handles_labels()
        figure.legend(lines, labels, loc="outside upper center", ncols=3, frameon=False)
        top.set(ylabel="GPUs allocated, %", ylim=(0, 102))
        middle.set(ylabel="sessions waiting", xlabel=f"time, {_scale(reports)[1]}")
        middle.set_ylim(0, max(1.0, 1.05 * max(report.queue_max for report in reports)))
        bottom.set(xlabel="waited at most", ylabel="sessions started, %", ylim=(0, 102))
        bottom.set_xscale("symlog", linthresh=1)
        longest_s = max(report.waits.max_s if report.waits else 0.0 for report in reports)
        ticks = [each for each in _WAITS if each[0] <= max(longest_s, 60.0)]
        bottom.set_xticks([each for each, _ in ticks], [name for _, name in ticks])
        bottom.minorticks_off()
        bottom.set_xlim(0, max(longest_s * 1.3, 60.0))
        if pools:
            most = max(report.slices_peak for report in reports)
            panels[3].sharex(top)
            panels[3].set(ylabel="slices", xlabel=f"time, {_scale(reports)[1]}")
            panels[3].set_ylim(0, max(1.0, 1.05 * most))
        # Without the date and the version of matplotlib.
        metadata = {"Date": None, "Creator": None} if path.suffix == ".svg" else {"Software": None}
        try:
            figure.savefig(path, dpi=130, metadata=metadata)
        except OSError as error:
            raise MusterError(f"cannot plot to {path}: {error.strerror}") from None


def _scale(reports: Sequence[Report]) -> tuple[float, str]:
    """The seconds in a unit of the axis of time, and the unit's name."""
    last_s = max(report.course.at_s[-1] for report in reports)
    return next(
        ((unit_s, name) for least_s, unit_s, name in _UNITS if last_s >= least_s), (1.0, "s")
    )


def _draw(
    report: Report,
    scale: tuple[float, str],
    panels: "tuple[Axes, Axes, Axes]",
    line: dict[str, Any],
) -> None:
    course, (top, middle, bottom) = report.course, panels
    at = [each / scale[0] for each in course.at_s]
    top.step(at, course.gpu_percent, where="post", **line)
    middle.step(at, course.waiting, where="post", **line)
    share = 100.0 * report.started / report.sessions
    parts = [share * (index + 1) / len(course.waits_s) for index in range(len(course.waits_s))]
    ever_after = 1e9, parts[-1] if parts else 0.0
    bottom.step(
        [0.0, *course.waits_s, ever_after[0]], [0.0, *parts, ever_after[1]], where="post", **line
    )


def _draw_slices(
    report: Report, scale: tuple[float, str], panel: "Axes", line: dict[str, Any]
) -> None:
    course = report.course
    if course.slices:
        panel.step([each / scale[0] for each in course.at_s], course.slices, where="post", **line)
