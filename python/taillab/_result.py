"""A saved result: `load` reads a directory of it."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from taillab import histogram as histograms
from taillab.errors import ResultError
from taillab.histogram import Histogram
from taillab.records import (
    SCHEMA_VERSION,
    BudgetReport,
    Distribution,
    LoadReport,
    NoiseReport,
    Report,
    RttReport,
    SimReport,
)

if TYPE_CHECKING:
    import pyarrow

AnyReport = Report | LoadReport | RttReport | SimReport | BudgetReport | NoiseReport
S = TypeVar("S", bound=AnyReport, covariant=True)

# the result's file in a directory, the first that is there
_FILES = ("summary.json", "result.json", "sim.json", "budget.json", "noise.json")
_KINDS: dict[str, Callable[[dict[str, Any]], AnyReport]] = {
    "run": Report,
    "trace": Report,
    "explain": Report,
    "load": LoadReport,
    "rtt": RttReport,
    "sim": SimReport,
    "budget": BudgetReport,
    "reproduce": BudgetReport,
    "noise": NoiseReport,
}
# the page that a person opens
_PAGES = ("report.html", "sim.html", "budget.html", "noise.html")
_FRAME_HEIGHT_PX = 720


class Run(Generic[S]):
    """A result of the program. In a notebook it shows as its page.

    Attributes:
        directory: where its files are. A temporary directory of a call without `output=` lives as long as this object.
        summary: the object of `--json`, with typed attributes: `run.summary.measured.sojourn.quantile(0.99).value`.
            Times are integer nanoseconds where a name ends in `_ns`.
    """

    def __init__(self, directory: Path, summary: S, keeps: object = None) -> None:
        self.directory = directory
        self.summary = summary
        # a temporary directory lives as long as this
        self._keeps = keeps

    @cached_property
    def requests(self) -> pyarrow.Table:
        """One row for each request (of `rtt`: each round trip, `row` names the protocol and the mode).

        Times are int64 nanoseconds; the metadata of each column says what it is. pandas and polars take the columns
        without a copy: `run.requests.to_pandas(types_mapper=pandas.ArrowDtype)`, `polars.from_arrow(run.requests)`.

        Raises:
            ResultError: this result keeps no requests.
        """
        if isinstance(self.summary, RttReport):
            return _round_trips(self.directory, self.summary)
        return _table(self._file("requests.parquet", "requests: a simulation or a sweep does not keep them"))

    @cached_property
    def systems(self) -> pyarrow.Table:
        """Of `sim`: one row for each simulated system, with its parameters, and its quantiles in nanoseconds.

        Raises:
            ResultError: it is no result of `sim`.
        """
        return _table(self._file("sim.parquet", "simulated systems: only `sim` has them"))

    @cached_property
    def histograms(self) -> dict[str, Histogram]:
        """The histogram of each series, by name. `run`, `trace` and `explain`: measured (the sojourn T6 − T1), ideal,
        client_response; `load_test`: response_time, service_time, lateness; `rtt`: each row.

        Raises:
            ResultError: this result has no histograms.
        """
        if isinstance(self.summary, RttReport):
            logs = sorted(self.directory.glob("*.hlog"))
            return {log.stem: found for log in logs for found in histograms.read(log).values()}
        return histograms.read(self._file("latency.hlog", "histogram: a simulation or a sweep does not have one"))

    @property
    def histogram(self) -> Histogram:
        """The histogram of what the result is about: the sojourn, or the client's response time (`load_test`).

        Raises:
            ResultError: this result has no histogram, or has several of equal rank (see `histograms`).
        """
        found = self.histograms
        chief = [name for name in found if name in ("measured", "response_time")] or list(found)
        if len(chief) != 1:
            raise ResultError(f"{self.directory} has the histograms {', '.join(chief) or 'of nothing'}: see `histograms`")
        return found[chief[0]]

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Host, kernel, settings and hazards of the machine at the time of the measurement (`run` and `trace`).

        Raises:
            ResultError: this result has no `environment.json`.
        """
        path = self._file("environment.json", "environment: only `run` and `trace` record it")
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return found

    @property
    def page(self) -> str:
        """The report as one self-contained HTML page.

        Raises:
            ResultError: this result has no page.
        """
        return self._file(_PAGES, "page").read_text("utf-8")

    def _file(self, names: str | tuple[str, ...], what: str) -> Path:
        wanted = (names,) if isinstance(names, str) else names
        found = [self.directory / name for name in wanted if (self.directory / name).is_file()]
        if not found:
            raise ResultError(f"{self.directory} has no {what}")
        return found[0]

    def _repr_html_(self) -> str | None:
        try:
            page = self.page
        except ResultError:
            return None
        # a frame, so that neither page changes the look of the other
        return (
            f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts" title="taillab {self.summary.command}" '
            f'style="width: 100%; height: {_FRAME_HEIGHT_PX}px; border: 0"></iframe>'
        )

    def __repr__(self) -> str:
        summary = self.summary
        about = [f"taillab {summary.command}", *([summary.target] if isinstance(summary, Report | LoadReport) else [])]
        chief = chief_distribution(summary)
        known = [each for each in chief.quantiles if each.value is not None and each.q <= 0.99] if chief else []
        if known:
            about.append(f"p{100 * known[-1].q:g} {(known[-1].value or 0) / 1e3:,.1f} µs")
        if summary.partial:
            about.append("partial")
        if isinstance(summary, Report | LoadReport) and not summary.verdict.valid:
            about.append("not valid: see summary.verdict.reasons")
        return f"<{', '.join(about)}, {self.directory}>"


