"""Redis with twelve scripts that take 33 ms, beside small requests."""

import json

from bench import ENDS_WITHIN_S, LAST, SOURCES, Server, Watched, free_port, traced
from checks import Check, named_first, near, within
from processes import run

RATE, SCRIPTS, SCRIPT_MS = 1000, 12, 33


def begin(bench):
    port = free_port()
    bench.serve("redis", port, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                "--dir", bench.folder, "--slowlog-log-slower-than", 10_000, "--slowlog-max-len", 1000)
    # how many turns take that long, before anything is measured
    scripts = ("python3", SOURCES / "scripts.py", port)
    calibration = bench.start("calibration", *scripts, "calibrate", SCRIPT_MS, cpu=LAST)
    calibration.wait(ENDS_WITHIN_S)
    turns = calibration.out.read_text().strip()
    load = bench.load(f"redis://127.0.0.1:{port}", RATE, 8, "--no-prefill")
    beside = (*scripts, "run", turns, SCRIPTS, bench.seconds)
    return Watched(port, ("--protocol", "resp"), load, beside, read=lambda: slow_log(port, bench.folder))


def slow_log(port, folder):
    """The length of each slow command so far in nanoseconds, by Redis' own clock, by its number."""
    said = run(["redis-cli", "-p", port, "--json", "SLOWLOG", "GET", "1000"], folder)
    return {number: us * 1000 for number, _, us, *_ in json.loads(said)}


def checks(seen):
    ran = [ns for number, ns in seen.after.items() if number not in seen.before]
    yield named_first(seen.result, ("slow_service",), lambda who: True)
    slow = seen.result["explanation"].get("slow_requests") or {"requests": 0, "operations": [], "mean_own_ns": None, "delayed": 0}
    yield within("the scripts are counted", slow["requests"], len(ran), len(ran))
    asked = [(one["name"], one["requests"]) for one in slow["operations"]]
    yield Check("the scripts are named", asked == [("EVALSHA", len(ran))], f"{asked}")
    mean = sum(ran) / max(1, len(ran))
    yield near("a script takes as long as Redis' own log says", slow["mean_own_ns"], mean, 0.1)
    yield Check("whom they delayed is told", slow["delayed"] > 0, f"{slow['delayed']} others")
    matching = seen.result["matching"]
    yield Check("every response is matched", matching["matched"] == matching["responses"],
                f"{matching['matched']:,} of {matching['responses']:,}")


TROUBLE = f"{SCRIPTS} scripts of {SCRIPT_MS} ms"
SERVERS = (Server("redis", TROUBLE, ("redis-server", "redis-cli"), traced(begin, checks)),)
