"""Figures of results, in the colours of the report (needs matplotlib: `pip install 'taillab[plot]'`).

Each function draws into `ax`, or into a new figure, and returns the axes: `plot.ccdf(run).figure.savefig("tail.pdf")`
writes what the name's ending says, PNG, PDF or SVG. Latencies are on a logarithmic axis, in nanoseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

try:
    import matplotlib.pyplot as plt
    from matplotlib.axes import Axes
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "taillab.plot needs matplotlib: pip install 'taillab[plot]'", name=error.name, path=error.path
    ) from error

from taillab._causes import Composition, band_name
from taillab._result import Run
from taillab.errors import ResultError
from taillab.records import (
    BudgetReport,
    BudgetRow,
    Distribution,
    LoadReport,
    PredictedPoint,
    Report,
    RttReport,
    SimReport,
)

# report.css and chart/scene.rs of the program; a test compares them
INK = {"text": "#17212b", "quiet": "#55636f", "grid": "#e4e9ee", "frame": "#9aa6b2"}
VIEWS = {"ideal": "#0072b2", "measured": "#d55e00", "client": "#00805e"}
MULTI_QUEUE, REPLAYED = "#2b8cc4", "#55636f"
PREDICTED = ("#8e6bbf", "#a6761d", "#d274a6")
CAUSES = ("#cc3d3d", "#e69f00", "#0072b2", "#009e73", "#8e6bbf", "#56b4e9", "#a6761d", "#d274a6")
CAUSE_UNEXPLAINED, CAUSE_OTHERS = "#8b96a0", "#c9d1d8"
CURVES = ("#0072b2", "#d55e00", "#00805e", "#c05c91", "#b87d00", "#2b8cc4", "#777777", "#6a51a3")
"""The colours of curves that have no meaning of their own."""

_DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.3)), (0, (4, 1.5, 1, 1.5)), (0, (7, 2)), (0, (2, 1.3)))
# the y axis reaches down to this share even if no curve does
_SHALLOWEST = 1e-3
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


@dataclass(frozen=True)
class Curve:
    """A distribution as it is drawn: (nanoseconds, share that is longer), and the quantiles with intervals."""

    label: str
    points: Sequence[tuple[float, float]]
    distribution: Distribution | None
    colour: str
    dashes: Any = "-"


def ccdf(
    *runs: Run[Any], forecasts: bool = False, intervals: bool = True, ax: Axes | None = None
) -> Axes:
    """The share of requests that are slower, against the latency, both on logarithmic axes as in *Tales of the Tail*.

    Args:
        runs: one result: all its distributions (measured, ideal, the client's view; each row of `rtt`; each system of
            `sim`); several: what each is about, to compare them.
        forecasts: also the forecasts and the replay (`run`, `trace`, `explain`).
        intervals: the 95 % intervals of the percentiles, as bars; an arrow where an interval has no upper end.
        ax: where to draw.

    Raises:
        ResultError: a result has no distribution.
    """
    if not runs:
        raise TypeError("ccdf needs a result")
    curves = _all_curves(runs[0]) if len(runs) == 1 else [_chief_curve(run, n) for n, run in enumerate(runs)]
    if forecasts:
        curves = [*curves, *(curve for run in runs for curve in _forecast_curves(run))]
    curves = [curve for curve in curves if len(_drawable(curve)) > 1]
    if not curves:
        raise ResultError(f"{runs[0].directory} has no distribution to draw")
    ax = _axes(ax)
    for curve in curves:
        x, y = zip(*_drawable(curve), strict=True)
        ax.plot(x, y, label=curve.label, color=curve.colour, linestyle=curve.dashes, linewidth=1.8)
        if intervals and curve.distribution is not None:
            _draw_intervals(ax, curve)
    if len(runs) == 1:
        _draw_service_time(ax, runs[0])
    _latency_axis(ax)
    _slower_axis(ax, min(share for curve in curves for _, share in _drawable(curve)))
    _finish(ax, _title(runs, "Latency distributions"))
    ax.legend(frameon=False, fontsize="small")
    return ax


def composition(run: Run[Report], *, ax: Axes | None = None) -> Axes:
    """What the excess over the ideal consists of: a bar for each range of percentiles of the sojourn, by cause.

    Raises:
        ResultError: the result does not say (no causes were recorded, or the verdict has withdrawn them).
    """
    explanation = _report(run).explanation
    of = Composition.of(explanation.bands) if explanation else None
    if of is None:
        raise ResultError(f"{run.directory} has no composition of the excess: see summary.verdict")
    ax = _axes(ax, height=2.0 + 0.45 * len(of.bands))
    left = [0.0] * len(of.bands)
    rows = range(len(of.bands))
    for place, part in enumerate(of.parts):
        lengths = [of.drawn(band)[place] for band in of.bands]
        colour = {None: CAUSE_OTHERS, "unexplained": CAUSE_UNEXPLAINED}.get(part, CAUSES[place % len(CAUSES)])
        ax.barh(rows, lengths, left=left, height=0.62, color=colour, label=of.label(part))
        left = [start + length for start, length in zip(left, lengths, strict=True)]
    for row, band in zip(rows, of.bands, strict=True):
        ax.text(1.01, row, _length(band.mean_sojourn_ns - band.mean_ideal_ns), va="center", color=INK["quiet"])
    ax.set_yticks(list(rows), [band_name(band) for band in of.bands])
    ax.invert_yaxis()
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:.0%}".replace("%", " %")))
    ax.set_xlabel("share of the mean excess over the ideal, which stands at the right")
    _finish(ax, _title([run], "Where the excess comes from"))
    ax.grid(False, axis="y")
    # below the axis and its label, however high the bars are
    ax.legend(frameon=False, fontsize="small", ncols=3, loc="upper left", bbox_to_anchor=(0, 0), borderaxespad=4.5)
    return ax


def forecasts(run: Run[Report], q: float | None = None, *, most: int = 8, ax: Axes | None = None) -> Axes:
    """The latency with each change, by the replay, with its 95 % interval, below the latency now.

    Args:
        q: the quantile [default: the highest of 0.5, 0.99 and 0.999 that the sample supports].
        most: the number of changes, the best first.
        ax: where to draw.

    Raises:
        ResultError: the result has no forecasts at this quantile (see `summary.model_fit` and `summary.verdict`).
    """
    predictions = _report(run).predictions
    known = sorted({point.q for prediction in predictions for point in prediction.points})
    q = q if q is not None else max(known, default=0.99)
    rows = [(prediction.change, point) for prediction in predictions if (point := _point(prediction.points, q))][:most]
    if not rows:
        has = f"only at {', '.join(quantile_name(each) for each in known)}" if known else "at no quantile"
        raise ResultError(f"{run.directory} has no forecasts of {quantile_name(q)}, {has}: see summary.verdict")
    ax = _axes(ax, height=1.3 + 0.36 * (len(rows) + 1))
    now = rows[0][1].measured_ns
    ax.axvline(now, color=VIEWS["measured"], linewidth=1, linestyle="--")
    ax.plot([now], [0], "o", color=VIEWS["measured"])
    for place, (_, point) in enumerate(rows, 1):
        _draw_interval(ax, place, point.predicted_ns, (point.lo_ns, point.hi_ns), PREDICTED[0])
        ax.plot([point.predicted_ns], [place], "o", color=PREDICTED[0])
    ax.set_yticks(range(len(rows) + 1), ["now", *(change for change, _ in rows)])
    ax.invert_yaxis()
    _latency_axis(ax)
    ax.set_xlabel(f"{quantile_name(q)} of the sojourn, on a logarithmic scale")
    _finish(ax, _title([run], "What would help"))
    return ax


def budget(run: Run[BudgetReport], *, ax: Axes | None = None) -> Axes:
    """The latency of each component: from the median (dot) to p99.9 (line) and the maximum (thin line), beside the
    figures of *Where Has My Time Gone?* (hollow).

    Raises:
        ResultError: no component was measured.
    """
    if not isinstance(run.summary, BudgetReport):
        raise ResultError(f"{run.directory} is a result of `{run.summary.command}`, not of `budget`")
    rows: list[BudgetRow] = [row for row in run.summary.rows if row.latency is not None and row.latency.count]
    if not rows:
        raise ResultError(f"{run.directory} has no measured component")
    ax = _axes(ax, height=1.2 + 0.42 * len(rows))
    named: set[str] = set()
    for place, row in enumerate(rows):
        assert row.latency is not None
        quantiles = [_value(row.latency, q) for q in (0.5, 0.999)]
        _draw_range(ax, place - 0.14, [*quantiles, row.latency.max], "measured", named)
        if row.paper is not None:
            paper = [row.paper.median_ns, row.paper.p999_ns, row.paper.tail_ns]
            _draw_range(ax, place + 0.18, paper, "the paper, 2016", named)
    names = [row.component + (" (substitute)" if row.standing == "substituted" else "") for row in rows]
    ax.set_yticks(range(len(rows)), names)
    ax.invert_yaxis()
    _latency_axis(ax)
    ax.set_xlabel("median to p99.9, and to the maximum (thin), on a logarithmic scale")
    _finish(ax, "Latency of each component")
    ax.legend(frameon=False, fontsize="small")
    return ax


def quantile_name(q: float) -> str:
    """`p99.9` for 0.999."""
    return "max" if q >= 1 else f"p{q * 100:.6f}".rstrip("0").rstrip(".")


def _report(run: Run[Any]) -> Report:
    if not isinstance(run.summary, Report):
        raise ResultError(f"{run.directory} is a result of `{run.summary.command}`, not of `run`, `trace` or `explain`")
    return run.summary


def _all_curves(run: Run[Any]) -> list[Curve]:
    """Every distribution of a result."""
    match run.summary:
        case Report() as report:
            return _views(run, report)
        case LoadReport() as report:
            load = report.load
            series = ("response_time", "service_time", "lateness") if load else ()
            each = ((name, getattr(load, name)) for name in series)
            return _numbered((name.replace("_", " "), _points(run, name, of), of) for name, of in each)
        case RttReport() as report:
            return _numbered(
                (
                    f"{row.proto}, {row.mode}, {row.size_bytes:,} B × {row.conns}",
                    _points(run, f"{row.proto}-{row.mode}-{row.size_bytes}-{row.conns}", row.rtt),
                    row.rtt,
                )
                for row in report.rows
            )
        case SimReport() as report:
            systems: list[Any] = report.runs or [report]
            return _numbered(
                (
                    f"{each.discipline}, {each.workers} worker{'s' * (each.workers > 1)}, {100 * each.utilization:.3g} %",
                    _of_quantiles(each.sojourn),
                    each.sojourn,
                )
                for each in systems
                if each.sojourn is not None
            )
        case BudgetReport() as report:
            return _numbered((row.component, row.ccdf, row.latency) for row in report.rows)
        case _:
            return []


def _views(run: Run[Any], report: Report) -> list[Curve]:
    """The measured distribution and those to compare it with, from the best to what a user sees."""
    client = report.load.response_time if report.load else None
    # the records have the ideal with t for each; where requests differ in their work, ratios are to another one
    own_work = report.ideal.own_work
    ideal = "ideal with t for each" if own_work and own_work.is_base else "ideal"
    views = (
        (ideal, "ideal", "ideal", report.ideal.sojourn, (0, (4, 2))),
        ("measured", "measured", "measured", report.measured.sojourn, "-"),
        ("client’s view", "client_response", "client", client, (0, (1, 1.5))),
    )
    return [
        Curve(label, points, _same(points, distribution), VIEWS[view], dashes)
        for label, series, view, distribution, dashes in views
        if (points := _points(run, series, distribution))
    ]


def _drawable(curve: Curve) -> list[tuple[float, float]]:
    """The points that have a place on logarithmic axes."""
    return [(ns, share) for ns, share in curve.points if ns > 0 and share > 0]


def _numbered(curves: Iterable[tuple[str, Sequence[tuple[float, float]], Distribution | None]]) -> list[Curve]:
    """Curves with the colours of their places; those without points are left out."""
    kept = [each for each in curves if each[1]]
    return [
        Curve(label, points, distribution, CURVES[n % len(CURVES)], _DASHES[n % len(_DASHES)])
        for n, (label, points, distribution) in enumerate(kept)
    ]


def _chief_curve(run: Run[Any], place: int) -> Curve:
    """What a result is about."""
    curves = _all_curves(run)
    chief = [curve for curve in curves if curve.label in ("measured", "response time")] or curves
    if not chief:
        raise ResultError(f"{run.directory} has no distribution to draw")
    label = f"{run.directory.name}: {chief[0].label}"
    colour, dashes = CURVES[place % len(CURVES)], _DASHES[place % len(_DASHES)]
    return Curve(label, chief[0].points, chief[0].distribution, colour, dashes)


def _forecast_curves(run: Run[Any]) -> list[Curve]:
    """The curves of the replay that the report draws."""
    explanation = _report(run).explanation
    curves: list[Curve] = []
    predicted = iter(PREDICTED)
    for curve in explanation.curves if explanation else ():
        label, colour = f"predicted: {curve.name}", None
        if curve.name in ("measured", "ideal", "ideal_without_probe"):
            continue
        if curve.name == "multi_queue_ideal":
            label, colour = "ideal, a queue for each worker", MULTI_QUEUE
        elif curve.name == "replayed":
            label, colour = "replayed", REPLAYED
        else:
            colour = next(predicted, None)
        if colour:
            curves.append(Curve(label, curve.points, None, colour, _DASHES[2 + len(curves) % 4]))
    return curves


def _points(run: Run[Any], series: str, distribution: Distribution | None) -> list[tuple[float, float]]:
    """A distribution from the histogram, which has every bucket, or else from its quantiles."""
    try:
        found = run.histograms.get(series)
    except ResultError:
        found = None
    if found is not None and found.min_ns is not None:
        return [(float(found.min_ns), 1.0), *((float(ns), share) for ns, share in found.ccdf())]
    return _of_quantiles(distribution)


def _of_quantiles(distribution: Distribution | None) -> list[tuple[float, float]]:
    if distribution is None:
        return []
    return [(float(each.value), 1 - each.q) for each in distribution.quantiles if each.value is not None]


def _same(points: Sequence[tuple[float, float]], distribution: Distribution | None) -> Distribution | None:
    """The distribution if its median lies on the curve: the client's has requests that the histogram leaves out."""
    median = _value(distribution, 0.5)
    on_curve = next((ns for ns, share in points if share <= 0.5), None)
    if median is None or on_curve is None or abs(math.log(on_curve / median)) > 0.1:
        return None
    return distribution


