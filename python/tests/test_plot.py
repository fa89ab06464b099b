"""Figures: what is drawn, in the colours of the report, as PNG and PDF."""

import copy
import re
from pathlib import Path

import matplotlib.colors as mcolors
import matplotlib.pyplot as plt
import pytest

import taillab
from taillab import plot, records

REPORT = Path(__file__).resolve().parents[2] / "crates" / "report" / "src"
MS = 1_000_000


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_the_colours_are_those_of_the_report():
    sheets = [(REPORT / "html" / "assets" / name).read_text() for name in ("report.css", "explanation.css")]
    light = [sheet.split("@media (prefers-color-scheme: dark)")[0] for sheet in sheets]
    of_page = {name: colour for sheet in light for name, colour in re.findall(r"--([\w-]+): (#[0-9a-f]{6})", sheet)}
    ours = {name: plot.VIEWS[name] for name in ("ideal", "measured", "client")}
    ours |= {f"cause-{n}": colour for n, colour in enumerate(plot.CAUSES, 1)}
    ours |= {f"predicted-{n}": colour for n, colour in enumerate(plot.PREDICTED, 1)}
    ours |= {"cause-unexplained": plot.CAUSE_UNEXPLAINED, "cause-others": plot.CAUSE_OTHERS}
    ours |= {"multi-queue": plot.MULTI_QUEUE, "replayed": plot.REPLAYED, "grid": plot.INK["grid"]}
    assert {name: of_page[name] for name in ours} == ours
    scene = (REPORT / "chart" / "scene.rs").read_text()
    curves = scene.split("const CURVES: [[u8; 3]; 8] = [")[1].split("];")[0]
    drawn = tuple("#" + "".join(each) for each in re.findall(r"\[0x(..), 0x(..), 0x(..)\]", curves))
    assert drawn == plot.CURVES


@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_a_figure_is_saved_as_its_name_says(explained, tmp_path, ending):
    path = tmp_path / f"tail.{ending}"
    plot.ccdf(explained).figure.savefig(path)
    assert path.read_bytes().startswith({"png": b"\x89PNG", "pdf": b"%PDF"}[ending])


def test_distributions_stand_on_the_axes_of_the_paper(explained):
    ax = plot.ccdf(explained)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log") and ax.get_ylim()[1] == 1.0
    lines = named(ax)
    own_work = explained.summary.ideal.own_work
    ideal = "ideal with t for each" if own_work and own_work.is_base else "ideal"
    assert list(lines) == [ideal, "measured"]
    assert mcolors.to_hex(lines["measured"].get_color()) == plot.VIEWS["measured"]
    # a point of the curve is a quantile of the summary
    p99 = explained.summary.measured.sojourn.quantile(0.99)
    at = next(x for x, y in zip(*lines["measured"].get_data(), strict=True) if y <= 0.01)
    assert at == pytest.approx(p99.value, rel=2e-3)
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels[:4] == ["0 %", "50 %", "90 %", "99 %"]


def test_where_ratios_are_to_each_requests_own_work_the_ideal_that_is_drawn_says_which_it_is(explained):
    mixed = copy.deepcopy(explained.summary.to_dict())
    mixed["ideal"]["own_work"] = {"sojourn": mixed["ideal"]["sojourn"], "cv": 2.0, "is_base": True}
    alike = copy.deepcopy(mixed)
    alike["ideal"]["own_work"]["is_base"] = False
    runs = [taillab.Run(explained.directory, records.Report(result)) for result in (mixed, alike)]
    labels = {name for run in runs for name in named(plot.ccdf(run))}
    assert labels == {"ideal with t for each", "ideal", "measured"}


def test_intervals_are_drawn_and_an_open_end_is_an_arrow(explained):
    assert not plot.ccdf(explained, intervals=False).containers
    quantiles = explained.summary.measured.sojourn.quantiles
    drawn = plot.ccdf(explained)
    ends = {round(float(x)) for bars in drawn.containers for segment in bars[2][0].get_segments() for x in segment[:, 0]}
    assert {each.lo for each in quantiles if each.value is not None} <= ends
    opened = copy.deepcopy(explained.summary.to_dict())
    for each in opened["measured"]["sojourn"]["quantiles"]:
        each["hi"] = None
    one_sided = taillab.Run(explained.directory, records.Report(opened))
    assert len(arrows(plot.ccdf(one_sided))) > len(arrows(drawn))


def test_several_results_are_compared_by_what_they_are_about(explained, loaded):
    lines = named(plot.ccdf(explained, loaded))
    assert list(lines) == [f"{explained.directory.name}: measured", f"{loaded.directory.name}: response time"]
    assert [mcolors.to_hex(line.get_color()) for line in lines.values()] == list(plot.CURVES[:2])


