"""From the records of each client to those of all: histograms are added, requests are put on one clock.

A percentile of all is never a mean of percentiles: it comes from the sum of the histograms.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from taillab.cluster.clocks import HostClock
from taillab.histogram import Bucket, Histogram

if TYPE_CHECKING:
    import pyarrow

QUANTILES = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
# of the normal distribution: 95 %
_Z = 1.959964
_ROWS_AT_ONCE = 1 << 16
# the gaps that are compared with a Poisson process, and the limit of the test at 1 %
_MOST_GAPS = 200_000
_KOLMOGOROV_1_PERCENT = 1.628


@dataclass(frozen=True)
class Part:
    """What one client measured: its histogram, and the distribution of `--json` of the same times."""

    histogram: Histogram
    distribution: dict[str, Any]
    spoiled: frozenset[float] = frozenset()
    """Quantiles that this client itself made worse, by its own verdict: it sent late, for example."""


def together(parts: Iterable[Part]) -> tuple[Histogram, dict[str, Any]]:
    """The sum of the histograms, and the distribution of all requests, in the shape of `--json`.

    Count, mean, minimum and maximum are exact. A quantile is that of the sum, to three digits, without the clients that
    spoiled it; `clients` says how many are in it. Its interval is at least that of its count, and as wide as that of a
    usual client: all clients saw the same server at the same time, so that more of them do not make the fluctuations
    of its queue better known. One client is in memory at a time.
    """
    sums: dict[frozenset[float], _Sum] = {}
    total, weighted, least, most = 0, 0.0, None, None
    for part in parts:
        found = part.distribution
        if not found["count"]:
            continue
        sums.setdefault(part.spoiled, _Sum()).add(part)
        total += found["count"]
        weighted += found["mean"] * found["count"]
        least = found["min"] if least is None else min(least, found["min"])
        most = found["max"] if most is None else max(most, found["max"])
    return _Sum.of(sums.values()).histogram(), {
        "unit": "ns",
        "count": total,
        "mean": weighted / total if total else None,
        "min": least,
        "max": most,
        "quantiles": _quantiles(sums),
    }


class _Sum:
    """The histograms of some clients together, and half the width of each one's intervals."""

    def __init__(self) -> None:
        self.clients = 0
        self.widths: dict[float, list[float]] = {q: [] for q in QUANTILES}
        self._counts: dict[tuple[int, int], int] = {}

    def add(self, part: Part) -> None:
        self.clients += 1
        for bucket in part.histogram.buckets:
            self._count((bucket.low_ns, bucket.high_ns), bucket.count)
        for q in QUANTILES:
            width = _half_width(part, q)
            if width is not None:
                self.widths[q].append(width)

    @classmethod
    def of(cls, sums: Iterable[_Sum]) -> _Sum:
        whole = cls()
        for each in sums:
            whole.clients += each.clients
            for ends, count in each._counts.items():
                whole._count(ends, count)
            for q in QUANTILES:
                whole.widths[q] += each.widths[q]
        return whole

    def _count(self, ends: tuple[int, int], count: int) -> None:
        self._counts[ends] = self._counts.get(ends, 0) + count

    def histogram(self) -> Histogram:
        return Histogram(tuple(Bucket(*ends, self._counts[ends]) for ends in sorted(self._counts)))


def _quantiles(sums: dict[frozenset[float], _Sum]) -> list[dict[str, Any]]:
    """Each quantile, of the clients that did not spoil it."""
    wider, found = 1.0, []
    for q in QUANTILES:
        good = _Sum.of(each for spoiled, each in sums.items() if q not in spoiled)
        row: dict[str, Any] = {"q": q, "value": None, "lo": None, "hi": None, "clients": good.clients}
        found.append(row)
        whole = good.histogram()
        total = whole.count
        # the ranks are whole numbers: 1000 · (1 − 0.999) must not be less than 1
        if total * (1 - q) < 1 - 1e-9:
            continue
        by_count = _Z * math.sqrt(q * (1 - q) / total)
        if good.widths[q]:
            # kept for higher quantiles, which only all clients together support
            wider = max(1.0, median(good.widths[q]) / by_count)
        half = by_count * wider
        up_to = list(accumulate(bucket.count for bucket in whole.buckets))
        low, high = max(1, math.floor((q - half) * total)), math.ceil((q + half) * total)
        row["value"] = whole.quantile(q)
        row["lo"] = whole.buckets[_place(up_to, low)].low_ns
        row["hi"] = whole.buckets[_place(up_to, high)].high_ns if high <= total else None
    return found


