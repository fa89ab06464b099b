"""The composition of the excess, with few enough parts to tell their colours apart, as in the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taillab.records import CAUSE_LABELS, Band

_MOST = 8
# less than this in every band is not worth a colour
_LEAST = 0.005
# the weight of a cause among fast requests, where it matters less
_FAST = 0.25
# what limits the explanation itself stays visible
_ALWAYS = ("unobserved", "hypervisor")


@dataclass(frozen=True)
class Composition:
    """Bands of requests, and the causes that are told apart: the largest first, `unexplained`, then `None`, the others."""

    bands: Sequence[Band]
    parts: tuple[str | None, ...]

    @classmethod
    def of(cls, bands: Sequence[Band]) -> Composition | None:
        """`None` without a band that has an excess."""
        if not any(part.mean_excess_ns > 0 for band in bands for part in band.parts):
            return None
        weights = {cause: max(_weight(band, cause) for band in bands) for cause in CAUSE_LABELS if cause != "unexplained"}
        causes = sorted((cause for cause in weights if weights[cause] >= _LEAST), key=lambda cause: -weights[cause])
        causes = sorted(causes, key=lambda cause: cause not in _ALWAYS)[:_MOST]
        causes.sort(key=lambda cause: -weights[cause])
        parts: list[str | None] = [*causes, "unexplained"]
        others = any(part.cause not in parts and part.mean_excess_ns for band in bands for part in band.parts)
        return cls(bands, (*parts, None) if others else tuple(parts))

    def label(self, part: str | None) -> str:
        """What a person reads."""
        return "all others" if part is None else CAUSE_LABELS.get(part, part)

    def drawn(self, band: Band) -> list[float]:
        """The length of each part, which together are 1. A part in which the server beat the ideal has length 0."""
        lengths = [max(self._mean_excess_ns(band, part), 0.0) for part in self.parts]
        whole = sum(lengths)
        return [length / whole if whole else 0.0 for length in lengths]

    def _mean_excess_ns(self, band: Band, part: str | None) -> float:
        """The part's mean excess per request of the band, in nanoseconds."""
        own = (each for each in band.parts if (each.cause == part if part else each.cause not in self.parts))
        return sum(each.mean_excess_ns for each in own)


def band_name(band: Band) -> str:
    """`up to p90`, `p90–p99`, `above p99.9`."""
    low, high = (f"p{q * 100:.6f}".rstrip("0").rstrip(".") for q in (band.from_q, band.to_q))
    if band.from_q <= 0:
        return "all requests" if band.to_q >= 1 else f"up to {high}"
    return f"above {low}" if band.to_q >= 1 else f"{low}–{high}"


def _weight(band: Band, cause: str) -> float:
    share = sum(part.share.value for part in band.parts if part.cause == cause)
    return share * (1.0 if band.from_q > 0 else _FAST)
