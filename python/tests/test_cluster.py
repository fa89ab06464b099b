"""What the cluster computes: offsets of clocks, plans, merged records, sweeps. Nothing here is started."""

import base64
import json
import math
import random
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor

import pyarrow
import pyarrow.parquet
import pytest

from taillab import histogram
from taillab.cluster import fanout, sweep
from taillab.cluster.clocks import HostClock, Offset, Sample, offset_of
from taillab.cluster.faults import ClockJumpedError, ClusterError, UsageError
from taillab.cluster.merge import Part, Records, on_our_clock, superposition, together, write_requests
from taillab.cluster.plan import Load, fan_out_plans, length_ns, per_second, plans, seeds, share
from taillab.histogram import Histogram

S = 10**9


def questions(rng, offset, at=5 * S, count=100, drift=0.0):
    """Answers of a clock that is `offset` ahead, over ways that take any time."""
    samples = []
    for _ in range(count):
        there_ns, back_ns = (round(rng.expovariate(1 / 20_000)) + 3_000 for _ in range(2))
        stamped = at + there_ns
        samples.append(Sample(at, round(stamped + offset + drift * stamped), stamped + back_ns))
        at = stamped + back_ns + 1_000
    return samples


def test_the_offset_of_a_clock_lies_within_its_stated_error():
    rng = random.Random(1)
    for _ in range(200):
        true, drift = rng.uniform(-1e12, 1e12), rng.uniform(-1e-4, 1e-4)
        found = offset_of(questions(rng, true, drift=drift), "a")
        assert abs(found.value_ns - (true + drift * found.at_ns)) <= found.error_ns + 1
        # the fastest of the questions took 6 µs at least, and the error is no more than half of it
        assert found.error_ns <= 20_000


def test_more_questions_never_make_the_error_larger():
    rng = random.Random(2)
    samples = questions(rng, 7 * S)
    few, many = offset_of(samples[:10], "a"), offset_of(samples, "a")
    assert many.error_ns <= few.error_ns + 1e-4 * 0.01 * S


def test_a_drift_is_followed_and_its_error_is_stated():
    rng = random.Random(3)
    for _ in range(100):
        drift = rng.uniform(-1e-4, 1e-4)
        offsets = [offset_of(questions(rng, 4 * S, at, drift=drift), "a") for at in (10 * S, 11 * S, 30 * S)]
        clock = HostClock("a", tuple(offsets))
        for at in (10 * S, 17 * S, 30 * S):
            true = 4 * S + drift * at
            assert abs(clock.offset_ns(at) - true) <= clock.error_ns(at) + 1
            there = round(at + true)
            assert abs(clock.to_ours(there) - at) <= clock.error_ns(at) + 2
        # a start that lies ahead of two measurements is known less well, but within what is said
        ahead = HostClock("a", tuple(offsets[:2]))
        assert abs(ahead.offset_ns(15 * S) - (4 * S + drift * 15 * S)) <= ahead.error_ns(15 * S) + 1
        assert ahead.error_ns(15 * S) > ahead.error_ns(11 * S)
        assert abs(clock.drift - drift) < 1e-5


def test_a_clock_that_bends_has_a_wider_error():
    straight = HostClock("a", (Offset(0, 0, 10), Offset(S, 1_000, 10), Offset(2 * S, 2_000, 10)))
    bent = HostClock("a", (Offset(0, 0, 10), Offset(S, 3_000, 10), Offset(2 * S, 2_000, 10)))
    assert straight.error_ns(S) == 10 and bent.error_ns(S) >= 2_000


def test_a_clock_that_jumps_is_named():
    rng = random.Random(4)
    samples = questions(rng, 0) + questions(rng, 5_000_000, at=5 * S + 50_000_000)
    with pytest.raises(ClockJumpedError, match="of db-3 jumped by at least .* while it was measured.*measure again"):
        offset_of(samples, "db-3")
    with pytest.raises(ClockJumpedError, match="db-3 jumped by at least .*between two measurements"):
        HostClock("db-3", (Offset(0, 0, 100), Offset(S, 50_000_000, 100)))
    HostClock("db-3", (Offset(0, 0, 100), Offset(S, 1_000_000, 100)))


