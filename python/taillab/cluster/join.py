"""Joins what the clients sent to what the server's host saw of it: by the client's port, the request's id on it, and time.

A key comes again: over UDP the ids wrap, over TCP the sequence numbers, and two clients may have the same port. So a
request of the server belongs to the one answered request with its key that encloses it in time, within the error of the
clocks. If several do, it belongs to none, and is counted.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import stdev
from typing import TYPE_CHECKING, Any

from taillab.cluster.clocks import HostClock
from taillab.cluster.merge import on_our_clock

if TYPE_CHECKING:
    import pyarrow

FILE = "joined.parquet"
_ROWS_AT_ONCE = 1 << 16
# of both files together that are in memory at a time
_MOST_ROWS = 1_000_000
_OF_CLIENTS = ("client", "thread", "connection", "client_port", "request_id", "intended", "sent", "received", "response_time_ns", "warm_up")
_OF_SERVER = ("t1", "t2", "t3", "t4", "t5", "t6", "sojourn_ns", "ideal_ns", "excess_ns", "worker", "main_cause")
_KEY_OF_SERVER = ("client_port", "client_hash", "request_id")
# instead of its hash, where the recording has it
_ADDRESS = "client_address"
# so many requests do not all lie within the times of their neighbours by chance
_ENOUGH = 20
# of the interval of a median: stretches of time, and Student's t for 19 degrees of freedom (95 %)
_STRETCHES, _STUDENT_T = 20, 2.093


@dataclass
class Asked:
    """Requests as clients know them, on one clock."""

    client: Sequence[int]
    port: Sequence[int]
    id: Sequence[int | None]
    """`None` where the client's kernel does not tell it."""
    sent: Sequence[int]
    received: Sequence[int | None]


@dataclass
class Seen:
    """Requests as the server's host knows them, on the same clock, in order of T1."""

    port: Sequence[int]
    hash: Sequence[int | str]
    """Of the client's address, or the address itself."""
    id: Sequence[int]
    t1: Sequence[int]
    t6: Sequence[int]


@dataclass
class Pairs:
    """Places of requests in `Asked` and in `Seen` that are the same request."""

    asked: list[int] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)
    ambiguous: int = 0
    """Requests of the server that several of the clients could be."""

    def add(self, asked: int, seen: int) -> None:
        """One request."""
        self.asked.append(asked)
        self.seen.append(seen)


@dataclass
class _Port:
    """What clients sent from one port and had answered."""

    clients: set[int] = field(default_factory=set)
    uses: dict[int | None, list[int]] = field(default_factory=dict)
    """Id → the requests with it, in order of their sends."""
    longest_ns: int = 0


def pairs(asked: Asked, seen: Seen, error_ns: int) -> Pairs:
    """Which requests are the same; clocks are off by `error_ns` at most."""
    ports = _ports(asked)
    served: dict[int, list[int]] = {}
    for place, number in enumerate(seen.port):
        if number in ports:
            served.setdefault(number, []).append(place)
    joiner = _Joiner(asked, seen, error_ns)
    # a port of one client says what its address looks like to the server; that separates clients on other ports
    for number in sorted(served, key=lambda number: (len(ports[number].clients), number)):
        joiner.join(ports[number], served[number])
    return joiner.found


def _ports(asked: Asked) -> dict[int, _Port]:
    ports: dict[int, _Port] = {}
    for place in sorted(range(len(asked.sent)), key=asked.sent.__getitem__):
        received = asked.received[place]
        if received is None:
            continue
        port = ports.setdefault(asked.port[place], _Port())
        port.clients.add(asked.client[place])
        port.uses.setdefault(asked.id[place], []).append(place)
        port.longest_ns = max(port.longest_ns, received - asked.sent[place])
    return ports


class _Joiner:
    """Joins port by port."""

    def __init__(self, asked: Asked, seen: Seen, error_ns: int) -> None:
        self.found = Pairs()
        self._asked = asked
        self._seen = seen
        self._error_ns = error_ns
        self._hashes: dict[int, set[int | str]] = {}
        """Client → what the server sees of its addresses."""

    def join(self, port: _Port, served: list[int]) -> None:
        """Joins the requests of a port with those that the server saw from it."""
        if self._in_order(port, served):
            return
        taken: set[int] = set()
        for place in served:
            fits = [each for each in self._fitting(port, place) if each not in taken]
            self.found.ambiguous += len(fits) > 1
            if len(fits) == 1:
                taken.add(fits[0])
                self.found.add(fits[0], place)
                if len(port.clients) == 1:
                    self._hashes.setdefault(self._asked.client[fits[0]], set()).add(self._seen.hash[place])

    def _in_order(self, port: _Port, served: list[int]) -> bool:
        """Joins requests whose ids the client does not know by their number on the connection, if each of the server's lies within
        the time of its own. The number is counted from the last one: before the load, a client may have stored its keys.
        """
        sent = port.uses.get(None, [])
        earlier = len(served) - len(sent)
        if len(port.uses) != 1 or earlier < 0 or (earlier and len(sent) < _ENOUGH):
            return False
        both = list(zip(sent, served[earlier:], strict=True))
        if not all(self._encloses(each, place) for each, place in both):
            return False
        for each, place in both:
            self.found.add(each, place)
        return True

    def _fitting(self, port: _Port, place: int) -> Iterable[int]:
        """The requests that one of the server can be."""
        latest, seen_hash = self._seen.t1[place] + self._error_ns, self._seen.hash[place]
        earliest = self._seen.t6[place] - port.longest_ns - self._error_ns
        for use in (self._seen.id[place], None):
            uses = port.uses.get(use, [])
            for n in range(bisect_right(uses, latest, key=self._asked.sent.__getitem__) - 1, -1, -1):
                if self._asked.sent[uses[n]] < earliest:
                    break
                hashes = self._hashes.get(self._asked.client[uses[n]])
                if self._encloses(uses[n], place) and (hashes is None or seen_hash in hashes):
                    yield uses[n]

    def _encloses(self, asked: int, seen: int) -> bool:
        """Whether a request was sent before T1 and answered after T6, as far as the clocks tell."""
        received = self._asked.received[asked]
        sent_before = self._asked.sent[asked] <= self._seen.t1[seen] + self._error_ns
        return received is not None and sent_before and self._seen.t6[seen] <= received + self._error_ns


