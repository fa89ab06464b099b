"""The JDK's own HTTP server with a collector that stops it."""

import re

from bench import SOURCES, Server, Watched, free_port, traced
from checks import Check, as_the_client_saw_it, chief, every_request, named_first, near, whole, within
from processes import run

RATE = 300
# [uptime in ns of CLOCK_MONOTONIC] GC(7) Pause Young (Allocation Failure) 120M->80M(247M) 41.234ms
PAUSE = re.compile(r"\[(\d+)ns\].*\bGC\(\d+\) Pause .* ([\d.]+)ms$")
# the VM stops all threads for other work too, such as giving up compiled code; this tells of all stops
SAFEPOINT = re.compile(r'\[(\d+)ns\].* Safepoint "(\w+)"')
ONE_STOP_NS = 1_000_000
# the pause of the log is without the way to the safepoint and back
TOLERANCE = 0.25


def begin(collector):
    def begin(bench):
        port = free_port()
        run(["javac", "-d", bench.folder, SOURCES / "Garbage.java"], bench.folder)
        heap = (f"-XX:+Use{collector}GC", "-Xmx384m", "-Xms384m")
        # timenanos: System.nanoTime(), which is CLOCK_MONOTONIC
        log = f"-Xlog:gc,safepoint:file={bench.folder}/gc.log:timenanos:filecount=0"
        bench.serve("java", port, "java", *heap, log, "-Dsun.net.httpserver.nodelay=true", "-cp", bench.folder,
                    "Garbage", port, cpu=None)
        return Watched(port, ("--protocol", "http"), bench.load(f"http://127.0.0.1:{port}/", RATE, 8))
    return begin


def checks(seen):
    yield named_first(seen.result, ("pause",), lambda who: "garbage collection" in (who or {}).get("task", ""))
    who = chief(seen.result, "pause") or {}
    threads = who.get("threads", [])
    are_named = any(name.startswith(("VM Thread", "GC Thread")) for name in threads)
    yield Check("the threads of the runtime are named", are_named, str(threads))
    log = [lasted for end, lasted in pauses(seen.folder / "gc.log") if seen.begin_ns <= end <= seen.end_ns]
    pause = whole(seen.result, "pause") or {"events": 0, "mean_event_ns": 0.0}
    # a short pause may have delayed nobody; a stop for other work is a pause as well; and one in which the machine takes
    # the collector's CPU may look like two
    stops = len(log) + sum(seen.begin_ns <= end <= seen.end_ns for end in other_stops(seen.folder / "gc.log"))
    yield within("there are as many pauses as in the log", pause["events"], 0.8 * len(log) - 1, 1.1 * stops + 1)
    told = pause["events"] * pause["mean_event_ns"]
    yield near("they took as long in all as in the log", told, sum(log), TOLERANCE)
    yield every_request(seen.result, seen.client)
    yield as_the_client_saw_it(seen.result, seen.client)


def pauses(path):
    """(end, length) of each stop in the log, in nanoseconds. A second collection right after the first is the same stop."""
    stops = []
    for each in filter(None, map(PAUSE.search, path.read_text().splitlines())):
        end, lasted = int(each[1]), round(float(each[2]) * 1e6)
        if stops and end - lasted - stops[-1][0] < ONE_STOP_NS:
            lasted += stops.pop()[1]
        stops.append((end, lasted))
    return stops


def other_stops(path):
    """The end of each stop in the log that was for no collection, in nanoseconds."""
    stops = filter(None, map(SAFEPOINT.search, path.read_text().splitlines()))
    return [int(each[1]) for each in stops if not re.search("Collect|GC|Pause", each[2])]


SERVERS = tuple(
    Server(f"java {collector.lower()}", "pauses of the collector", ("java", "javac"), traced(begin(collector), checks))
    for collector in ("Serial", "G1")
)