def test_a_load_is_shared_and_everybody_has_a_seed_of_their_own():
    many = seeds(1, 1_000)
    assert len(set(many)) == 1_000 and many[:3] == seeds(1, 3) and many != seeds(2, 1_000)
    assert all(0 <= seed < 1 << 53 for seed in many)
    load = Load("memcached+tcp://db", 30_000.0, 10 * S, S, 1, options=("--connections=4",))
    clocks = {number: HostClock("a", (Offset(0, 1_000.0 * number, 50), Offset(S, 1_000.0 * number, 50))) for number in (0, 2, 3)}
    made = plans(load, "0.1.0", S, clocks, 4)
    assert sorted(made) == [0, 2, 3] and [made[n]["client"] for n in (0, 2, 3)] == [0, 2, 3]
    # who is missing leaves its share to the others
    assert sum(plan["rate_per_s"] for plan in made.values()) == pytest.approx(30_000)
    assert made[2]["seed"] == seeds(1, 4)[2] and made[2]["clients"] == 4
    assert made[3]["start"] == {"clock": "monotonic", "at_ns": S, "offset_ns": 3_000, "error_ns": 50}
    # one stores the keys
    assert made[0]["options"] == ["--connections=4"] and made[2]["options"] == ["--connections=4", "--no-prefill"]
    closed = plans(Load("http://db", None, S, 0, 1), "0.1.0", S, clocks, 4)
    assert {plan["rate_per_s"] for plan in closed.values()} == {"max"} and closed[2]["options"] == []
    # to many servers goes the same load, at the same instants
    fan = fan_out_plans(load, [f"redis://s{n}" for n in range(4)], "0.1.0", S, clocks, 4)
    assert {plan["rate_per_s"] for plan in fan.values()} == {30_000.0} and {plan["seed"] for plan in fan.values()} == {1}
    assert [plan["target"] for plan in fan.values()] == ["redis://s0", "redis://s2", "redis://s3"]
    assert all(plan["options"] == ["--connections=4"] for plan in fan.values())


@pytest.mark.parametrize(
    ("read", "good", "bad"),
    [
        (length_ns, {"10s": 10 * S, "1.5ms": 1_500_000, "0": 0, "2m": 120 * S}, ["10", "s", "-1s", "10 parsecs", ""]),
        (per_second, {"20000": 2e4, "20k": 2e4, "1.5M": 1.5e6}, ["0", "-5", "fast", "", "1e"]),
        (share, {"50%": 0.5, "0.5": 0.5}, ["0", "200%", "75", "half"]),
    ],
)
def test_notations_are_those_of_the_program(read, good, bad):
    assert {text: read(text) for text in good} == pytest.approx(good)
    for text in bad:
        with pytest.raises(UsageError) as error:
            read(text)
        assert "write" in str(error.value) and "\n" not in str(error.value)


def hlog(values):
    """The text of a histogram with three digits (V2, deflated) of nanoseconds."""
    counts = {}
    for value in values:
        bucket = max(0, value.bit_length() - 11)
        index = ((bucket + 1) << 10) + (value >> bucket) - 1024
        counts[index] = counts.get(index, 0) + 1
    body, last = b"", -1
    for index in sorted(counts):
        body += varint(-(index - last - 1)) if index > last + 1 else b""
        body += varint(counts[index])
        last = index
    inner = struct.pack(">iiiiqqd", 0x1C849303 | 0x10, len(body), 0, 3, 1, 1 << 40, 1.0) + body
    deflated = zlib.compress(inner)
    return base64.b64encode(struct.pack(">ii", 0x1C849304 | 0x10, len(deflated)) + deflated).decode()


def varint(number):
    value, out = (number << 1) ^ (number >> 63), bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def distribution(values, width=0.0):
    """What `--json` says of values, with an interval of this width around each quantile."""
    ordered = sorted(values)
    at = lambda q: ordered[min(len(ordered) - 1, max(0, math.ceil(q * len(ordered)) - 1))]
    quantiles = [{"q": q, "value": at(q), "lo": at(q - width / 2), "hi": at(q + width / 2)} for q in (0.5, 0.9, 0.99)]
    return {"count": len(values), "mean": sum(values) / len(values), "min": ordered[0], "max": ordered[-1], "quantiles": quantiles}


def part(values, width=0.0):
    return Part(histogram.decode(hlog(values)), distribution(values, width))