def join(requests: Path, server: Path, clock: HostClock, error_ns: int, out: Path) -> dict[str, Any] | None:
    """Writes `joined.parquet`: the clients' requests with the server's stamps, all on the clock of `requests`, where the
    clients' times are. Returns how many were joined; `None` where the files do not say the clients' ports.

    Both files are read as often as memory wants it, each time for a part of the ports.
    """
    import pyarrow
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(requests) as ours, parquet.ParquetFile(server) as theirs:
        if "client_port" not in ours.schema_arrow.names or not {*_KEY_OF_SERVER} <= {*theirs.schema_arrow.names}:
            return None
        rows = ours.metadata.num_rows + theirs.metadata.num_rows
    parts = 1 << max(0, math.ceil(math.log2(max(1, rows) / _MOST_ROWS)))
    joined, answered, ambiguous, writer = 0, 0, 0, None
    try:
        for part in range(parts):
            asked = _part(requests, _OF_CLIENTS, part, parts)
            seen = on_our_clock(_part(server, (*_OF_SERVER, *_KEY_OF_SERVER, _ADDRESS), part, parts), clock).sort_by("t1")
            found = pairs(_asked(asked), _seen(seen), error_ns)
            answered += len(asked) - asked["received"].null_count
            ambiguous += found.ambiguous
            joined += len(found.asked)
            table = asked.take(pyarrow.array(found.asked, pyarrow.int64()))
            stamps = seen.take(pyarrow.array(found.seen, pyarrow.int64()))
            for name in stamps.column_names:
                if name not in (*_KEY_OF_SERVER, _ADDRESS):
                    table = table.append_column(stamps.schema.field(name), stamps[name])
            table = table.append_column(*_outside(table)).sort_by("sent")
            writer = writer or parquet.ParquetWriter(out, table.schema, compression="snappy")
            writer.write_table(table.cast(writer.schema))
    finally:
        if writer is not None:
            writer.close()
    return {"answered": answered, "joined": joined, "ambiguous": ambiguous, "outside_p50": _median(out)}


def _part(path: Path, names: Sequence[str], part: int, parts: int) -> pyarrow.Table:
    """The requests of a file with one part of the ports, and those of these columns that it has."""
    import pyarrow
    import pyarrow.compute as pc
    import pyarrow.parquet as parquet

    batches = []
    with parquet.ParquetFile(path) as file:
        columns = [name for name in names if name in file.schema_arrow.names]
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=columns):
            batches.append(batch.filter(pc.equal(pc.bit_wise_and(batch["client_port"], parts - 1), part)))
        schema = pyarrow.schema([file.schema_arrow.field(name) for name in columns])
    return pyarrow.Table.from_batches(batches, schema).select(columns)


def _asked(table: pyarrow.Table) -> Asked:
    return Asked(*(table[name].to_pylist() for name in ("client", "client_port", "request_id", "sent", "received")))


def _seen(table: pyarrow.Table) -> Seen:
    port, hashes, number, t1, t6 = (table[name].to_pylist() for name in (*_KEY_OF_SERVER, "t1", "t6"))
    if _ADDRESS in table.column_names:
        hashes = [address or known for address, known in zip(table[_ADDRESS].to_pylist(), hashes, strict=True)]
    return Seen(port, hashes, number, t1, t6)


def _outside(table: pyarrow.Table) -> tuple[Any, Any]:
    """What a request took outside of the server: in the network and in its client's kernel. No clock's offset is in it."""
    import pyarrow
    import pyarrow.compute as pc

    took = pc.subtract(pc.subtract(table["received"], table["sent"]), pc.subtract(table["t6"], table["t1"]))
    about = {"description": "(received - sent) - (t6 - t1): what it took outside of the server", "unit": "ns"}
    return pyarrow.field("outside_ns", pyarrow.int64(), metadata=about), took


def _median(path: Path) -> dict[str, Any] | None:
    """The median of `outside_ns` over the measurement. Its interval is from the medians of stretches of time, which follow what
    changes slowly.
    """
    import pyarrow.compute as pc
    import pyarrow.parquet as parquet

    table = parquet.read_table(path, columns=["sent", "outside_ns", "warm_up"])
    table = table.filter(pc.invert(table["warm_up"])).sort_by("sent")
    length = len(table) // _STRETCHES
    if not length:
        return None
    times = table["outside_ns"]
    value = pc.quantile(times, 0.5)[0].as_py()
    medians = [pc.quantile(times.slice(n * length, length), 0.5)[0].as_py() for n in range(_STRETCHES)]
    half = _STUDENT_T * stdev(medians) / math.sqrt(_STRETCHES)
    return {"value": value, "lo": value - half, "hi": value + half}
