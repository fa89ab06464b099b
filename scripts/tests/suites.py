"""Which test belongs to which stage, and how long each suite may take: the tables are in suites.toml."""

import multiprocessing
import os
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

import libtest

TABLES = tomllib.loads((Path(__file__).parent / "suites.toml").read_text())
# Loops of `_count` in a second on all CPUs together of the machine and hour of the limits in suites.toml.
REFERENCE_LOOPS_PER_S = TABLES["reference_loops_per_s"]


class UnknownTest(Exception):
    """suites.toml names a test that is not there."""


@dataclass(frozen=True)
class Suite:
    """The tests of one binary that belong to one stage."""

    stage: str
    binary: object
    tests: tuple

    @property
    def name(self):
        return self.binary.suite

    @property
    def threads(self):
        """Live tests share the machine's CPUs, so one at a time."""
        return 1 if self.binary.is_live else os.cpu_count()

    @property
    def limit_s(self):
        """Seconds it may take in the reference hour; 0 where suites.toml has none."""
        return limit_s(self.stage, self.name)

    @property
    def is_live(self):
        return self.binary.is_live

    def run(self, on_result):
        libtest.run(self.binary, self.tests, self.threads, on_result, ignored=self.stage == "soak")


def limit_s(stage, name):
    """Seconds that a suite may take in the reference hour; 0 where suites.toml has none."""
    return TABLES["seconds"].get(stage, {}).get(name, 0)


def select(binaries, stage, only=()):
    """The suites of a stage, with those tests whose names contain one of `only`."""
    chosen = []
    for binary in binaries:
        tests = _of_stage(binary, stage)
        if only:
            tests = [test for test in tests if any(part in test for part in only)]
        if tests:
            chosen.append(Suite(stage, binary, tuple(tests)))
    return chosen


def _of_stage(binary, stage):
    """`test` has the units and a choice of live tests; `live` all others, and units that take long; `soak`
    what is ignored everywhere else."""
    if stage == "soak":
        return libtest.names(binary.path, "--ignored")
    every = libtest.names(binary.path)
    listed = _listed(every, binary)
    in_list = stage == ("test" if binary.is_live else "live")
    return [test for test in every if (test in listed) == in_list]


def _listed(every, binary):
    """The tests of a binary that are not where its kind belongs by itself."""
    listed = TABLES["live_in_test" if binary.is_live else "units_in_live"].get(binary.suite, [])
    if isinstance(listed, dict):
        begins = listed["except"]
        idle = [begin for begin in begins if not any(test.startswith(begin) for test in every)]
        listed = [test for test in every if not test.startswith(tuple(begins))]
    else:
        idle = [test for test in listed if test not in every]
    if idle:
        raise UnknownTest(f"suites.toml names tests that {binary.suite} does not have: {', '.join(idle)}")
    return listed


def slowness():
    """How much slower than in the reference hour this machine is now, at least 1."""
    began, pool = time.monotonic(), multiprocessing.get_context("fork")
    until = began + 0.2
    counts = pool.SimpleQueue()
    counters = [pool.Process(target=_count, args=(until, counts)) for _ in range(os.cpu_count())]
    for counter in counters:
        counter.start()
    loops = sum(counts.get() for _ in counters)
    for counter in counters:
        counter.join()
    return max(1.0, REFERENCE_LOOPS_PER_S * (time.monotonic() - began) / loops)


def _count(until, counts):
    loops = 0
    while time.monotonic() < until:
        loops += 1
    counts.put(loops)
