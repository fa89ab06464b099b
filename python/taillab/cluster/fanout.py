"""One client of many servers: each request goes to all of them at the same instant, and lasts as long as the slowest.

How much the servers are slow together shows against the order statistics of one: if they were independent, the slowest
would be within x with the product of their probabilities to be within x.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taillab.cluster.merge import QUANTILES

if TYPE_CHECKING:
    import pyarrow

_Z = 1.959964
# more threads than any client has
_THREADS = 1 << 12


def slowest(parts: Sequence[tuple[Path, int]]) -> dict[str, Any]:
    """The slowest answer to each request, of files of requests, each with the start by its own host's clock."""
    if not parts:
        return of_times([], 0)
    columns, asked = joined([_times(path, start_ns) for path, start_ns in parts])
    return of_times(columns, asked)


def _times(path: Path, start_ns: int) -> pyarrow.Table:
    """Key and response time of each request of the measurement. The key is when it was due, and by which thread: all
    clients draw them from one seed.
    """
    import pyarrow
    import pyarrow.compute as pc
    import pyarrow.parquet as parquet

    table = parquet.read_table(path, columns=["intended", "thread", "warm_up", "response_time_ns"])
    table = table.filter(pc.invert(table["warm_up"]))
    due = pc.multiply(pc.subtract(table["intended"], start_ns), _THREADS)
    key = pc.add(due, pc.cast(table["thread"], pyarrow.int64()))
    return pyarrow.table({"key": key, "time": table["response_time_ns"]})


def joined(tables: Sequence[pyarrow.Table]) -> tuple[list[list[int]], int]:
    """The times of the requests that every server answered, one list for each server, in the same order; and how many
    requests the first server was sent.
    """
    import pyarrow.compute as pc

    first = tables[0]
    columns = [first["time"]]
    for table in tables[1:]:
        # null where the other client did not send it
        columns.append(table["time"].take(pc.index_in(first["key"], value_set=table["key"])))
    answered = columns[0].is_valid()
    for column in columns[1:]:
        answered = pc.and_(answered, column.is_valid())
    return [column.filter(answered).to_pylist() for column in columns], len(first)


def of_times(columns: Sequence[Sequence[int]], asked: int) -> dict[str, Any]:
    """The distribution of the slowest, and what it would be if the servers were independent. Times are nanoseconds."""
    slow = sorted(map(max, zip(*columns, strict=True)))
    each = [sorted(column) for column in columns]
    total, quantiles = len(slow), []
    for q in QUANTILES:
        if total * (1 - q) < 1 - 1e-9:
            quantiles.append({"q": q, "value": None, "lo": None, "hi": None, "independent": None})
            continue
        half = _Z * math.sqrt(q * (1 - q) * total)
        low, high = max(1, math.floor(q * total - half)), math.ceil(q * total + half)
        quantiles.append(
            {
                "q": q,
                "value": slow[math.ceil(q * total) - 1],
                "lo": slow[low - 1],
                "hi": slow[high - 1] if high <= total else None,
                "independent": _independent(each, slow, q),
            }
        )
    return {"servers": len(columns), "complete": total, "incomplete": asked - total, "quantiles": quantiles}


def _independent(each: Sequence[Sequence[int]], slow: Sequence[int], q: float) -> int:
    """The least time that was measured at which the product of the shares that are within it is q."""
    candidates = sorted({*slow, *each[0]})
    low, high = 0, len(candidates) - 1
    while low < high:
        middle = (low + high) // 2
        within = math.prod(bisect_right(column, candidates[middle]) / len(column) for column in each)
        if within < q - 1e-12:
            low = middle + 1
        else:
            high = middle
    return candidates[low]
