"""Runs the tests: `python3 scripts/tests STAGE ...`, which the Makefile calls.

lint   format and lints, with and without the eBPF probe, and whether this runner counts right
test   units, the command line, the browser, the Python package, and a choice of live tests: whether it works here
live   all other tests of this machine: the rest of the live ones, and units that take long
soak   tests that only many rounds can judge
guest  the quickest guest in QEMU
vm     all guests

Several stages build once and run nothing twice. A stage alone has all that belongs to it: `live` alone also the live
tests of `test`. Everything is counted in the last line, and the exit code follows from it.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter

import cargo
import guests
import pytests
import selftest
import suites
from results import Result, closing_line, exit_code, save, table

STAGES = ("lint", "test", "live", "soak", "guest", "vm")
KEPT = cargo.TARGET / "tests"
MAY_SKIP = os.environ.get("TAILLAB_SKIP_LIVE") == "1"
# Two looks at the machine, before a suite and after it, may miss a spell between them: it may take SPELL times as long.
# From a slowness of DISTURBED on, other programs take the CPUs, and it may take UNSURE times as long.
DISTURBED, SPELL, UNSURE = 1.25, 1.25, 2


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    run = Run(options)
    try:
        for number in range(1, options.rounds + 1):
            run.round(number)
    except suites.UnknownTest as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print("\ninterrupted: what follows is what was found until then", file=sys.stderr)
        run.interrupted = True
    return run.end()


def arguments():
    parser = argparse.ArgumentParser(prog="tests", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stages", nargs="+", choices=STAGES, metavar="STAGE", help=", ".join(STAGES))
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME",
                        help="only tests whose names contain one of these, with the module as in streams::memcached;\n"
                             "of vm: only the guests of these names")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="run the stages N times, from one build")
    parser.add_argument("--busy-every", type=int, default=0, metavar="N",
                        help="every Nth round runs beside a loop that takes all of CPU 1 that it gets; 1: each round")
    return parser.parse_args()


class Run:
    """All rounds of one call."""

    def __init__(self, options):
        self.options = options
        self.results = []
        self.seconds = {}
        self.rounds = []
        self.interrupted = False
        self.began = time.monotonic()
        self.binaries = None

    def round(self, number):
        began, before = time.monotonic(), len(self.results)
        every = self.options.busy_every
        busy = every > 0 and number % every == 0
        with busy_loop() if busy else contextlib.nullcontext():
            ran = [self.run_stage(stage) for stage in self.options.stages]
            if self.options.only and not any(ran):
                self.add(Result("all", " ".join(self.options.only), "failed", 0.0, "nothing has such a name"))
        self.rounds.append(round_row(number, busy, self.results[before:], time.monotonic() - began))
        if self.options.rounds > 1:
            say(table(ROUND_HEADER, self.rounds))

    def run_stage(self, stage):
        """Whether there was anything to run."""
        if stage == "lint":
            return self.lint()
        if not self.build():
            return True
        if stage in ("guest", "vm"):
            return self.run_guests([guests.QUICKEST] if stage == "guest" else guests.GUESTS)
        return self.run_suites(stage)

    def lint(self):
        for name, passed, said in selftest.run():
            self.add(Result("runner", name, "passed" if passed else "failed", 0.0, said))
            if not passed:
                say(f"FAILED runner {name}: {said}")
        began = time.monotonic()
        for name, passed in cargo.lint():
            self.add(Result("lint", name, "passed" if passed else "failed", time.monotonic() - began))
            began = time.monotonic()
        return True

    def run_suites(self, stage):
        stages = ["test", "live"] if stage == "live" and "test" not in self.options.stages else [stage]
        only = self.options.only
        chosen = [suite for each in stages
                  for suite in (*suites.select(self.binaries, each, only), *pytests.select(each, only))
                  if stage != "live" or each == "live" or suite.is_live]
        for suite in chosen:
            self.run_suite(suite)
        return bool(chosen)

    def run_suite(self, suite):
        results, slowness, began = [], suites.slowness(), time.monotonic()

        def on_result(result):
            results.append(result)
            progress(f"{suite.stage}: {suite.name}, {len(results)} of {len(suite.tests)}, "
                     f"{time.monotonic() - began:.0f} s, {result.test}")
            if result.outcome in ("failed", "skipped") and not result.lacks_network:
                say(f"{result.outcome.upper()} {suite.name} {result.test}: {result.said}")
            self.add(result)

        suite.run(on_result)
        took = time.monotonic() - began
        # the machine may have become slower meanwhile
        slowness = max(slowness, suites.slowness())
        self.seconds.setdefault((suite.stage, suite.name), []).append((took, suite.limit_s, slowness))
        say(f"{suite.stage}: {suite.name}, {tally(results)}, {took:.1f} s")
        if not self.options.only and suite.stage != "soak":
            spoiled_s = sum(result.spoiled_s() for result in results)
            self.check_limit(suite, took - spoiled_s, slowness, spoiled_s > 0)

    def check_limit(self, suite, took, slowness, is_repeated):
        """Going over it fails `make check`, so that whoever makes the tests slower notices. Who only wants to know whether
        the program works here is told, and no more: their machine may be slow."""
        unsure = UNSURE if slowness > DISTURBED or is_repeated else SPELL
        if took <= suite.limit_s * slowness * unsure:
            return
        text = (f"took {took:.1f} s; suites.toml allows {suite.limit_s} s, {slowness * unsure:.2f} times as long in "
                "this hour")
        if "lint" in self.options.stages:
            say(f"FAILED {suite.stage}: {suite.name} {text}")
            self.add(Result(suite.name, "seconds", "failed", took, text))
        else:
            say(f"slow: {suite.name} {text}")

    def run_guests(self, wanted):
        only = self.options.only
        chosen = [guest for guest in wanted if not only or any(part in guest.name for part in only)]
        live = {binary.crate: binary.path for binary in self.binaries if binary.is_live}
        found = guests.run(chosen, live, KEPT / "guests", say)
        for guest in found:
            for result in guest.results:
                self.add(result)
                if result.outcome == "failed":
                    say(f"FAILED in guest {result.suite}: {result.test}: {result.said}")
        if found:
            say("\n".join(guests.table(found)))
        return bool(chosen)

    def build(self):
        if self.binaries is None:
            say("building the tests")
            began = time.monotonic()
            self.binaries = cargo.build() or []
            took = time.monotonic() - began
            self.seconds["build", "all tests"] = [(took, 0, 1.0)]
            if not self.binaries:
                self.add(Result("build", "all tests", "failed", took))
            say(f"build: {took:.0f} s")
        return self.binaries

    def add(self, result):
        self.results.append(result)

    def end(self):
        took = time.monotonic() - self.began
        rows = [(stage, suite, f"{max(each[0] for each in times):.1f} s", f"{times[0][1]} s" if times[0][1] else "",
                 f"{max(each[2] for each in times):.2f}")
                for (stage, suite), times in self.seconds.items()]
        say(table(("stage", "suite", "seconds", "limit", "slower than the reference hour, times"), rows))
        for result in self.results:
            if result.outcome == "failed":
                say(f"failed: {result.suite} {result.test}")
            if result.outcome == "not run":
                say(f"not run: {result.suite} {result.test}: {result.said}")
        for (suite, why), count in Counter((r.suite, r.said) for r in self.results if r.lacks_network).items():
            say(f"skipped: {suite}, {count} tests: {why}")
        save(KEPT / "results.json", self.results, {"stages": self.options.stages, "seconds": round(took, 1)})
        say(f"{took / 60:.1f} minutes; each result is in {KEPT / 'results.json'}\n\n{closing_line(self.results)}")
        return 130 if self.interrupted else exit_code(self.results, MAY_SKIP)


def tally(results):
    counts = Counter(result.outcome for result in results)
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items())


ROUND_HEADER = ("round", "beside", "passed", "failed", "skipped", "not run", "seconds", "failures")


def round_row(number, busy, results, took):
    counts = Counter(result.outcome for result in results)
    failures = " ".join(f"{result.suite} {result.test}" for result in results if result.outcome == "failed")
    beside = "a loop on CPU 1" if busy else ""
    return (number, beside, *(counts[each] for each in ("passed", "failed", "skipped", "not run")), f"{took:.0f} s", failures)


@contextlib.contextmanager
def busy_loop():
    """A loop on CPU 1, which ends with this process, however that ends."""
    loop = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "taskset", "-c", "1", "sh", "-c", "while :; do :; done"])
    try:
        yield
    finally:
        loop.kill()
        loop.wait()


def say(text):
    clear = "\r\x1b[K" if sys.stdout.isatty() else ""
    print(f"{clear}{text}", flush=True)


def progress(text):
    """One line that changes, on a terminal."""
    if sys.stdout.isatty():
        print(f"\r\x1b[K{text[:os.get_terminal_size().columns - 1]}", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
