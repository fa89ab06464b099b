#!/usr/bin/env python3
"""churn-memory.py PID SECONDS NAME NAMESPACE: samples the memory of `taillab trace --live` and of its child, and fails if it
grows, or if the tracer lost or forgot something. Its figures are at port 9188 of the network namespace."""
import re
import statistics
import subprocess
import sys
import threading
import time

# what an allocator may keep, and the noise of one sample; until so many connections have come, the tables of connections
# and threads still fill up to their bounds (the largest has 2^18 places, which are taken at random), and one that doubles
# is a step
FULL_AFTER, MAY_GROW_MB, MAY_FILL_MB = 600_000, 16, 64
# to connect, to load the probe, and for the first windows
SETTLE_S = 3

tracer, seconds, name, namespace = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]


def of_process(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) / 1024
    except (OSError, TypeError):
        return None


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as listed:
            return [int(child) for child in listed.read().split()]
    except OSError:
        return []


def family(pid):
    """The process and all below it: `ip netns exec` becomes the tracer itself."""
    found = [pid]
    for child in children(pid):
        found += family(child)
    return found


def figures():
    """The tracer's own figures; empty where it does not answer."""
    ask = (
        "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9188/metrics', timeout=5).read().decode())"
    )
    command = ["ip", "netns", "exec", namespace, "python3", "-c", ask]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    lines = (line.rsplit(" ", 1) for line in said.splitlines() if not line.startswith("#") and " " in line)
    return {name: float(value) for name, value in lines if re.fullmatch(r"[-+.0-9e]+", value)}


def total(found, part):
    return sum(value for key, value in found.items() if key.startswith(f"taillab_{part}"))


def ask(last):
    """Asks for the figures again and again, and notes when; on a busy machine, an answer takes seconds, or does not come."""
    while True:
        asked = time.monotonic() - began
        if found := figures():
            last.update(found, asked=asked)
        time.sleep(every)


every = min(10, seconds / 20)
began, samples, last = time.monotonic(), [], {}
threading.Thread(target=ask, args=(last,), daemon=True).start()
while time.monotonic() - began < seconds - every:
    time.sleep(every)
    sizes = [size for pid in family(tracer) if (size := of_process(pid)) is not None]
    if not sizes:
        sys.exit(f"error: the tracer of {name} ended after {time.monotonic() - began:.0f} s")
    if time.monotonic() - began > SETTLE_S:
        samples.append(sum(sizes))
quarter = len(samples) // 4
if quarter == 0:
    sys.exit(f"error: only {len(samples)} samples of {name} in {seconds} s: the machine is too busy")
second = statistics.median(samples[quarter : 2 * quarter])
fourth = statistics.median(samples[3 * quarter :])
requests, lost, forgotten = (total(last, part) for part in ("matched", "lost_events", "forgotten"))
asked = last.get("asked", 0)
rate = requests / max(asked, 1)
# when the middle of the second quarter comes
may_grow = MAY_GROW_MB if rate * seconds * 3 / 8 >= FULL_AFTER else MAY_FILL_MB
print(
    f"{name}: {rate:.0f} connections per second, {second:.0f} MB in the second quarter, "
    f"{fourth:.0f} MB in the last one, {lost:.0f} events lost, {forgotten:.0f} connections forgotten"
)
wrong = [
    text
    for ok, text in [
        (asked > seconds / 2, f"it told its figures {asked:.0f} s after its start for the last time"),
        (rate > 100, f"only {requests:.0f} requests in {asked:.0f} s"),
        (fourth <= second + may_grow, f"its memory grew by {fourth - second:.0f} MB"),
        (lost == 0, f"{lost:.0f} events were lost"),
        (forgotten == 0, f"{forgotten:.0f} connections or threads were forgotten while in use"),
    ]
    if not ok
]
sys.exit(f"error: {name}: " + "; ".join(wrong) if wrong else 0)