def test_the_merged_histogram_is_that_of_all_records():
    rng = random.Random(5)
    for _ in range(50):
        clients = [[round(rng.lognormvariate(11, 2)) + 1 for _ in range(rng.randint(1, 400))] for _ in range(rng.randint(1, 6))]
        whole, found = together([part(values) for values in clients])
        everything = [value for values in clients for value in values]
        assert whole == histogram.decode(hlog(everything))
        assert (found["count"], found["min"], found["max"]) == (len(everything), min(everything), max(everything))
        assert found["mean"] == pytest.approx(sum(everything) / len(everything))
        median = next(each for each in found["quantiles"] if each["q"] == 0.5)
        if median["value"] is not None:
            true = sorted(everything)[max(0, int(len(everything) * 0.5 + 0.5) - 1)]
            assert median["value"] == pytest.approx(true, rel=2e-3, abs=1) and median["lo"] <= median["value"]


def test_percentiles_of_all_are_no_means_of_percentiles():
    fast, slow = [1_000 + n for n in range(9_000)], [1_000_000 + n for n in range(1_000)]
    _, found = together([part(fast), part(slow)])
    at = {each["q"]: each["value"] for each in found["quantiles"]}
    # a tenth of all requests are slow ones, although half of the clients are
    assert at[0.5] == pytest.approx(6_000, rel=2e-3) and at[0.99] == pytest.approx(1_000_900, rel=2e-3)


def test_an_interval_is_no_narrower_than_that_of_a_usual_client():
    rng = random.Random(6)
    clients = [[round(rng.expovariate(1e-5)) + 1 for _ in range(5_000)] for _ in range(9)]
    width = {each: together([part(values, each) for values in clients])[1]["quantiles"][0] for each in (0.0, 0.1)}
    narrow, wide = (width[each]["hi"] - width[each]["lo"] for each in (0.0, 0.1))
    # of exponential times, the quantiles 0.45 and 0.55 are 0.2 means apart
    assert wide == pytest.approx(0.2e5, rel=0.2) and narrow < wide / 4
    beyond = {each["q"]: each for each in together([part(clients[0][:2_000])])[1]["quantiles"]}
    assert beyond[0.99999]["value"] is None and beyond[0.999]["hi"] is None


def test_a_percentile_is_that_of_the_clients_that_did_not_spoil_it():
    rng = random.Random(9)
    good, late = ([round(rng.expovariate(1 / mean)) + 1 for _ in range(4_000)] for mean in (1e5, 9e5))
    spoiled = Part(histogram.decode(hlog(late)), distribution(late), frozenset({0.9, 0.99, 0.999}))
    whole, found = together([part(good), spoiled])
    at = {each["q"]: each for each in found["quantiles"]}
    assert whole.count == found["count"] == 8_000 and [at[q]["clients"] for q in (0.5, 0.9, 0.99)] == [2, 1, 1]
    assert at[0.9]["value"] == part(good).histogram.quantile(0.9)
    # the median is of both
    assert at[0.5]["value"] > 1.5 * part(good).histogram.quantile(0.5)
    nobody = {each["q"]: each for each in together([spoiled])[1]["quantiles"]}
    assert nobody[0.99]["value"] is None and nobody[0.99]["clients"] == 0 and nobody[0.5]["value"] is not None


def test_clients_without_requests_do_no_harm():
    nothing = Part(Histogram(()), {"count": 0, "mean": None, "min": None, "max": None, "quantiles": []})
    assert together([nothing])[1]["count"] == 0 and together([])[1]["mean"] is None
    assert together([nothing, part([5, 6])])[1]["mean"] == 5.5


def requests(first_ns, count, clock=b"CLOCK_MONOTONIC of the client host, since boot", port=40_000):
    instant = {b"unit": b"ns", b"clock": clock}
    schema = pyarrow.schema(
        [
            pyarrow.field("intended", pyarrow.int64(), metadata=instant),
            pyarrow.field("sent", pyarrow.int64(), metadata=instant),
            pyarrow.field("received", pyarrow.int64(), metadata=instant),
            pyarrow.field("response_time_ns", pyarrow.int64(), metadata={b"unit": b"ns"}),
            pyarrow.field("thread", pyarrow.int32()),
            pyarrow.field("client_port", pyarrow.uint32()),
            pyarrow.field("request_id", pyarrow.uint32()),
            pyarrow.field("warm_up", pyarrow.bool_()),
        ]
    )
    intended = [first_ns + n * 1_000_000 for n in range(count)]
    columns = [intended, [at + 10 for at in intended], [*(at + 500 for at in intended[:-1]), None], [490] * count, [0] * count]
    columns += [[port] * count, [n % (1 << 16) for n in range(count)], [False] * count]
    return pyarrow.table(dict(zip(schema.names, columns, strict=True)), schema=schema)


