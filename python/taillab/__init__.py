"""taillab: a tail-latency laboratory for Linux servers, from Python.

`load(directory)` reads a saved result. `run`, `trace`, `explain`, `load_test`, `sim`, `rtt`, `budget` and `noise` start
the program and return the same: a `Run`, with its summary, its requests as an Arrow table, its histograms and its page.
`taillab.plot` draws figures (matplotlib; `pip install 'taillab[plot]'`).

>>> import taillab
>>> run = taillab.run("memcached", utilization=0.5, duration="20s")
>>> run.summary.measured.sojourn.quantile(0.99).value        # nanoseconds
>>> run.requests.to_pandas()
"""

from taillab._commands import budget, explain, load_test, noise, rtt, run, sim, trace
from taillab._result import Run, load
from taillab.errors import (
    InterruptedRunError,
    LimitMissedError,
    MissingProgramError,
    ProgramError,
    ResultError,
    TaillabError,
    UndecidedError,
    UnsupportedError,
    UsageError,
)
from taillab.histogram import Histogram

__all__ = [
    "Histogram",
    "InterruptedRunError",
    "LimitMissedError",
    "MissingProgramError",
    "ProgramError",
    "ResultError",
    "Run",
    "TaillabError",
    "UndecidedError",
    "UnsupportedError",
    "UsageError",
    "budget",
    "explain",
    "load",
    "load_test",
    "noise",
    "rtt",
    "run",
    "sim",
    "trace",
]