def load(directory: str | Path) -> Run[Any]:
    """Reads the result in a directory: of `run`, `trace`, `explain`, `load`, `rtt`, `sim`, `budget` or `noise`.

    Only the summary is read at once; requests and histograms when they are first asked for.

    Raises:
        ResultError: there is no result, or it is of another version of the program.
    """
    folder = Path(directory)
    path = next((folder / name for name in _FILES if (folder / name).is_file()), None)
    if path is None:
        raise ResultError(f"{folder} holds no result: name a directory that the program has written with -o")
    try:
        return Run(folder, summary_of(path.read_bytes()))
    except ValueError as error:
        raise ResultError(f"{path} is no result: {error}") from error


def summary_of(text: bytes) -> Any:
    """The object of `--json`, by its command.

    Raises:
        ResultError: it is of another version.
        ValueError: it is none.
    """
    data = json.loads(text)
    kind = _KINDS.get(data.get("command", "")) if isinstance(data, dict) else None
    if kind is None:
        raise ValueError("its `command` is not known")
    if data.get("schema_version") != SCHEMA_VERSION:
        raise ResultError(
            f"the result has version {data.get('schema_version')}, and this package reads {SCHEMA_VERSION}: "
            "install the version of the package that fits the program"
        )
    return kind(data)


def chief_distribution(summary: AnyReport) -> Distribution | None:
    """The distribution that a result is about, where it is one."""
    match summary:
        case Report():
            return summary.measured.sojourn
        case LoadReport():
            return summary.load.response_time if summary.load else None
        case SimReport():
            return summary.sojourn
        case RttReport():
            return summary.rows[0].rtt if len(summary.rows) == 1 else None
        case _:
            return None


def _table(path: Path) -> pyarrow.Table:
    import pyarrow.parquet

    return pyarrow.parquet.read_table(path, memory_map=True)


def _round_trips(directory: Path, summary: RttReport) -> pyarrow.Table:
    """The round trips of all rows, with the row's name."""
    import pyarrow

    tables = []
    for row in summary.rows:
        name = f"{row.proto}-{row.mode}-{row.size_bytes}-{row.conns}"
        path = directory / f"{name}.parquet"
        if path.is_file():
            table = _table(path)
            names = pyarrow.DictionaryArray.from_arrays(pyarrow.nulls(len(table), pyarrow.int32()).fill_null(0), [name])
            tables.append(table.append_column("row", names))
    if not tables:
        raise ResultError(f"{directory} has no round trips")
    return pyarrow.concat_tables(tables).unify_dictionaries()