def test_instants_of_all_clients_are_on_one_clock(tmp_path):
    drift, at = 5e-5, 100 * S
    offsets = tuple(Offset(t, 40 * S + drift * (t - at), 10) for t in (at, at + S, at + 20 * S))
    clocks = [HostClock("a", (Offset(at, 0, 10), Offset(at + S, 0, 10))), HostClock("b", offsets)]
    files = []
    for client, clock in enumerate(clocks):
        files.append(tmp_path / f"{client}.parquet")
        # both sent at the same instants of ours
        first = at + 5 * S + round(clock.offset_ns(at + 5 * S))
        pyarrow.parquet.write_table(requests(first, 1_000), files[-1])
    written = write_requests([Records(n, path, clock) for n, (path, clock) in enumerate(zip(files, clocks, strict=True))], tmp_path / "all")
    table = pyarrow.parquet.read_table(tmp_path / "all")
    assert written == len(table) == 2_000 and table["client"].to_pylist() == [0] * 1_000 + [1] * 1_000
    sent = table["sent"].to_pylist()
    # the drift of the second clock stretches its own millisecond
    for n in (0, 500, 999):
        assert sent[n] == at + 5 * S + n * 1_000_000 + 10
        assert sent[1_000 + n] == pytest.approx(sent[n] - n * 1_000_000 * drift, abs=3)
    assert table["received"].null_count == 2 and set(table["response_time_ns"].to_pylist()) == {490}
    assert b"first rank" in table.schema.field("sent").metadata[b"clock"]


def test_a_column_without_a_clock_stays_as_it_is():
    table = requests(10 * S, 5)
    moved = on_our_clock(table, HostClock("a", (Offset(0, 3 * S, 1), Offset(S, 3 * S, 1))))
    assert moved["intended"].to_pylist()[0] == 7 * S and moved["thread"] == table["thread"]


