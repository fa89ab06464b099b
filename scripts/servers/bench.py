"""One server under its load, while it is traced."""

import json
import os
import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path

import processes
from checks import spoiled
from processes import Failed, Program

SOURCES = Path(__file__).parent / "sources"
# The server under test has the first CPU, unless it says otherwise; what loads it, and what it asks, have the last one.
FIRST, LAST = 0, os.cpu_count() - 1
# What we start goes before what else runs on the machine: a compiler there is no part of the trouble.
PREFERRED = ("nice", "-n", "-10")
WARM_UP_S = 3
# The recording is so much longer than the load.
AROUND_S = 3
ENDS_WITHIN_S, ANALYSIS_WITHIN_S = 30, 240


@dataclass(frozen=True)
class Server:
    """A server with a trouble that is built in, and the programs that it needs. `attempt` measures it once on a Bench: it
    gives what the machine spoiled, or `None`, and the checks."""

    name: str
    trouble: str
    programs: tuple
    attempt: object


def traced(begin, checks):
    """The attempt that traces a server: `begin` starts it and says how to watch it, `checks` holds what the trace
    said against what is known from outside."""
    def attempt(bench):
        watched = begin(bench)
        seen = bench.measure(watched)
        # what runs writes its logs at its end
        processes.end_all()
        return spoiled(seen.result, watched.ours), list(checks(seen))
    return attempt


@dataclass(frozen=True)
class Watched:
    """How a server that runs is traced and loaded."""

    port: int
    # words for `taillab trace`, besides the port
    trace: tuple
    # `taillab load` without its length, or a program of ours that ends by itself and leaves client.json
    load: tuple
    # what runs beside the load; it ends by itself, too
    beside: tuple = ()
    # the names of what we have started ourselves: what they do is not the machine's doing
    ours: tuple = ("taillab", "python3")
    # a number from outside that is read before and after
    read: object = staticmethod(lambda: None)


@dataclass(frozen=True)
class Seen:
    """What one attempt gave: `result` of trace, and `client`, what the client measured itself. It was loaded from
    `begin_ns` to `end_ns` (CLOCK_MONOTONIC), and the recording is longer than that on both sides."""

    result: dict
    client: dict
    folder: Path
    begin_ns: int
    end_ns: int
    before: object
    after: object
    facts: dict


class Bench:
    """A folder, free ports, and what runs."""

    def __init__(self, taillab, folder, seconds):
        self.taillab, self.folder, self.seconds = taillab, folder, seconds
        self.facts = {}
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    def start(self, name, *words, cpu=FIRST, env=None):
        """Starts a program, on this CPU or, with `None`, on all."""
        where = () if cpu is None else ("taskset", "-c", str(cpu))
        return Program(name, [*PREFERRED, *where, *words], self.folder, env)

    def serve(self, name, port, *words, cpu=FIRST, env=None):
        """The same, and waits until it listens."""
        program = self.start(name, *words, cpu=cpu, env=env)
        program.wait_for(f"it listened on port {port}", lambda: processes.listens(port))
        return program

    def slow_backend(self, slow_ms=30, every=100):
        """An HTTP server on the last CPU that answers one request of so many after this time, and all others at
        once. Its own clock of each request is in backend.log."""
        port = free_port()
        source = SOURCES / "slow_backend.py"
        self.serve("backend", port, "python3", source, port, slow_ms, every, self.folder / "backend.log", cpu=LAST)
        return port

    def load(self, target, rate, connections, *more):
        """Words for `taillab load` on the last CPU. It sleeps between requests, so that what else is there has it, too."""
        return (self.taillab, "load", target, "-R", rate, "-c", connections, "--warmup", "0s", "--client-cpus", LAST,
                "--wait", "hybrid", "--oversubscribe", "--floor", "off", "--json", "-q", *more)

    def measure(self, watched):
        """Warms the server up, then traces it while it is loaded."""
        is_ours = watched.load[0] == self.taillab
        if is_ours:
            # a server that compiles, opens connections or fills caches is not what is looked at
            warm = self.start("warm-up", *watched.load, "-d", f"{WARM_UP_S}s", cpu=LAST)
            accept(warm, warm.wait(ENDS_WITHIN_S), (0, 4))
        out = self.folder / "trace"
        words = [self.taillab, "trace", "--port", watched.port, *watched.trace, "-o", out,
                 "-d", f"{self.seconds + AROUND_S}s"]
        # not preferred: its analysis is no part of the test
        trace = Program("screen", words, self.folder, {"COLUMNS": "110", "NO_COLOR": "1"})
        trace.wait_for("its recording", lambda: is_filled(out / "capture.tlc"))
        before, begin_ns = watched.read(), time.monotonic_ns()
        beside = [self.start("beside", *watched.beside, cpu=LAST)] if watched.beside else []
        length = ("-d", f"{self.seconds}s") if is_ours else ()
        client = self.start("client", *watched.load, *length, cpu=LAST)
        for program in (client, *beside):
            accept(program, program.wait(self.seconds + ENDS_WITHIN_S), (0, 4))
        end_ns, after = time.monotonic_ns(), watched.read()
        accept(trace, trace.wait(ANALYSIS_WITHIN_S), (0, 4))
        shutil.copyfile(trace.out, self.folder / "screen.txt")
        result = json.loads((out / "summary.json").read_text())
        return Seen(result, read_client(client, self.folder), self.folder, begin_ns, end_ns, before, after, self.facts)


def read_client(client, folder):
    """What the client measured by its own clock: how many requests, and how long they took after they were sent."""
    own = folder / "client.json"
    if own.exists():
        return json.loads(own.read_text())
    try:
        load = json.loads(client.out.read_text())["load"]
    except ValueError:
        raise Failed(f"the client left no result:\n{client.said()}") from None
    return {"requests": load["requests"], "mean": load["service_time"]["mean"]}


def is_filled(path):
    """Whether something has been written to this file: it is made before the probe is loaded."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def accept(program, code, codes):
    if code not in codes:
        raise Failed(f"{program.name} ended with {code}:\n{program.said()}")


def free_port():
    """A port of the loopback interface that nobody has."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
