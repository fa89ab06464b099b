#!/usr/bin/env python3
"""How much memory, network and time the first rank of a cluster needs for many clients: bench-gathering.py [CLIENTS].

The first rank is the real one. The others are simulated: they answer at once, each with a result that it has made up,
so the time is that of the first rank alone. What a network would add is computed from the messages and bytes.
"""

import json
import random
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python" / "tests")]

import pyarrow.parquet
from test_cluster import S, distribution, hlog, requests

from taillab.cluster import agent, clocks, experiment, master, worker
from taillab.cluster.plan import Load

VERSION = "0.1.0"
REQUESTS = 20_000
# of a data centre: a round trip, and the first rank's link
ROUND_TRIP_S, BYTES_PER_S = 50e-6, 1.25e9


class Simulated:
    """A link whose other ranks are simulated. Every client has the same records, read anew for each."""

    def __init__(self, clients, prepared):
        self.rank, self.size, self._prepared = 0, clients + 1, prepared
        self._answers, self._plans = {}, {}
        self.messages = self.bytes = 0

    def host(self, rank):
        return f"host-{rank}"

    def send(self, to, message, doing):
        self.messages += 1
        word, argument = message[:2] if message else ("time", None)
        match word:
            case "hello":
                self._answers[to] = worker.Hello(self.host(to), VERSION, 8)
            case "clock" | "time":
                self._answers[to] = clocks.now_ns()
            case "plan":
                self._plans[to] = argument[0]
                files = {path.name: path.stat().st_size for path in sorted(self._prepared.iterdir())}
                self._answers[to] = worker.Done(agent.Ended(0, "", b"", True), files, "/tmp")
            case "piece":
                self._answers[to] = self._piece(to, *argument)

    def _piece(self, to, name, offset):
        piece = (self._prepared / name).read_bytes()[offset : offset + worker.PIECE_BYTES]
        self.bytes += len(piece)
        return piece

    def receive(self, source, within_s, doing, spin=False):
        return self._answers.pop(source)


def prepared(folder):
    rng = random.Random(1)
    values = [round(rng.lognormvariate(11, 0.8)) + 1 for _ in range(REQUESTS)]
    (folder / "latency.hlog").write_text(f"Tag=response_time,0.000,1.000,1.0,{hlog(values)}\n")
    pyarrow.parquet.write_table(requests(100 * S, REQUESTS), folder / "requests.parquet")
    load = {"requests": REQUESTS, "target_rate_per_s": 2e3, "response_time": distribution(values, 0.02), "lateness": distribution(values)}
    generator = {"floor": None, "start": {"monotonic_ns": clocks.now_ns(), "first_send_late_ns": 500}}
    verdict = {"valid": True, "reasons": []}
    result = {"partial": False, "load": load, "generator": generator, "verdict": verdict, "text": "x" * 20_000}
    (folder / "result.json").write_text(json.dumps(result))
    return sum(path.stat().st_size for path in folder.iterdir())


def main():
    clients = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    agent.version = lambda _: VERSION
    experiment._program.find = lambda: "taillab"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "client").mkdir()
        each = prepared(folder / "client")
        link = Simulated(clients, folder / "client")
        wanted = Load("echo+tcp://db:7", 2e3 * clients, S // 100, 0, 1)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        settings = experiment.Settings(folder / "out", master.Waits(30, 0.0), lambda _: None, lambda _: None)
        began = time.monotonic()
        code = experiment.load(link, wanted, settings)
        took = time.monotonic() - began
        found = json.loads((folder / "out" / "cluster.json").read_text())
        assert code == 0 and found["requests"] == found["response_time"]["count"] == REQUESTS * clients, code
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        disk = sum(path.stat().st_size for path in (folder / "out").rglob("*") if path.is_file())
        shutil.rmtree(folder / "out")
    network = link.messages * ROUND_TRIP_S + link.bytes / BYTES_PER_S
    print(f"{clients} clients with {REQUESTS} requests each: {each / 1e6:.2f} MB a client")
    print(f"gathered   {link.bytes / 1e6:.0f} MB in {link.messages} messages; on disk {disk / 1e6:.0f} MB")
    print(f"memory     {peak / 1e3:.0f} MB at its peak, {before / 1e3:.0f} MB before")
    print(f"time       {took:.1f} s of the first rank, and {network:.1f} s of a network (50 µs, 10 Gbit/s)")


if __name__ == "__main__":
    main()