def test_the_superposition_of_poisson_clients_is_one():
    rng = random.Random(7)
    times, even = [], [n * 250_000 for n in range(8_000)]
    for _ in range(4):
        at = 0.0
        while at < 2 * S:
            at += rng.expovariate(1_000 / S)
            times.append(round(at))
    found = superposition(times, 4_000)
    assert found["poisson"] is True and found["cv"] == pytest.approx(1, abs=0.1)
    assert superposition(even, 4_000)["poisson"] is False
    # half of the load is missing
    assert superposition(times[: len(times) // 2], 4_000)["poisson"] is False
    assert superposition([1], 4_000)["poisson"] is None


def test_the_slowest_of_independent_servers_has_the_order_statistics_of_one():
    rng = random.Random(10)
    servers = [[round(rng.expovariate(1e-5)) + 1 for _ in range(20_000)] for _ in range(3)]
    found = fanout.of_times(servers, 20_500)
    assert (found["servers"], found["complete"], found["incomplete"]) == (3, 20_000, 500)
    for each in found["quantiles"][:3]:
        # of three exponential times: (1 - exp(-x))^3 = q
        true = -1e5 * math.log(1 - each["q"] ** (1 / 3))
        assert each["lo"] <= each["value"] <= each["hi"]
        assert each["independent"] == pytest.approx(true, rel=0.05) and each["value"] == pytest.approx(true, rel=0.05)
    # servers that are slow at the same time are together as slow as one
    alike = fanout.of_times([servers[0]] * 3, 20_000)["quantiles"][2]
    assert alike["value"] == pytest.approx(4.6e5, rel=0.05) and alike["independent"] > 1.15 * alike["value"]
    assert fanout.of_times([], 0)["complete"] == 0


def test_requests_of_several_servers_are_joined_by_when_they_were_due(tmp_path):
    parts = []
    for server, (start, lost) in enumerate(((7 * S, None), (90 * S, 3), (11, 5))):
        due = [2_000_000 * (n + 1) for n in range(10)]
        times = [1_000 * (server + 1) + n if n != lost else None for n in range(10)]
        columns = {"intended": [start + at for at in due], "thread": [n % 2 for n in range(10)], "warm_up": [n < 2 for n in range(10)]}
        table = pyarrow.table({**columns, "response_time_ns": pyarrow.array(times, pyarrow.int64())})
        parts.append((tmp_path / f"{server}.parquet", start))
        # the last server was not sent the last one, and has them in another order
        table = table.take(pyarrow.array([*range(8, -1, -1)])) if server == 2 else table
        pyarrow.parquet.write_table(table, parts[-1][0])
    columns, asked = fanout.joined([fanout._times(*part) for part in parts])
    assert asked == 8 and columns == [[base + n for n in (2, 4, 6, 7, 8)] for base in (1_000, 2_000, 3_000)]
    found = fanout.slowest(parts)
    assert (found["complete"], found["incomplete"]) == (5, 3) and fanout.slowest([])["servers"] == 0


def computed(done):
    """Work that notes which points it was given."""

    def work(point, program, within_s):
        done.append(point.key)
        if dict(point.parameters).get("workers") == "3":
            raise ClusterError("`sim --workers=3` failed: no such queue")
        found = {"point": point.key, "command": point.command, **dict(point.parameters), "count": 5, "p99_ns": 7, "valid": True}
        return found | {"mean_ns": 1.5}

    return work


def test_a_sweep_goes_on_where_it_was_killed(tmp_path):
    wanted = sweep.points("sim", {"workers": ["1", "2"]}, 3, ["--requests=1000"])
    assert len({point.key for point in wanted}) == 6
    assert wanted[0].words() == ["sim", "--json", "--quiet", "--requests=1000", "--workers=1", "--seed=1"]
    done = []
    data = sweep.DataSet(tmp_path)
    for point in wanted[:2]:
        assert len(data.begin(wanted)) == 6 - len(done)
        data.put(computed(done)(point, "", 1))
    # a killed writer leaves half a file, which is no point
    (tmp_path / sweep.DATA / f"{wanted[2].key}.part").write_bytes(b"half")
    said, again = [], []
    with ThreadPoolExecutor(2) as pool:
        assert sweep.run(wanted, tmp_path, pool, said.append, work=computed(again)) == []
    assert sorted(again) == sorted(point.key for point in wanted[2:]) and "6 points, 2 of them" in said[0]
    table = data.read()
    assert len(table) == 6 and sorted(set(table["workers"].to_pylist())) == ["1", "2"]
    assert table.schema.field("p99_ns").type == pyarrow.int64()
    with pytest.raises(UsageError, match="another sweep"):
        data.begin(wanted[:1])


def test_a_point_that_fails_is_named_and_the_others_are_kept(tmp_path):
    wanted = sweep.points("sim", {"workers": ["1", "3"]}, 1, [])
    with ThreadPoolExecutor(2) as pool:
        failures = sweep.run(wanted, tmp_path, pool, lambda _: None, work=computed([]))
    assert failures == ["`sim --workers=3` failed: no such queue"] and len(sweep.DataSet(tmp_path).read()) == 1
    with pytest.raises(UsageError, match="sim or run"):
        sweep.points("dance", {}, 1, [])
    with pytest.raises(UsageError, match="not from both"):
        sweep.points("sim", {"seed": ["1"]}, 2, [])


def test_a_point_of_the_real_program_is_a_row_with_intervals():
    from taillab import _program

    point = sweep.points("sim", {"utilization": ["0.5"]}, 1, ["--requests=200k", "--threads=1"])[0]
    row = sweep.compute(point, _program.find(), 30)
    assert row["utilization"] == "0.5" and row["p99_lo_ns"] <= row["p99_ns"] <= row["p99_hi_ns"] and row["valid"] is True
    broken = sweep.points("sim", {"workers": ["none"]}, 1, [])[0]
    with pytest.raises(ClusterError, match="--workers=none.*exit code 2") as error:
        sweep.compute(broken, _program.find(), 30)
    assert "\n" not in str(error.value)
    assert json.loads(json.dumps(row)) == row
