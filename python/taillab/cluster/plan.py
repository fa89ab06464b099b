"""The plan of an experiment: which client sends what share, from which seed, and when all begin."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from taillab.cluster.clocks import HostClock
from taillab.cluster.faults import UsageError

_UNITS_NS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
_MASK = (1 << 64) - 1


def length_ns(text: str) -> int:
    """A length such as `10s` or `500us` in nanoseconds; `0` is none."""
    if text.strip() == "0":
        return 0
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zµ]+)", text.strip())
    if not parts or parts[2] not in _UNITS_NS:
        raise UsageError(f"`{text}` is no length of time: write a number and a unit, e.g. 10s or 500ms")
    return round(float(parts[1]) * _UNITS_NS[parts[2]])


def per_second(text: str) -> float:
    """A rate such as `20000` or `20k`."""
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)([kKMG]?)", text.strip())
    rate = float(parts[1]) * _SCALES[parts[2]] if parts else 0.0
    if rate <= 0:
        raise UsageError(f"`{text}` is no rate: write requests per second, e.g. 20000 or 20k")
    return rate


def share(text: str) -> float:
    """A share such as `50%` or `0.5`."""
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", text.strip())
    value = float(parts[1]) / (100 if parts[2] else 1) if parts else 0.0
    if not 0 < value <= 1.5:
        raise UsageError(f"`{text}` is no share of the capacity: write e.g. 50% or 0.5")
    return value


def shares(rate_per_s: float, clients: int) -> list[float]:
    """The rate of each client. Poisson streams of these rates are together one of the whole rate."""
    return [rate_per_s / clients] * clients


def seeds(seed: int, clients: int) -> list[int]:
    """An independent seed for each client (splitmix64): the same seed gives the same load on any hosts."""
    found = []
    state = seed & _MASK
    for _ in range(clients):
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        # JSON of other programs keeps 53 bits
        found.append((mixed ^ (mixed >> 31)) >> 11)
    return found


@dataclass(frozen=True)
class Load:
    """What all clients send together. Lengths are nanoseconds, rates requests per second."""

    target: str
    rate_per_s: float | None
    """`None`: a closed loop, as fast as answers come."""
    duration_ns: int
    warmup_ns: int
    seed: int
    arrivals: str = "poisson"
    options: tuple[str, ...] = field(default=())
    """Options of `taillab load` for every client."""

    @property
    def length_ns(self) -> int:
        """From the start to the last send."""
        return self.warmup_ns + self.duration_ns


def plans(load: Load, version: str, at_ns: int, clocks: dict[int, HostClock], clients: int) -> dict[int, dict[str, Any]]:
    """The plan of each client that takes part, by its number of `clients`, for a start at this instant of our clock.

    Those that take part share the whole load.
    """
    numbers = sorted(clocks)
    rates: list[float | str] = ["max"] * len(numbers)
    if load.rate_per_s is not None:
        rates = [*shares(load.rate_per_s, len(numbers))]
    of_all = seeds(load.seed, clients)
    made = {}
    for number, rate in zip(numbers, rates, strict=True):
        clock = clocks[number]
        # the first one stores the keys of all
        options = [*load.options, *(["--no-prefill"] if number != numbers[0] and _has_keys(load.target) else [])]
        start = {
            "clock": "monotonic",
            "at_ns": at_ns,
            "offset_ns": round(clock.offset_ns(at_ns)),
            "error_ns": round(clock.error_ns(at_ns)),
        }
        made[number] = {
            "taillab": version,
            "client": number,
            "clients": clients,
            "target": load.target,
            "rate_per_s": rate,
            "arrivals": load.arrivals,
            "seed": of_all[number],
            "warmup_ns": load.warmup_ns,
            "duration_ns": load.duration_ns,
            "start": start,
            "options": options,
        }
    return made


def fan_out_plans(
    load: Load, targets: list[str], version: str, at_ns: int, clocks: dict[int, HostClock], clients: int
) -> dict[int, dict[str, Any]]:
    """Plans for one client of many servers: to each of them goes every request, at the same instants."""
    made = plans(load, version, at_ns, clocks, clients)
    for number, plan in made.items():
        plan |= {"target": targets[number], "rate_per_s": load.rate_per_s, "seed": load.seed}
        # each server has keys of its own
        plan["options"] = list(load.options)
    return made


def _has_keys(target: str) -> bool:
    return target.startswith(("memcached", "redis"))
