"""Requests of clients joined with the stamps of the server's host. Nothing here is started."""

import json
import random
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from taillab.cluster import join
from taillab.cluster.clocks import HostClock, Offset
from taillab.cluster.join import Asked, Seen, pairs

S = 10**9
ERROR_NS = 20_000
SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"


def test_the_columns_that_are_read_are_those_of_the_files():
    server, clients = (
        {column["name"] for column in file["columns"]} for file in json.loads((SCHEMAS / "columns.json").read_text())[:2]
    )
    # `client` is what the merging of files adds
    assert {*join._OF_CLIENTS} - {"client"} <= clients
    assert {*join._OF_SERVER, *join._KEY_OF_SERVER, join._ADDRESS} <= server


def load(rng, clients=3, ports=4, requests=400, knows_ids=True, depth=1, same_ports=False):
    """Requests of clients and what the server saw, on one clock: rows (client, port, id, sent, t1, t6, received, hash)."""
    rows = []
    for client in range(clients):
        for port in range(ports):
            number = 40_000 + port + (0 if same_ports else client * ports)
            free = [5 * S + rng.randrange(100_000)] * depth
            for n in range(requests):
                sent = free[n % depth] + rng.randrange(50_000)
                t1 = sent + rng.randrange(2_000, 30_000)
                t6 = t1 + rng.randrange(10_000, 200_000)
                received = t6 + rng.randrange(2_000, 30_000)
                free[n % depth] = received
                # the ids wrap
                rows.append((client, number, (65_500 + 7 * n) % 65_536 if knows_ids else None, sent, t1, t6, received, 11 * client, n))
    return rows


def tables(rows, rng, off=0):
    """What the clients and the server say, each in its own order, and the truth: places that belong together."""
    asked, seen = sorted(rows, key=lambda row: row[3]), sorted(rows, key=lambda row: row[4])
    wire = [row[2] if row[2] is not None else rng.randrange(65_536) for row in seen]
    place = {row: n for n, row in enumerate(asked)}
    of_clients = Asked(*([row[n] for row in asked] for n in (0, 1, 2, 3, 6)))
    of_server = Seen([r[1] for r in seen], [r[7] for r in seen], wire, [r[4] + off for r in seen], [r[5] + off for r in seen])
    return of_clients, of_server, [place[row] for row in seen]


@pytest.mark.parametrize("off", [0, ERROR_NS, -ERROR_NS])
@pytest.mark.parametrize(("knows_ids", "depth", "same_ports"), [(True, 1, False), (True, 8, False), (True, 1, True), (False, 1, False)])
def test_each_request_finds_its_own_stamps(off, knows_ids, depth, same_ports):
    rng = random.Random(1)
    rows = load(rng, knows_ids=knows_ids, depth=depth, same_ports=same_ports)
    if same_ports:
        # each client has a port of its own, too: it says what its address looks like
        rows += [(c, 50_000 + c, i, *rest) for c, port, i, *rest in rows if port == 40_000]
    asked, seen, truth = tables(rows, rng, off)
    found = pairs(asked, seen, ERROR_NS)
    assert all(truth[server] == client for client, server in zip(found.asked, found.seen, strict=True))
    assert len(set(found.asked)) == len(found.asked) == len(rows) and found.ambiguous == 0


def test_what_several_clients_could_have_sent_belongs_to_nobody():
    rng = random.Random(2)
    rows = load(rng, clients=1, ports=1, requests=50)
    # behind one address, two clients with the same port, ids and times
    both = rows + [(1, *row[1:]) for row in rows]
    asked, _, _ = tables(both, rng)
    _, seen, _ = tables(rows, rng)
    found = pairs(asked, seen, ERROR_NS)
    assert found.asked == [] and found.ambiguous == 50


def test_without_ids_requests_are_told_apart_by_their_number_or_by_time():
    rng = random.Random(3)
    rows = load(rng, clients=1, ports=2, knows_ids=False)
    asked, seen, truth = tables(rows, rng)
    # the clocks are worse than the requests are long: only their number tells
    found = pairs(asked, seen, S)
    assert len(found.asked) == len(rows) and all(truth[s] == c for c, s in zip(found.asked, found.seen, strict=True))
    # before them the server saw one more on each port, and their number is counted from the last
    before = [(row[0], row[1], None, 0, 4 * S + row[1], 4 * S + row[1] + 9, S, row[7], -1) for row in rows if row[8] == 0]
    _, more, _ = tables(rows + before, rng)
    found = pairs(asked, more, 50_000)
    assert len(found.asked) == len(rows) and all(asked.sent[c] - 50_000 <= more.t1[s] for c, s in zip(found.asked, found.seen, strict=True))
    # it saw one more after them: what time alone does not tell is left out
    after = [(row[0], row[1], None, 0, 9 * S + row[1], 9 * S + row[1] + 9, S, row[7], -1) for row in rows if row[8] == 0]
    _, more, _ = tables(rows + after, rng)
    some = pairs(asked, more, 50_000)
    assert 0 < len(some.asked) < len(rows) and some.ambiguous > 0
    exact = pairs(asked, more, 0)
    assert len(exact.asked) == len(rows) and exact.ambiguous == 0