def _value(distribution: Distribution | None, q: float) -> int | None:
    quantile = distribution.quantile(q) if distribution is not None else None
    return quantile.value if quantile is not None else None


def _point(points: Sequence[PredictedPoint], q: float) -> PredictedPoint | None:
    return next((point for point in points if abs(point.q - q) < 1e-9), None)


def _draw_range(ax: Axes, y: float, ends: Sequence[int | None], label: str, named: set[str]) -> None:
    """A dot at the median, a line to p99.9, a thin one to the maximum; the legend names each kind once."""
    median, p999, longest = (float(max(end, 1)) if end is not None else None for end in ends)
    if median is None:
        return
    is_ours = label == "measured"
    colour = VIEWS["measured" if is_ours else "ideal"]
    for end, width in ((longest, 0.8), (p999, 3.0)):
        if end is not None:
            ax.plot([median, end], [y, y], color=colour, linewidth=width, solid_capstyle="butt")
    face = colour if is_ours else "white"
    ax.plot([median], [y], "o", color=colour, markerfacecolor=face, label=None if label in named else label)
    named.add(label)


def _draw_intervals(ax: Axes, curve: Curve) -> None:
    assert curve.distribution is not None
    for each in curve.distribution.quantiles:
        if each.value is not None:
            _draw_interval(ax, 1 - each.q, each.value, (each.lo, each.hi), curve.colour)