def test_every_kind_with_a_distribution_is_drawn(simulated, round_trips, loaded):
    assert list(named(plot.ccdf(loaded))) == ["response time", "service time", "lateness"]
    assert list(named(plot.ccdf(round_trips))) == ["unix, blocking, 64 B × 1", "unix, blocking, 1,024 B × 1"]
    assert [label.split(",")[0] for label in named(plot.ccdf(simulated))] == ["fifo", "lifo"]


def test_the_composition_is_the_shares_of_the_summary(explained):
    ax = plot.composition(explained)
    bands = explained.summary.explanation.bands
    assert [label.get_text() for label in ax.get_yticklabels()][0].startswith("up to p")
    bars = {group.get_label(): group for group in ax.containers}
    assert "unexplained" in bars
    for row, band in enumerate(bands):
        assert sum(group[row].get_width() for group in bars.values()) == pytest.approx(1)
        excess = {part.cause: part.mean_excess_ns for part in band.parts if part.mean_excess_ns > 0}
        chief = max(excess, key=excess.get)
        drawn = bars[records.CAUSE_LABELS[chief]][row].get_width()
        assert drawn == pytest.approx(excess[chief] / sum(excess.values()), abs=0.02)


def test_forecasts_stand_below_the_latency_now():
    summary = {
        "command": "run",
        "partial": False,
        "target": "a server",
        "verdict": {"valid": False, "reasons": [], "warnings": [], "claims": []},
        "predictions": [forecast("without irq", 2 * MS, (1 * MS, 3 * MS)), forecast("without lock", 4 * MS, (None, None))],
    }
    ax = plot.forecasts(taillab.Run(Path("made"), records.Report(summary)))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["now", "without irq", "without lock"]
    assert "p99" in ax.get_xlabel() and "not valid" in ax.get_title(loc="left")
    (bars,) = ax.containers
    assert sorted(bars[2][0].get_segments()[0][:, 0]) == [1 * MS, 3 * MS]
    with pytest.raises(taillab.ResultError, match="no forecasts of p50, only at p99"):
        plot.forecasts(taillab.Run(Path("made"), records.Report(summary)), 0.5)


def test_a_budget_stands_beside_the_paper():
    latency = distribution(count=10, median=1_000, p999=5_000, longest=9_000)
    paper = {"min_ns": 1, "median_ns": 800, "p999_ns": 900, "tail_ns": 70_000}
    rows = [
        {"component": "reading the clock", "standing": "measured", "latency": latency, "paper": paper, "ccdf": []},
        {"component": "PCIe", "standing": "substituted", "latency": latency, "paper": None, "ccdf": []},
        {"component": "bypass", "standing": "unavailable", "latency": None, "paper": paper, "ccdf": []},
    ]
    ax = plot.budget(taillab.Run(Path("made"), records.BudgetReport({"command": "budget", "partial": False, "rows": rows})))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["reading the clock", "PCIe (substitute)"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["measured", "the paper, 2016"]
    assert max(line.get_xdata()[-1] for line in ax.lines) == 70_000


def test_what_a_result_does_not_have_is_said(simulated, explained, tmp_path):
    with pytest.raises(taillab.ResultError, match="a result of `sim`, not of `run`"):
        plot.composition(simulated)
    with pytest.raises(taillab.ResultError, match="a result of `explain`, not of `budget`"):
        plot.budget(explained)
    bare = copy.deepcopy(explained.summary.to_dict())
    bare["explanation"], bare["predictions"] = None, []
    for draw in (plot.composition, plot.forecasts):
        with pytest.raises(taillab.ResultError, match=r"see summary\.verdict"):
            draw(taillab.Run(tmp_path, records.Report(bare)))


def named(ax):
    """The curves that the legend names."""
    return {line.get_label(): line for line in ax.lines if not line.get_label().startswith("_")}


def arrows(ax):
    return [text for text in ax.texts if text.arrow_patch is not None]


def forecast(change, predicted, ends):
    point = {"q": 0.99, "measured_ns": 6 * MS, "predicted_ns": predicted, "lo_ns": ends[0], "hi_ns": ends[1]}
    return {"change": change, "points": [point]}


def distribution(count, median, p999, longest):
    quantiles = [{"q": q, "value": value, "lo": value, "hi": value} for q, value in ((0.5, median), (0.999, p999))]
    return {"unit": "ns", "count": count, "mean": 1.0, "min": 1, "max": longest, "quantiles": quantiles}
