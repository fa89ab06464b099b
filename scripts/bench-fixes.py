#!/usr/bin/env python3
"""Two real fixes of a disturbed memcached, predicted and then measured.

    scripts/bench-fixes.py measure FOLDER [BLOCKS]    # as root; adds blocks to what is there
    scripts/bench-fixes.py show FOLDER

memcached serves on CPU 0, beside a noisy program that uses 2 ms there every 20 to 60 ms. A block is
four runs of `taillab run memcached` under the same arrivals, in an order that changes from block to
block: without a fix; with the command that the forecast `rt-priority` names (chrt); with that of
`dedicated-cpus` (taskset for the noisy program); and once more without a fix, as the control.
"""
import json
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

TAILLAB = os.environ.get("TAILLAB", "target/release/taillab")
RATE = "15000"
LENGTH = "1500ms"
CALIBRATION_BLOCK = "60ms"
# the service time: the same in all runs, so that none depends on its calibration
SERVICE_TIME = "15us"
FIXES = {"rt-priority": "chrt", "dedicated-cpus": "taskset"}
QUANTILES = [0.5, 0.99, 0.999]
NEAR = 0.20

NOISE = """
import random, time
while True:
    time.sleep(random.uniform(0.02, 0.06))
    end = time.thread_time_ns() + 2_000_000
    while time.thread_time_ns() < end:
        pass
"""


def noise():
    """Uses CPU 0 in bursts, like an ordinary program of the same priority."""
    return subprocess.Popen(["taskset", "-c", "0", sys.executable, "-c", NOISE])


def memcached_of(parent):
    """The pid of the memcached that the run has started, as soon as it exists."""
    for _ in range(200):
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            except OSError:
                continue
            if fields["Name"] == "memcached" and descends(int(fields["PPid"]), parent):
                return int(fields["Pid"])
        time.sleep(0.01)
    sys.exit("error: taillab run started no memcached: see above")


def descends(pid, ancestor):
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            return False
    return False


def one(folder, seed, fix):
    """One run; `fix` is applied as soon as the server exists."""
    noisy = noise()
    try:
        command = [TAILLAB, "run", "memcached", "-q", "-R", RATE, "-d", LENGTH, "--warmup", "500ms",
                   "--pairs", "6", "--block", CALIBRATION_BLOCK, "--service-time", SERVICE_TIME,
                   "--seed", str(seed), "-C", "0", "--client-cpus", "1", "-o", str(folder)]
        # `with` waits for the run, also where its fix could not be applied
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as run:
            server = memcached_of(run.pid)
            if fix == "rt-priority":
                subprocess.run(["chrt", "-a", "-f", "-p", "50", str(server)], check=True)
            if fix == "dedicated-cpus":
                subprocess.run(["taskset", "-a", "-c", "-p", "1", str(noisy.pid)], check=True, stdout=subprocess.DEVNULL)
        # 4: nothing was answered; it is kept, with its reasons
        if run.returncode not in (0, 4):
            sys.exit(f"error: taillab run ended with exit code {run.returncode} in {folder}")
    finally:
        noisy.kill()
        noisy.wait()


def measure(folder, blocks):
    done = len(list(folder.glob("block-*")))
    for block in range(done, done + blocks):
        # what was interrupted is no block
        place = folder / "unfinished"
        shutil.rmtree(place, ignore_errors=True)
        runs = ["as-it-is", "rt-priority", "dedicated-cpus", "again"]
        random.Random(block).shuffle(runs)
        for name in runs:
            one(place / name, block + 1, name)
        place.rename(folder / f"block-{block:02}")


def quantiles(summary):
    return {p["q"]: p["value"] for p in summary["measured"]["sojourn"]["quantiles"]}


def middle(values):
    """The median with its interval by the sign test: at least 95 % from six values on; the range with fewer than nine."""
    values = sorted(values)
    n, k = len(values), 0
    while 2 * sum(math.comb(n, i) for i in range(k + 2)) <= 0.05 * 2**n:
        k += 1
    return statistics.median(values), values[k], values[-1 - k]


def text(values):
    mid, lo, hi = (value / 1000 for value in middle(values))
    return f"{mid:,.0f} µs ({lo:,.0f} to {hi:,.0f})"


def show(folder):
    blocks = []
    for place in sorted(folder.glob("block-*")):
        names = ["as-it-is", *FIXES, "again"]
        blocks.append({name: json.loads((place / name / "summary.json").read_text()) for name in names})
    print(f"{len(blocks)} blocks; sojourn, the median over the blocks (95 % interval)")
    for fix, tool in FIXES.items():
        for q in QUANTILES:
            predicted, own = [], 0
            for block in blocks:
                found = [p for p in block["as-it-is"]["predictions"] if p["change"] == fix]
                point = next((p for f in found for p in f["points"] if p["q"] == q), None)
                if point:
                    predicted.append(point["predicted_ns"])
                    now = quantiles(block[fix])[q]
                    own += point["lo_ns"] is not None and now is not None and point["lo_ns"] <= now <= point["hi_ns"]
            at = {name: [quantiles(b[name])[q] for b in blocks] for name in ("as-it-is", fix, "again")}
            if not predicted or any(value is None for values in at.values() for value in values):
                print(f"{fix:15} p{100 * q:g}: too few requests, or no forecast")
                continue
            (p, p_lo, p_hi), (m, m_lo, m_hi) = middle(predicted), middle(at[fix])
            error = p / m - 1
            came = "came true" if abs(error) <= NEAR else \
                "undecided" if p_lo <= m_hi and m_lo <= p_hi else "MISSED"
            control = statistics.median(abs(a / b - 1) for a, b in zip(at["as-it-is"], at["again"]))
            print(f"{fix:15} p{100 * q:g}: as it is {text(at['as-it-is'])}; predicted {text(predicted)} in "
                  f"{len(predicted)} blocks, with {tool} {text(at[fix])}: {error:+.0%}, {came}; "
                  f"{own} within the forecast's own interval; the control differs by {control:.0%}")


if __name__ == "__main__":
    # like Ctrl-C: what was started ends, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    match sys.argv[1:]:
        case ["measure", folder]:
            measure(Path(folder), 6)
        case ["measure", folder, blocks] if blocks.isdecimal():
            measure(Path(folder), int(blocks))
        case ["show", folder]:
            show(Path(folder))
        case _:
            print(__doc__, file=sys.stderr)
            sys.exit(2)