def _draw_interval(ax: Axes, y: float, value: float, ends: tuple[int | None, int | None], colour: str) -> None:
    """A bar from the lower to the upper end; an arrow where there is no upper one; nothing without a lower one."""
    lo, hi = ends
    if lo is None:
        return
    if hi is None:
        ax.annotate("", (value * 1.25, y), (value, y), arrowprops={"arrowstyle": "->", "color": colour, "alpha": 0.8})
    ax.errorbar(
        [value], [y], xerr=[[max(value - lo, 0)], [max((hi or value) - value, 0)]], color=colour, capsize=3, linewidth=1.1
    )


def _draw_service_time(ax: Axes, run: Run[Any]) -> None:
    if isinstance(run.summary, Report) and run.summary.ideal.withdrawn is None and run.summary.service_time_ns:
        t = run.summary.service_time_ns
        ax.axvline(t, color=INK["frame"], linewidth=1, linestyle=":")
        ax.annotate(f" t = {_length(t)}", (t, 0), xycoords=("data", "axes fraction"), va="bottom", color=INK["quiet"])


def _latency_axis(ax: Axes) -> None:
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    steps = (1.0, 2.0, 5.0) if high / low < 1e3 else (1.0,)
    ax.xaxis.set_major_locator(LogLocator(subs=steps, numticks=30))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda ns, _: _length(ns)))
    ax.set_xlabel("latency, on a logarithmic scale")


