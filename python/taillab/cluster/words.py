"""Times and quantiles in words, as the terminal and the page show them."""

from __future__ import annotations

from typing import Any


def length(ns: float) -> str:
    """A length with three digits and its unit."""
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= scale:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns:.0f} ns"


def quantile_name(q: float) -> str:
    """`p99.9` for 0.999."""
    return f"p{100 * q:g}"


def at(distribution: dict[str, Any] | None, q: float) -> str:
    """The quantile of a distribution in the shape of `--json`; `-` where it has none."""
    quantiles = distribution["quantiles"] if distribution else []
    value = next((each["value"] for each in quantiles if abs(each["q"] - q) < 1e-9), None)
    return length(value) if value is not None else "-"
