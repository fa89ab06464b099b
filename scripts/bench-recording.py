#!/usr/bin/env python3
"""What recording costs a run: memory for each request, D of the sends, their lateness, and the time that is cut.
Runs each of the given builds in turn, for some rounds, and prints a row for each run and the medians. Needs root.

    scripts/bench-recording.py [-n ROUNDS] BINARY [BINARY …] [-- ARGUMENTS OF taillab run]

Without arguments it runs `memcached -d 20s`. The memory is the peak of the command, its analysis included.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

COLUMNS = ("MB", "bytes/request", "D", "late p99 µs", "late p99.9 µs", "cut %", "requests")
ROW = "{:40}" + "{:>15}" * len(COLUMNS)


def lateness_us(load, q):
    found = [at["value"] for at in load["lateness"]["quantiles"] if at["q"] == q]
    return found[0] / 1e3 if found and found[0] is not None else float("nan")


def measured(binary, arguments):
    """A run: the figures of COLUMNS."""
    command = [binary, "run", *arguments, "-q", "--json", "--no-save"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    out = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    try:
        report = json.loads(out)
    except json.JSONDecodeError:
        sys.exit(f"{' '.join(command)}: exit code {child.returncode}, and no result")
    load, cut = report["load"], (report.get("scheduled") or {}).get("cut") or {}
    memory, requests = usage.ru_maxrss * 1024, load["requests"]
    return (
        memory / 1e6,
        memory / max(requests, 1),
        load["arrivals"]["ks_d"],
        lateness_us(load, 0.99),
        lateness_us(load, 0.999),
        100 * cut.get("share", 0.0),
        requests,
    )


def main():
    ours, theirs = sys.argv[1:], []
    if "--" in ours:
        place = ours.index("--")
        ours, theirs = ours[:place], ours[place + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=5, metavar="ROUNDS")
    parser.add_argument("binaries", nargs="+", metavar="BINARY")
    asked = parser.parse_args(ours)
    print(ROW.format("", *COLUMNS))
    runs = {binary: [] for binary in asked.binaries}
    for _ in range(asked.n):
        for binary, of in runs.items():
            of.append(measured(binary, theirs or ["memcached", "-d", "20s"]))
            print(ROW.format(binary[-39:], *(f"{value:.4g}" for value in of[-1])), flush=True)
    print("\nmedians")
    for binary, of in runs.items():
        medians = (statistics.median(values) for values in zip(*of))
        print(ROW.format(binary[-39:], *(f"{value:.4g}" for value in medians)))


if __name__ == "__main__":
    main()
