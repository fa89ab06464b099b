"""Ranks without MPI: processes of this machine, joined with the first one by Unix sockets.

A rank has a clock of its own, and may have a fault: it dies, or stops, when it gets its plan, or its clock jumps then.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from multiprocessing.connection import Client, Connection, Listener

from taillab import _program
from taillab.cluster import clocks, worker
from taillab.cluster.faults import LostRankError, SilentRankError

JUMP_NS = 5_000_000_000
PATIENCE_S = 30


class SocketLink:
    """A rank's connections, by the rank at the other end."""

    def __init__(self, rank: int, size: int, connections: dict[int, Connection]):
        self.rank, self.size, self._connections, self._hosts = rank, size, connections, {}

    def know(self, rank, host):
        self._hosts[rank] = host

    def host(self, rank):
        return self._hosts.get(rank, "a host that has not said its name")

    def send(self, to, message, doing):
        try:
            self._connections[to].send(message)
        except OSError as error:
            raise LostRankError(to, self.host(to), doing) from error

    def receive(self, source, within_s, doing, spin=False):
        connection, until = self._connections[source], time.monotonic() + within_s
        try:
            # pickled bytes may come in pieces, but never half of one for long
            while not connection.poll(0 if spin else max(0.0, until - time.monotonic())):
                if time.monotonic() > until:
                    raise SilentRankError(source, self.host(source), doing, within_s)
            return connection.recv()
        except (EOFError, OSError) as error:
            raise LostRankError(source, self.host(source), doing) from error


@contextlib.contextmanager
def ranks(folder, faults):
    """The link of the first rank, and the processes of the others, one for each of `faults`."""
    context = multiprocessing.get_context("forkserver")
    # forked from a process that has all of it: starting Python takes longer than a test
    context.set_forkserver_preload(["taillab.cluster.worker", "stand_in"])
    address = str(folder / "ranks.sock")
    shared = {"size": len(faults) + 1, "address": address, "program": _program.find()}
    with Listener(address) as listener:
        given = [{"rank": rank, "said": str(folder / f"said-{rank}"), **shared, **fault} for rank, fault in enumerate(faults, 1)]
        processes = [context.Process(target=main, args=(each,)) for each in given]
        for process in processes:
            process.start()
        accepted = [listener.accept() for _ in faults]
    connections = {connection.recv(): connection for connection in accepted}
    try:
        yield SocketLink(0, len(faults) + 1, connections), processes
    finally:
        for connection in connections.values():
            connection.close()
        for process in processes:
            process.join(PATIENCE_S)
            process.kill()
            process.join()


class FaultyWorker(worker.Worker):
    """A rank with a fault."""

    def __init__(self, link, given):
        super().__init__(link)
        self._given = given

    def _hello(self, argument):
        # several ranks of this machine stand for several hosts
        def named():
            return f"host-{self._given['rank']}"

        worker.socket.gethostname = named
        super()._hello(argument)

    def _plan(self, given):
        match self._given.get("fault"):
            case "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stops":
                os.kill(os.getpid(), signal.SIGSTOP)
        super()._plan(given)
        if self._given.get("fault") == "jumps":
            self._given["offset_ns"] += JUMP_NS


def main(given):
    """One rank."""
    os.environ["TAILLAB_BINARY"] = given["program"]
    sys.stdout = open(given["said"], "w")
    given.setdefault("offset_ns", 0)
    began, drift = clocks.now_ns(), given.get("drift", 0.0)

    def now_ns():
        now = clocks.now_ns()
        return now + given["offset_ns"] + round(drift * (now - began))

    worker.now_ns = now_ns
    with Client(given["address"]) as connection:
        connection.send(given["rank"])
        sys.exit(FaultyWorker(SocketLink(given["rank"], given["size"], {0: connection}), given).serve())
