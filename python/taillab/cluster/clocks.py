"""How far the clock of another host is from ours, within a stated error.

The clock is CLOCK_MONOTONIC, which nobody sets; its rate is slewed. A question that leaves at `sent` and whose answer is
back at `received` was stamped there in between, whatever the ways there and back took: the offset lies between
`there - received` and `there - sent`. The offset of many questions lies in all of these intervals.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from taillab.cluster.faults import ClockJumpedError

# The kernel slews a clock by at most 500 ppm, and a crystal is off by less than 100 ppm, on each host.
MOST_DRIFT = 1200e-6
_S = 1e9


def now_ns() -> int:
    """This host's CLOCK_MONOTONIC in nanoseconds, the clock of all records."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


@dataclass(frozen=True)
class Sample:
    """One question and its answer, in nanoseconds: `sent` and `received` by our clock, `there` by the other."""

    sent_ns: int
    there_ns: int
    received_ns: int


@dataclass(frozen=True)
class Offset:
    """The other clock minus ours at the instant `at_ns` of ours: `value_ns`, within `error_ns`."""

    at_ns: int
    value_ns: float
    error_ns: float


def offset_of(samples: Sequence[Sample], host: str) -> Offset:
    """The offset during a series of questions, from all of them.

    Raises:
        ClockJumpedError: no offset fits all of them.
    """
    best = min(samples, key=lambda sample: sample.received_ns - sample.sent_ns)
    at = (best.sent_ns + best.received_ns) // 2
    low, high = float("-inf"), float("inf")
    for sample in samples:
        # a clock that drifts has another offset a moment later
        slack = MOST_DRIFT * max(abs(sample.sent_ns - at), abs(sample.received_ns - at))
        low = max(low, sample.there_ns - sample.received_ns - slack)
        high = min(high, sample.there_ns - sample.sent_ns + slack)
    if low > high:
        raise ClockJumpedError(host, low - high, "while it was measured")
    return Offset(at, (low + high) / 2, (high - low) / 2)


@dataclass(frozen=True)
class HostClock:
    """The clock of a host against ours, from offsets at several instants, the first and the last of which count."""

    host: str
    offsets: tuple[Offset, ...]

    def __post_init__(self) -> None:
        for before, after in pairwise(self.offsets):
            moved = abs(after.value_ns - before.value_ns) - before.error_ns - after.error_ns
            if moved > MOST_DRIFT * (after.at_ns - before.at_ns):
                raise ClockJumpedError(self.host, moved, "between two measurements of it")

    @property
    def drift(self) -> float:
        """By how much the other clock is faster than ours, as a share (1e-6: 1 ppm)."""
        first, last = self.offsets[0], self.offsets[-1]
        length = last.at_ns - first.at_ns
        return (last.value_ns - first.value_ns) / length if length > 0 else 0.0

    def offset_ns(self, at_ns: int) -> float:
        """The other clock minus ours at an instant of ours."""
        first = self.offsets[0]
        return first.value_ns + self.drift * (at_ns - first.at_ns)

    def error_ns(self, at_ns: int) -> float:
        """`offset_ns` is known within this.

        Between the first and the last measurement it is the error of these and twice what one in between is off their
        line; with only two, the whole drift. After the last one the error of the drift grows.
        """
        first, last = self.offsets[0], self.offsets[-1]
        error = max(each.error_ns for each in self.offsets)
        between = self.offsets[1:-1]
        bends = [max(0.0, abs(each.value_ns - self.offset_ns(each.at_ns)) - each.error_ns) for each in between]
        bent = 2 * max(bends) if bends else abs(last.value_ns - first.value_ns)
        length, beyond = last.at_ns - first.at_ns, max(0, at_ns - last.at_ns)
        if not beyond:
            return error + bent
        by_line = error + bent + ((first.error_ns + last.error_ns) / length * beyond if length > 0 else float("inf"))
        # without the line: the last offset, and the most that two clocks drift
        by_bound = last.error_ns + MOST_DRIFT * beyond + abs(self.offset_ns(at_ns) - last.value_ns)
        return min(by_line, by_bound)

    def to_ours(self, there_ns: int) -> int:
        """An instant of the other clock by ours."""
        first = self.offsets[0]
        since = there_ns - first.at_ns - first.value_ns
        # there = ours + offset(ours), solved for ours
        return round(first.at_ns + since / (1 + self.drift))

    def summary(self) -> dict[str, float]:
        """Offset, error and drift at the last measurement, as the result has them."""
        last = self.offsets[-1]
        return {
            "offset_ns": round(last.value_ns),
            "error_ns": round(self.error_ns(last.at_ns)),
            "drift_ppm": round(self.drift * 1e6, 3),
        }