def test_what_the_server_never_saw_or_never_answered_has_no_stamps():
    rng = random.Random(4)
    rows = load(rng, clients=1, ports=2, requests=100)
    asked, seen, _ = tables(rows, rng)
    lost = Asked(asked.client, asked.port, asked.id, asked.sent, [None if n % 3 == 0 else at for n, at in enumerate(asked.received)])
    found = pairs(lost, seen, ERROR_NS)
    assert sorted(found.asked) == [n for n in range(len(rows)) if n % 3]
    elsewhere = Asked(asked.client, [port + 9 for port in asked.port], asked.id, asked.sent, asked.received)
    assert pairs(elsewhere, seen, ERROR_NS).asked == []


@pytest.mark.parametrize("has_addresses", [False, True])
@pytest.mark.parametrize("most_rows", [1_000_000, 500])
def test_the_file_has_both_sides_on_one_clock(tmp_path, monkeypatch, most_rows, has_addresses):
    monkeypatch.setattr(join, "_MOST_ROWS", most_rows)
    rng = random.Random(5)
    rows = load(rng, clients=2, ports=4, requests=200)
    instant = {b"unit": b"ns", b"clock": b"CLOCK_MONOTONIC of a host, since boot"}
    field = lambda name, kind=pyarrow.int64(), about=None: pyarrow.field(name, kind, metadata=about)
    number = pyarrow.uint32()
    mine = pyarrow.schema(
        [
            field("sent", about=instant),
            field("received", about=instant),
            field("client_port", number),
            field("request_id", number),
            field("warm_up", pyarrow.bool_()),
            field("client", pyarrow.int32()),
        ]
    )
    asked = sorted(rows, key=lambda row: row[3])
    columns = [[row[n] for row in asked] for n in (3, 6, 1, 2)] + [[n < 100 for n in range(len(rows))], [row[0] for row in asked]]
    pyarrow.parquet.write_table(pyarrow.table(dict(zip(mine.names, columns, strict=True)), schema=mine), tmp_path / "all")
    theirs = pyarrow.schema(
        [field("t1", about=instant), field("t6", about=instant), *(field(name, number) for name in ("client_port", "client_hash", "request_id"))]
    )
    # the server's clock is 1,000 s ahead
    seen = sorted(rows, key=lambda row: row[4])
    columns = [[row[n] + (1_000 * S if n in (4, 5) else 0) for row in seen] for n in (4, 5, 1, 7, 2)]
    served = pyarrow.table(dict(zip(theirs.names, columns, strict=True)), schema=theirs)
    if has_addresses:
        # whose hashes say nothing
        addresses = pyarrow.array([f"10.0.0.{known}" for known in served["client_hash"].to_pylist()])
        served = served.set_column(served.column_names.index("client_hash"), "client_hash", pyarrow.array([9] * len(served), number))
        served = served.append_column("client_address", addresses)
    pyarrow.parquet.write_table(served, tmp_path / "server")
    clock = HostClock("db", (Offset(0, 1_000.0 * S, 10), Offset(S, 1_000.0 * S, 10)))
    said = join.join(tmp_path / "all", tmp_path / "server", clock, ERROR_NS, tmp_path / "joined")
    assert said["joined"] == said["answered"] == len(rows) and said["ambiguous"] == 0
    table = pyarrow.parquet.read_table(tmp_path / "joined")
    truth = {(row[3], row[1]): row for row in rows}
    for row in table.to_pylist():
        _, _, _, sent, t1, t6, received, *_ = truth[row["sent"], row["client_port"]]
        assert (row["t1"], row["t6"], row["outside_ns"]) == (t1, t6, received - sent - (t6 - t1))
    assert "client_address" not in table.column_names
    low, high = min(table["outside_ns"].to_pylist()), max(table["outside_ns"].to_pylist())
    outside = said["outside_p50"]
    assert low <= outside["lo"] <= outside["value"] <= outside["hi"] <= high
    # records of an older program have no ports
    pyarrow.parquet.write_table(pyarrow.parquet.read_table(tmp_path / "all").drop_columns(["client_port"]), tmp_path / "old")
    assert join.join(tmp_path / "old", tmp_path / "server", clock, ERROR_NS, tmp_path / "none") is None


def test_an_address_takes_the_place_of_its_hash():
    table = pyarrow.table({"client_port": [1, 2], "client_hash": [9, 9], "request_id": [3, 4], "t1": [5, 6], "t6": [7, 8]})
    assert join._seen(table).hash == [9, 9]
    both = table.append_column("client_address", pyarrow.array(["10.0.0.1", None]))
    assert join._seen(both).hash == ["10.0.0.1", 9]
