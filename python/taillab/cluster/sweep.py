"""Sweeps: many points of `sim` or `run`, on many hosts, into one Arrow data set. A sweep that was killed goes on.

Each point is one file of the data set, named by what it is and moved into place whole. What is there is not computed
again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taillab import _program
from taillab._result import chief_distribution, summary_of
from taillab.cluster import agent
from taillab.cluster.faults import ClusterError, UsageError
from taillab.errors import TaillabError

if TYPE_CHECKING:
    import pyarrow

COMMANDS = ("sim", "run")
DATA = "points"
_PLAN = "sweep.json"
_QUANTILES = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p999"), (0.9999, "p9999"))


@dataclass(frozen=True)
class Point:
    """One point: the command, what varies, and options that all points share."""

    command: str
    parameters: tuple[tuple[str, str], ...]
    options: tuple[str, ...]

    @property
    def key(self) -> str:
        """Names the point: the same one has the same key in every sweep."""
        text = json.dumps([self.command, self.parameters, self.options])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def words(self) -> list[str]:
        """Its command line, without the program."""
        return [self.command, "--json", "--quiet", *self.options, *(f"--{name}={value}" for name, value in self.parameters)]


def points(command: str, vary: Mapping[str, Sequence[str]], seeds: int, options: Sequence[str]) -> list[Point]:
    """All combinations, each with the seeds 1 to `seeds`."""
    if command not in COMMANDS:
        raise UsageError(f"a sweep is of {' or '.join(COMMANDS)}, not of `{command}`")
    if "seed" in vary and seeds > 1:
        raise UsageError("seeds come from --vary seed=… or from --seeds, not from both")
    names = list(vary)
    axes = [[(name, value) for value in vary[name]] for name in names]
    if "seed" not in vary:
        axes.append([("seed", str(seed)) for seed in range(1, seeds + 1)])
    return [Point(command, combination, tuple(options)) for combination in itertools.product(*axes)]


def compute(point: Point, program: str, within_s: float) -> dict[str, Any]:
    """Runs a point on this host, and returns its row.

    Raises:
        ClusterError: it failed; one line that names it.
    """
    with tempfile.TemporaryDirectory(prefix="taillab-sweep-") as place:
        words = [program, *point.words(), *(["--output", f"{place}/result"] if point.command == "run" else [])]
        ended = agent.run(words, b"", within_s)
    named = " ".join(point.words())
    if not ended.in_time:
        raise ClusterError(f"`{named}` took more than {within_s:.3g} s and was ended: make it shorter, or wait longer (--limit)")
    if ended.exit_code not in (0, 3, 4):
        raise ClusterError(f"`{named}` ended with exit code {ended.exit_code}: {ended.said}")
    return row(point, ended.stdout)


def row(point: Point, output: bytes) -> dict[str, Any]:
    """The row of a point, from what `--json` printed."""
    summary = summary_of(output)
    found: dict[str, Any] = {"point": point.key, "command": point.command}
    found |= {name.replace("-", "_"): value for name, value in point.parameters}
    distribution = chief_distribution(summary)
    if distribution is None:
        raise ClusterError(f"`{' '.join(point.words())}` has no single distribution: vary what it compares with --vary instead")
    found |= {"count": distribution.count, "mean_ns": distribution.mean, "max_ns": distribution.max}
    for q, name in _QUANTILES:
        known = distribution.quantile(q)
        for part in ("value", "lo", "hi"):
            end = "" if part == "value" else f"_{part}"
            found[f"{name}{end}_ns"] = getattr(known, part) if known is not None else None
    verdict = summary["verdict"] if "verdict" in summary else None
    return found | {"valid": verdict["valid"] if verdict else True}


def _table(found: Mapping[str, Any]) -> pyarrow.Table:
    import pyarrow

    def kind(name: str) -> pyarrow.DataType:
        if name == "mean_ns":
            return pyarrow.float64()
        if name == "valid":
            return pyarrow.bool_()
        return pyarrow.int64() if name == "count" or name.endswith("_ns") else pyarrow.string()

    return pyarrow.table({name: pyarrow.array([value], kind(name)) for name, value in found.items()})


class DataSet:
    """A directory with one Arrow file for each point."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._data = directory / DATA

    def begin(self, wanted: Sequence[Point]) -> list[Point]:
        """The points that are missing.

        Raises:
            UsageError: the directory has another sweep.
        """
        plan = json.dumps({"points": sorted(point.key for point in wanted)})
        path = self._directory / _PLAN
        if path.exists() and path.read_text() != plan:
            raise UsageError(f"{self._directory} has another sweep: repeat its command line to go on with it, or name another with -o")
        self._data.mkdir(parents=True, exist_ok=True)
        path.write_text(plan)
        return [point for point in wanted if not self._file(point.key).exists()]

    def put(self, found: Mapping[str, Any]) -> None:
        """Adds a row, whole or not at all."""
        import pyarrow

        table = _table(found)
        part = self._file(found["point"]).with_suffix(".part")
        with pyarrow.OSFile(str(part), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        part.rename(self._file(found["point"]))

    def read(self) -> pyarrow.Table:
        """All rows so far."""
        import pyarrow
        import pyarrow.dataset

        files = sorted(str(path) for path in self._data.glob("*.arrow"))
        return pyarrow.dataset.dataset(files, format="ipc").to_table() if files else pyarrow.table({})

    def _file(self, key: str) -> Path:
        return self._data / f"{key}.arrow"


def run(
    wanted: Sequence[Point],
    out: Path,
    executor: Executor,
    say: Callable[[str], None],
    within_s: float = 3600.0,
    work: Callable[[Point, str, float], dict[str, Any]] = compute,
) -> list[str]:
    """Computes what is missing on the executor's workers. Returns what failed, one line each; the rest is kept."""
    data = DataSet(out)
    missing = data.begin(wanted)
    say(f"taillab: {len(wanted)} points, {len(wanted) - len(missing)} of them are there")
    failures = []
    for error, found in _results(missing, executor, within_s, work):
        if found is None:
            failures.append(error)
            say(f"taillab: {error}")
        else:
            data.put(found)
    return failures


def _results(
    missing: Sequence[Point], executor: Executor, within_s: float, work: Callable[[Point, str, float], dict[str, Any]]
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    pending = {executor.submit(work, point, _program.find(), within_s) for point in missing}
    # a point takes within_s at most, and each worker has its share of them
    for future in as_completed(pending, timeout=within_s * (len(missing) + 1)):
        try:
            yield "", future.result()
        except (TaillabError, OSError, ValueError) as error:
            yield str(error), None