def _slower_axis(ax: Axes, least: float) -> None:
    """Shares that are slower from 1 at the top, labelled with the share that is faster."""
    ax.set_yscale("log")
    ax.set_ylim(min(least, _SHALLOWEST) * 0.8, 1.0)
    decades = math.floor(-math.log10(ax.get_ylim()[0]))
    ticks = [1.0, 0.5, *(10.0**-power for power in range(1, decades + 1))]
    ax.set_yticks(ticks, [f"{100 * (1 - share):.6f}".rstrip("0").rstrip(".") + " %" for share in ticks])
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_ylabel("share that is faster, on a logarithmic scale")


def _length(ns: float) -> str:
    """`1.5 µs`."""
    unit, name = next((each for each in _UNITS if ns >= each[0]), _UNITS[-1])
    return f"{ns / unit:.3g} {name}"


def _title(runs: Sequence[Run[Any]], what: str) -> str:
    """The title, and below it what was measured and whether it can be trusted."""
    if len(runs) != 1:
        return what
    summary = runs[0].summary
    about = [str(summary.target)] if isinstance(summary, Report | LoadReport) else []
    if isinstance(summary, Report | LoadReport) and not summary.verdict.valid:
        about.append("not valid")
    if summary.partial:
        about.append("partial")
    return "\n".join([what, *([", ".join(about)] if about else [])])


def _axes(ax: Axes | None, height: float = 4.6) -> Axes:
    if ax is not None:
        return ax
    return plt.figure(figsize=(8.2, height), layout="constrained").add_subplot()


def _finish(ax: Axes, title: str) -> None:
    """What all figures have in common."""
    ax.set_title(title, loc="left", color=INK["text"])
    ax.grid(True, color=INK["grid"])
    ax.set_axisbelow(True)
    ax.tick_params(colors=INK["quiet"], length=0)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(INK["frame"])
    for label in (ax.xaxis.label, ax.yaxis.label):
        label.set_color(INK["quiet"])