def _place(up_to: list[int], rank: int) -> int:
    """The bucket of the observation with this rank, from 1."""
    return bisect_right(up_to, rank - 1)


def _half_width(part: Part, q: float) -> float | None:
    """Half of what a client's interval of a quantile spans, as a share of its requests."""
    quantiles = part.distribution["quantiles"]
    known = next((each for each in quantiles if abs(each["q"] - q) < 1e-9), None)
    if known is None or known.get("lo") is None or known.get("hi") is None or not part.histogram.count:
        return None
    within = [bucket.count for bucket in part.histogram.buckets if known["lo"] <= bucket.high_ns and bucket.low_ns <= known["hi"]]
    return sum(within) / part.histogram.count / 2


@dataclass(frozen=True)
class Records:
    """The requests of one client, in its clock."""

    client: int
    path: Path
    clock: HostClock


def write_requests(records: Iterable[Records], out: Path) -> int:
    """Writes the requests of all clients as one file, their instants on our clock, with a column `client`.

    A request is (client, thread, connection, intended). Memory does not grow with their number. Returns it.
    """
    import pyarrow
    import pyarrow.parquet as parquet

    writer, rows = None, 0
    try:
        for each in records:
            with parquet.ParquetFile(each.path) as file:
                for batch in file.iter_batches(_ROWS_AT_ONCE):
                    table = on_our_clock(pyarrow.Table.from_batches([batch]), each.clock)
                    number = pyarrow.nulls(len(table), pyarrow.int32()).fill_null(each.client)
                    table = table.append_column("client", number)
                    writer = writer or parquet.ParquetWriter(out, table.schema, compression="snappy")
                    writer.write_table(table.cast(writer.schema))
                    rows += len(table)
    finally:
        if writer is not None:
            writer.close()
    return rows


def on_our_clock(table: pyarrow.Table, clock: HostClock) -> pyarrow.Table:
    """A table of requests whose instants, which name their clock, are moved from the host's clock to ours."""
    import pyarrow
    import pyarrow.compute as pc

    first, drift = clock.offsets[0], clock.drift
    there = first.at_ns + round(first.value_ns)
    for place, field in enumerate(table.schema):
        if b"clock" not in (field.metadata or {}):
            continue
        since = pc.subtract(table[field.name], there)
        bent = pc.cast(pc.round(pc.multiply(pc.cast(since, pyarrow.float64()), -drift / (1 + drift))), pyarrow.int64())
        ours = pc.add(pc.add(since, bent), first.at_ns)
        named = field.with_metadata({**field.metadata, b"clock": b"CLOCK_MONOTONIC of the first rank's host, since boot"})
        table = table.set_column(place, named, ours)
    return table


def instants(path: Path, column: str, first_ns: int, last_ns: int, rate_per_s: float) -> list[int]:
    """The instants of a column from `first_ns` on and before `last_ns`: about as many as `superposition` looks at."""
    import pyarrow.compute as pc
    import pyarrow.parquet as parquet

    found: list[int] = []
    end = min(last_ns, first_ns + round(1.1 * _MOST_GAPS / rate_per_s * 1e9))
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=[column]):
            values = batch[column]
            within = pc.and_(pc.greater_equal(values, first_ns), pc.less(values, end))
            found += values.filter(within).to_pylist()
    return found


def superposition(instants_ns: Sequence[int], rate_per_s: float) -> dict[str, Any]:
    """Whether arrivals are a Poisson process of this rate: their number, the coefficient of variation of their gaps,
    and the distance of Kolmogorov and Smirnov between the gaps and the exponential distribution, with its limit.
    """
    times = sorted(instants_ns)[: _MOST_GAPS + 1]
    gaps = sorted(after - before for before, after in zip(times, times[1:], strict=False))
    n = len(gaps)
    if n < 2:
        return {"arrivals": len(times), "cv": None, "ks_d": None, "ks_critical": None, "poisson": None}
    mean = sum(gaps) / n
    variance = sum((gap - mean) ** 2 for gap in gaps) / (n - 1)
    distance = 0.0
    for place, gap in enumerate(gaps):
        share = 1 - math.exp(-gap * rate_per_s / 1e9)
        distance = max(distance, share - place / n, (place + 1) / n - share)
    critical = _KOLMOGOROV_1_PERCENT / math.sqrt(n)
    cv = math.sqrt(variance) / mean if mean else None
    return {"arrivals": len(times), "cv": cv, "ks_d": distance, "ks_critical": critical, "poisson": distance <= critical}
