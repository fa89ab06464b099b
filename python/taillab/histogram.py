"""HdrHistogram logs (`latency.hlog`, V2): how often each latency occurred, to three decimal digits."""

from __future__ import annotations

import base64
import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from taillab.errors import ResultError

if TYPE_CHECKING:
    import pyarrow

# of the format, without the bits that say how counts are encoded
_COMPRESSED, _PLAIN, _ENCODING = 0x1C849304, 0x1C849303, 0xF0
_OUTER = struct.Struct(">ii")
_INNER = struct.Struct(">iiiiqqd")


@dataclass(frozen=True)
class Bucket:
    """Latencies from `low_ns` to `high_ns`, both included, in nanoseconds, and how many there were."""

    low_ns: int
    high_ns: int
    count: int


@dataclass(frozen=True)
class Histogram:
    """A distribution of latencies in nanoseconds, in buckets that each keep three decimal digits.

    `a + b` is the histogram of both samples together. That is exact, whereas percentiles must not be averaged.
    """

    buckets: tuple[Bucket, ...]

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(bucket.count for bucket in self.buckets)

    @property
    def min_ns(self) -> int | None:
        """The smallest observation in nanoseconds, to three digits; `None` without any."""
        return self.buckets[0].low_ns if self.buckets else None

    @property
    def max_ns(self) -> int | None:
        """The largest observation in nanoseconds, to three digits; `None` without any."""
        return self.buckets[-1].high_ns if self.buckets else None

    @property
    def mean_ns(self) -> float | None:
        """The mean in nanoseconds, from the middles of the buckets; `None` without observations."""
        if not self.buckets:
            return None
        return sum((b.low_ns + b.high_ns) / 2 * b.count for b in self.buckets) / self.count

    def quantile(self, q: float) -> int | None:
        """The quantile `q` (0.99 for p99) in nanoseconds: the upper end of its bucket. `None` without observations.

        It has no interval: `Run.summary` has the quantiles that the sample supports, with theirs.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"{q} is no quantile: give a number from 0 to 1, e.g. 0.99 for p99")
        if not self.buckets:
            return None
        up_to = list(accumulate(bucket.count for bucket in self.buckets))
        # the rank of HdrHistogram: at least one observation, and rounded as its own tools do
        rank = max(1, int(q * up_to[-1] + 0.5))
        return self.buckets[bisect_left(up_to, rank)].high_ns

    def ccdf(self) -> list[tuple[int, float]]:
        """(nanoseconds, share of observations that are longer) for each bucket, from the fastest."""
        longer = all_of_them = self.count
        points = []
        for bucket in self.buckets:
            longer -= bucket.count
            points.append((bucket.high_ns, longer / all_of_them))
        return points

    def to_arrow(self) -> pyarrow.Table:
        """The buckets as an Arrow table: `low_ns`, `high_ns` (int64) and `count`."""
        import pyarrow

        columns = {name: [getattr(bucket, name) for bucket in self.buckets] for name in ("low_ns", "high_ns", "count")}
        return pyarrow.table({name: pyarrow.array(values, pyarrow.int64()) for name, values in columns.items()})

    def __add__(self, other: Histogram) -> Histogram:
        if not isinstance(other, Histogram):
            return NotImplemented
        counts: dict[tuple[int, int], int] = {}
        for bucket in (*self.buckets, *other.buckets):
            ends = (bucket.low_ns, bucket.high_ns)
            counts[ends] = counts.get(ends, 0) + bucket.count
        return Histogram(tuple(Bucket(*ends, counts[ends]) for ends in sorted(counts)))

    def __repr__(self) -> str:
        return f"Histogram(count={self.count}, min_ns={self.min_ns}, max_ns={self.max_ns})"


def read(path: str | Path) -> dict[str, Histogram]:
    """The histogram of each series (tag) of a log, over all its intervals, in the order in which they appear.

    Raises:
        ResultError: the file is no HdrHistogram log of version 2.
    """
    found: dict[str, Histogram] = {}
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.startswith(("#", '"')) or not line.strip():
                continue
            tag, rest = "", line.strip()
            if rest.startswith("Tag="):
                tag, _, rest = rest.removeprefix("Tag=").partition(",")
            try:
                histogram = decode(rest.rsplit(",", 1)[-1])
            except (ValueError, struct.error, zlib.error, IndexError) as error:
                raise ResultError(f"{path}: line {number} is no histogram ({error})") from error
            found[tag] = found[tag] + histogram if tag in found else histogram
    return found


def decode(text: str) -> Histogram:
    """A histogram from its Base64 text, as in a log: V2, deflated."""
    outer = base64.b64decode(text, validate=True)
    cookie, length = _OUTER.unpack_from(outer)
    if cookie & ~_ENCODING != _COMPRESSED:
        raise ValueError("not version 2, deflated")
    inner = zlib.decompress(outer[_OUTER.size : _OUTER.size + length])
    cookie, length, offset, digits, lowest, _, _ = _INNER.unpack_from(inner)
    if cookie & ~_ENCODING != _PLAIN or offset != 0:
        raise ValueError("not version 2")
    layout = _Layout.of(lowest, digits)
    counts = _counts(inner[_INNER.size : _INNER.size + length])
    return Histogram(tuple(Bucket(*layout.ends(index), count) for index, count in counts))


@dataclass(frozen=True)
class _Layout:
    """Which values a counter is for."""

    unit: int
    half: int

    @classmethod
    def of(cls, lowest: int, digits: int) -> _Layout:
        if not (0 <= digits <= 5 and lowest >= 1):
            raise ValueError(f"{digits} digits from {lowest} on")
        # so many equal steps that each is at most the last digit
        steps = (2 * 10**digits - 1).bit_length()
        return cls(unit=lowest.bit_length() - 1, half=max(steps, 1) - 1)

    def ends(self, index: int) -> tuple[int, int]:
        """The least and the greatest value of the counter `index`."""
        bucket = (index >> self.half) - 1
        step = (index & ((1 << self.half) - 1)) + (1 << self.half)
        if bucket < 0:
            bucket, step = 0, step - (1 << self.half)
        low = step << (bucket + self.unit)
        return low, low + (1 << (bucket + self.unit)) - 1


def _counts(data: bytes) -> Iterator[tuple[int, int]]:
    """(index, count) of the counters that are not 0. A negative number is how many in a row are 0."""
    index, at = 0, 0
    while at < len(data):
        value, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            if shift == 56:  # the ninth byte has eight bits
                value |= byte << shift
                break
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        number = (value >> 1) ^ -(value & 1)
        if number < 0:
            index -= number
        else:
            if number > 0:
                yield index, number
            index += 1
