"""A Go server whose collector has a heap of many pointers to mark."""

import re
import shutil

from bench import SOURCES, Server, Watched, free_port, traced
from checks import Check, as_the_client_saw_it, every_request, named_first
from processes import run

RATE = 1000
# gc 12 @3.456s 5%: 0.012+34+0.004 ms clock, ...
CYCLE = re.compile(r"^gc \d+ @([\d.]+)s \d+%: ([\d.]+)\+([\d.]+)\+([\d.]+) ms clock", re.MULTILINE)


def compiler():
    """Where Go is installed by hand it is often not on the PATH of root."""
    return shutil.which("go") or "/usr/local/go/bin/go"


def begin(bench):
    port = free_port()
    # nothing is written outside of the folder
    places = [f"GOCACHE={bench.folder}/cache", f"GOPATH={bench.folder}/path", "GO111MODULE=off", "GOTOOLCHAIN=local"]
    run(["env", *places, compiler(), "build", "-o", bench.folder / "heap", SOURCES / "heap.go"], bench.folder, 300)
    shutil.rmtree(bench.folder / "cache", ignore_errors=True)
    bench.serve("go", port, bench.folder / "heap", port, cpu=None, env={"GODEBUG": "gctrace=1"})
    return Watched(port, ("--protocol", "http"), bench.load(f"http://127.0.0.1:{port}/", RATE, 16))


def checks(seen):
    # its threads have no names of their own: they compete with each other for the CPUs, or a request helps to mark
    yield named_first(seen.result, ("own_threads", "slow_service"), lambda who: True)
    cycles = [float(each[3]) for each in CYCLE.finditer((seen.folder / "go.err").read_text())]
    each = sum(cycles) / max(1, len(cycles))
    yield Check("the collector ran, by its own log", len(cycles) >= 3, f"{len(cycles)} cycles, {each:.1f} ms each")
    yield every_request(seen.result, seen.client)
    yield as_the_client_saw_it(seen.result, seen.client)


SERVERS = (Server("go", "its collector marks a large heap", (), traced(begin, checks)),)
