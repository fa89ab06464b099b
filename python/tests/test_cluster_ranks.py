"""Experiments with several ranks, which are processes with clocks of their own, and what happens when one fails."""

import json
import os
import random
import re
import signal
import stat
import sys
import time

import pyarrow.compute as pc
import pyarrow.parquet
import pytest
from stand_in import JUMP_NS, PATIENCE_S, ranks
from test_cluster import S, distribution, hlog, requests

from taillab import histogram
from taillab.cluster import experiment, report
from taillab.cluster.clocks import Offset
from taillab.cluster.experiment import FAILED, INVALID, OK, Settings
from taillab.cluster.faults import LostRankError, SilentRankError, UsageError, VersionsError
from taillab.cluster.master import Master, Member, Waits
from taillab.cluster.plan import Load
from taillab.cluster.words import length
from taillab.cluster.worker import Hello

# an agent that has measured before: it waits for its start and hands over what was prepared for its client
AGENT = """#!{python} -SE
import json, os, shutil, sys, time
place = {place!r}
if sys.argv[1] == "--version":
    print("taillab " + open(place + "/version").read())
    sys.exit()
if sys.argv[1] == "trace":
    time.sleep(1)
    out = [word for word in sys.argv if word.startswith("--output=")][0].removeprefix("--output=")
    shutil.copytree(place + "/server", out)
    sys.exit()
plan = json.load(sys.stdin)
client = plan["client"]
behaviour = json.load(open(place + "/behaviour.json")).get(str(client))
if behaviour == "fails":
    print("taillab: error: the server at db stopped answering: see whether it still runs", file=sys.stderr)
    sys.exit(1)
if behaviour == "hangs":
    time.sleep(600)
out = sys.argv[-1].removeprefix("--output=")
shutil.copytree(f"{{place}}/client-{{client}}", out)
result = json.load(open(out + "/result.json"))
start = plan["start"]
result["generator"]["start"]["monotonic_ns"] = start["at_ns"] + start["offset_ns"]
json.dump(result, open(out + "/result.json", "w"))
json.dump(plan, open(out + "/plan.json", "w"))
"""


@pytest.fixture(autouse=True)
def few_questions(monkeypatch):
    """Clocks are measured quickly, and less exactly."""
    monkeypatch.setattr("taillab.cluster.master.QUESTIONS", 20)
    monkeypatch.setattr("taillab.cluster.master._BETWEEN_S", 0.05)


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """A program whose clients have measured known times, three of them; its records, and what each client shall do."""
    rng, records = random.Random(8), []
    for client in range(3):
        values = [round(rng.expovariate(1e-5)) + 1_000 for _ in range(2_000)]
        records.append(values)
        directory = tmp_path / f"client-{client}"
        directory.mkdir()
        (directory / "latency.hlog").write_text(f"Tag=response_time,0.000,1.000,1.0,{hlog(values)}\n")
        pyarrow.parquet.write_table(requests(100 * S, len(values), port=40_000 + client), directory / "requests.parquet")
        (directory / "result.json").write_text(json.dumps(result_of(values)))
    program = tmp_path / "taillab"
    program.write_text(AGENT.format(python=sys.executable, place=str(tmp_path)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "version").write_text("0.1.0")
    (tmp_path / "behaviour.json").write_text("{}")
    monkeypatch.setenv("TAILLAB_BINARY", str(program))
    return tmp_path, records


def result_of(values):
    """The parts of a client's `result.json` that are read."""
    load = {"requests": len(values), "target_rate_per_s": 2_000.0, "response_time": distribution(values, 0.02)}
    load["lateness"] = distribution([100, 200])
    floor = {"load": {"response_time": distribution([5_000] * 100)}}
    generator = {"floor": floor, "start": {"monotonic_ns": 0, "first_send_late_ns": 700}, "closed_loop": {"answered_rate_per_s": 20_000.0}}
    return {"partial": False, "load": load, "generator": generator, "verdict": {"valid": True, "reasons": []}}


def load(**changes):
    return Load(**{"target": "echo+tcp://db:7", "rate_per_s": 6_000.0, "duration_ns": S // 20, "warmup_ns": 0, "seed": 1, **changes})


def settings(folder, said, shown=None, **changes):
    waits = changes.pop("waits", Waits(patience_s=20, lead_s=0.1))
    show = (shown if shown is not None else []).append
    return Settings(out=folder / "out", waits=waits, say=said.append, show=show, **changes)


def result(folder):
    return json.loads((folder / "out" / "cluster.json").read_text())


def test_clients_with_other_clocks_begin_together_and_are_merged(prepared):
    folder, records = prepared
    clocks = [{"offset_ns": 5 * S, "drift": 2e-5}, {"offset_ns": -3 * S}, {"offset_ns": 123_456_789, "drift": -4e-5}]
    said, shown = [], []
    with ranks(folder, clocks) as (link, processes):
        assert experiment.load(link, load(), settings(folder, said, shown)) == OK
    assert [process.exitcode for process in processes] == [0, 0, 0]
    found = result(folder)
    everything = [value for values in records for value in values]
    merged = sum((histogram.read(folder / "out" / f"client-{n}" / "latency.hlog")["response_time"] for n in range(3)), histogram.Histogram(()))
    assert merged == histogram.decode(hlog(everything))
    assert found["requests"] == found["response_time"]["count"] == 6_000 and found["response_time"]["max"] == max(everything)
    assert not found["partial"] and found["verdict"]["valid"]
    for row, clock in zip(found["clients"], clocks, strict=True):
        # the drift runs from when the rank began, some seconds at most
        assert abs(row["clock"]["offset_ns"] - clock["offset_ns"]) <= row["clock"]["error_ns"] + 60 * S * abs(clock.get("drift", 0))
        assert row["start"]["first_send_late_ns"] == 700 and row["floor"]["count"] == 100 and row["failures"] == []
    assert found["start_skew"]["max_ns"] >= found["start_skew"]["median_ns"] >= 0
    table = pyarrow.parquet.read_table(folder / "out" / "requests.parquet")
    assert len(table) == 6_000 and set(table["client"].to_pylist()) == {0, 1, 2}
    plans = [json.loads((folder / "out" / f"client-{n}" / "plan.json").read_text()) for n in range(3)]
    # where the plan had the start, by the clocks as they were known before it, and as they are known after it
    for row, plan in zip(found["clients"], plans, strict=True):
        assert abs(row["start"]["off_plan_ns"]) <= row["start"]["error_ns"] + plan["start"]["error_ns"] + 2
    assert [plan["rate_per_s"] for plan in plans] == [2_000.0] * 3 and len({plan["seed"] for plan in plans}) == 3
    assert "host-2" in shown[0] and "valid" in shown[0] and "start skew" in shown[0]


def test_the_capacity_is_that_of_all_clients_together(prepared):
    folder, _ = prepared
    said = []
    quick = settings(folder, said, utilization=0.5)
    with pytest.MonkeyPatch.context() as patch, ranks(folder, [{}, {}]) as (link, _):
        patch.setattr(experiment, "_CALIBRATION_NS", S // 10)
        patch.setattr(experiment, "_CALIBRATION_WARMUP_NS", 0)
        assert experiment.load(link, load(rate_per_s=None), quick, "run") == OK
    found = result(folder)
    assert found["capacity_per_s"] == 40_000 and found["rate_per_s"] == 20_000 and found["command"] == "cluster run"


def test_a_rank_on_the_servers_host_traces_it(prepared):
    folder, records = prepared
    (folder / "server").mkdir()
    traced = {"measured": {"sojourn": distribution(records[2])}, "verdict": {"valid": True, "reasons": []}}
    (folder / "server" / "summary.json").write_text(json.dumps(traced))
    table = requests(50 * S, 100)
    pyarrow.parquet.write_table(table.rename_columns(["t1", *table.column_names[1:]]), folder / "server" / "requests.parquet")
    said, shown = [], []
    with ranks(folder, [{}, {}, {"offset_ns": 7 * S}]) as (link, processes):
        traces = settings(folder, said, shown, server_rank=3, trace_options=("--port=7",))
        assert experiment.load(link, load(), traces, "run") == OK, said
    assert [process.exitcode for process in processes] == [0, 0, 0]
    found = result(folder)
    assert found["server"]["sojourn"]["count"] == 2_000 and found["server"]["failures"] == [] and not found["partial"]
    assert [row["client"] for row in found["clients"]] == [0, 1] and found["requests"] == 4_000
    # T1 is on the server's clock, which was measured too; none of these is of the measurement
    assert found["arrivals"]["seen_at"] == "T1" and found["arrivals"]["arrivals"] == 0
    # an older program does not say whose requests these were
    assert found["server"]["joined"] is None and not (folder / "out" / "joined.parquet").exists()
    assert "server host-3: sojourn p50" in shown[0] and (folder / "out" / "server" / "summary.json").is_file()


def test_requests_have_the_stamps_of_the_servers_host(prepared):
    folder, records = prepared
    ahead = 7 * S
    (folder / "server").mkdir()
    traced = {"measured": {"sojourn": distribution(records[2])}, "verdict": {"valid": True, "reasons": []}}
    (folder / "server" / "summary.json").write_text(json.dumps(traced))
    # it saw the requests of the first client
    table = requests(100 * S, 2_000)
    stamps = {"t1": pc.add(table["sent"], ahead + 100), "t6": pc.add(table["sent"], ahead + 390)}
    fields = [pyarrow.field(name, pyarrow.int64(), metadata=table.schema.field("sent").metadata) for name in stamps]
    fields += [pyarrow.field(name, pyarrow.uint32()) for name in ("client_port", "request_id", "client_hash")]
    columns = [*stamps.values(), table["client_port"], table["request_id"], pyarrow.array([9] * 2_000, pyarrow.uint32())]
    seen = pyarrow.Table.from_arrays(columns, schema=pyarrow.schema(fields))
    pyarrow.parquet.write_table(seen, folder / "server" / "requests.parquet")
    clock = lambda offset: [Offset(99 * S, offset, 10.0), Offset(110 * S, offset, 10.0)]
    members = [Member(rank, f"host-{rank}", "0.1.0", clock(0.0), directory=folder / f"client-{rank - 1}") for rank in (1, 2)]
    server = Member(3, "host-3", "0.1.0", clock(float(ahead)), directory=folder / "server")
    found = report.conclude(report.Experiment("run", load(), 100 * S, "0.1.0"), members, server, folder)
    joined = found["server"]["joined"]
    # the last request of each client has no answer
    assert (joined["answered"], joined["joined"], joined["ambiguous"]) == (3_998, 1_999, 0)
    table = pyarrow.parquet.read_table(folder / "joined.parquet")
    assert set(table["client"].to_pylist()) == {0} and set(table["outside_ns"].to_pylist()) == {490 - 290}
    said = "50.00% of the answered requests are joined with the server's stamps; outside of the server they took p50 200 ns"
    assert said in report.text(found)
    page = (folder / "report.html").read_text()
    assert "50.00% of the answered requests are joined" in page and page.count("<polyline") == 3


def test_the_page_has_every_clients_floor_lateness_and_verdict(prepared):
    folder, records = prepared
    late = result_of(records[1])
    late["verdict"] = {"valid": False, "reasons": [{"key": "late_client", "text": "it sent <late>"}]}
    (folder / "client-1" / "result.json").write_text(json.dumps(late))
    clock = [Offset(0, 0.0, 10.0), Offset(S, 0.0, 10.0)]
    members = [Member(rank, f"host-{rank}", "0.1.0", clock, directory=folder / f"client-{rank - 1}") for rank in (1, 2)]
    members.append(Member(3, "a&b", failures=["rank 3 on a&b ended"], is_lost=True))
    found = report.conclude(report.Experiment("load", load(), 0, "0.1.0"), members, None, folder)
    page = (folder / "report.html").read_text()
    rows = page.split("<h2>Each client</h2>")[1].split("<tr>")[2:]
    cells = [[re.sub(r"<[^>]*>", "", cell) for cell in row.split("</td>")] for row in rows]
    assert [row[0] for row in cells] == ["0 host-1", "1 host-2", "2 a&amp;b"]
    # requests, the floor's p50 and p99, how late it sent, and what it says of itself
    assert cells[0][1] == "2,000" and cells[0][5:8] == ["5 µs", "5 µs", "200 ns"] and [row[10] for row in cells] == ["valid", "not valid", "no result"]
    assert 'href="client-0/report.html"' in rows[0] and "href" not in rows[2]
    for each in found["response_time"]["quantiles"]:
        assert each["value"] is None or f"<td>{length(each['value'])}</td><td>{length(each['lo'])} to" in page
    assert "client 1 on host-2: it sent &lt;late&gt;" in page and "<late>" not in page and "not valid, partial" in page
    # all together, and each of those that measured; the points are inside of the picture
    lines = re.findall(r'<polyline points="([^"]*)"', page)
    assert len(lines) == 3 and "<script" not in page and "http" not in page.split("</title>")[1]
    for x, y in (point.split(",") for line in lines for point in line.split()):
        assert 0 <= float(x) <= 560 and 0 <= float(y) <= 400


def test_who_fails_is_named_and_what_the_others_measured_is_kept(prepared, monkeypatch):
    folder, records = prepared
    faults = {1: "rank 2 on host-2 ended while measuring", 2: "rank 3 on host-3 said nothing for"}
    faults |= {3: "client 3 on host-4 ended with exit code 1: the server at db stopped answering", 4: "client 4 on host-5 was ended after"}
    (folder / "behaviour.json").write_text('{"3": "fails", "4": "hangs"}')
    said, shown = [], []
    monkeypatch.setattr("taillab.cluster.master._AFTER_S", 0.0)
    # each rank starts Python twice in this time, beside four others
    hasty = settings(folder, said, shown, waits=Waits(patience_s=3.0, lead_s=0.1))
    with ranks(folder, [{}, {"fault": "dies"}, {"fault": "stops"}, {}, {}]) as (link, processes):
        assert experiment.load(link, load(), hasty) == FAILED
        os.kill(processes[2].pid, signal.SIGCONT)
    assert [processes[n].exitcode for n in (0, 3, 4)] == [0, 0, 0]
    found = result(folder)
    assert found["partial"] and [row["partial"] for row in found["clients"]] == [False, True, True, True, True]
    assert found["response_time"]["count"] == 2_000 == len(records[0])
    for client, says in faults.items():
        lines = [line for line in said if says in line]
        assert len(lines) == 1 and "\n" not in lines[0], said
        assert found["clients"][client]["requests"] is None and says in found["clients"][client]["failures"][0]
        assert says in shown[0]
    assert "no result" in shown[0] and "partial" in shown[0]


def test_a_clock_that_jumps_is_named_and_only_its_instants_are_left_out(prepared):
    folder, _ = prepared
    said = []
    with ranks(folder, [{}, {"fault": "jumps"}]) as (link, _):
        assert experiment.load(link, load(), settings(folder, said)) == FAILED
    found = result(folder)
    failure = found["clients"][1]["failures"][0]
    least_us = float(failure.split("at least ")[1].split(" µs")[0])
    assert "of host-2 jumped" in failure and 0.5 * JUMP_NS < 1e3 * least_us <= JUMP_NS
    # how long its requests took is as true as before
    assert found["response_time"]["count"] == 4_000 and found["clients"][1]["requests"] == 2_000
    table = pyarrow.parquet.read_table(folder / "out" / "requests.parquet")
    assert set(table["client"].to_pylist()) == {0} and found["clients"][1]["start"]["skew_ns"] is None


def test_a_client_that_cannot_be_believed_spoils_the_whole(prepared):
    folder, records = prepared
    bad = result_of(records[0])
    bad["verdict"] = {"valid": False, "reasons": [{"key": "no_answers", "text": "no request was answered"}]}
    (folder / "client-0" / "result.json").write_text(json.dumps(bad))
    clock = [Offset(0, 0.0, 10.0), Offset(S, 0.0, 10.0)]
    members = [Member(rank, f"host-{rank}", "0.1.0", clock, directory=folder / f"client-{rank - 1}") for rank in (1, 2)]
    late = result_of(records[1])
    late["verdict"]["claims"] = [{"claim": "p50", "valid": True}, {"claim": "p99", "valid": False, "because": ["late_client"]}]
    late["verdict"]["claims"].append({"claim": "p99.9", "valid": False, "because": ["unsupported_percentile"]})
    (folder / "client-1" / "result.json").write_text(json.dumps(late))
    verdict = report.conclude(report.Experiment("load", load(), 0, "0.1.0"), members, None, folder)["verdict"]
    assert not verdict["valid"] and verdict["reasons"] == [{"key": "no_answers", "text": "client 0 on host-1: no request was answered"}]
    spoiled = [each["text"] for each in verdict["warnings"] if each["key"] == "client_spoiled"]
    assert spoiled == ["client 1 on host-2 is left out of p99: late_client; see its report"]


def test_a_request_to_many_servers_lasts_as_long_as_the_slowest(server, tmp_path):
    shown = []
    options = ("--connections=2", "--floor=off", "--wait=hybrid")
    wanted = load(rate_per_s=1_000.0, duration_ns=3 * S // 10, options=options)
    with ranks(tmp_path, [{}, {}]) as (link, _):
        waits = settings(tmp_path, [], shown, waits=Waits(patience_s=20, lead_s=5))
        assert experiment.fan_out(link, wanted, [server] * 2, waits) in (OK, INVALID)
    found = result(tmp_path)
    fan, rows = found["fan_out"], found["clients"]
    # both clients drew the same requests
    assert rows[0]["requests"] == rows[1]["requests"] == fan["complete"] + fan["incomplete"] and fan["servers"] == 2
    at = {each["q"]: each for each in fan["quantiles"]}
    tables = [pyarrow.parquet.read_table(tmp_path / "out" / f"client-{n}" / "requests.parquet") for n in range(2)]
    longest = max(pc.max(table["response_time_ns"]).as_py() for table in tables)
    assert 0 < at[0.5]["value"] <= longest and at[0.5]["independent"] <= longest
    assert f"the slowest of 2, of {fan['complete']}" in shown[0]


def test_hosts_with_different_versions_end_before_anything_is_sent(prepared, tmp_path):
    folder, _ = prepared
    said = []
    with ranks(folder, [{}, {}]) as (link, processes):
        master = Master(link, Waits(20, 0.5), said.append)
        with pytest.raises(VersionsError, match="host-1 has 0.1.0, host-2 has 0.1.0, and the first rank has 9.9.9: install 9.9.9"):
            master.greet("9.9.9")
        master.end()
    assert [process.exitcode for process in processes] == [0, 0]


def test_a_rank_that_never_starts_is_named_in_time(prepared):
    folder, _ = prepared
    with ranks(folder, [{}, {}]) as (link, processes):
        os.kill(processes[1].pid, signal.SIGSTOP)
        master = Master(link, Waits(3.0, 0.5), lambda _: None)
        began = time.monotonic()
        with pytest.raises(SilentRankError, match="rank 2 on a host that has not said its name .* while starting"):
            master.greet("0.1.0")
        # not as long as the first rank would wait for a measurement
        assert time.monotonic() - began < 20
        os.kill(processes[1].pid, signal.SIGKILL)
        processes[1].join()
        with pytest.raises(LostRankError, match="ended while"):
            master._answer(master.members[1], "starting")
        master.end()


def test_without_the_first_rank_the_others_end_and_say_why(prepared):
    folder, _ = prepared
    with ranks(folder, [{}, {}]) as (link, processes):
        Master(link, Waits(20, 0.5), lambda _: None).greet("0.1.0")
        for connection in link._connections.values():
            connection.close()
        for process in processes:
            process.join(PATIENCE_S)
    said = [(folder / f"said-{rank}").read_text() for rank in (1, 2)]
    assert [process.exitcode for process in processes] == [1, 1]
    assert all("ended while leading the experiment" in line and line.count("\n") == 1 for line in said)


def test_ctrl_c_keeps_what_the_clients_hand_over(prepared, monkeypatch):
    folder, _ = prepared
    with ranks(folder, [{}, {}]) as (link, _):

        def interrupted(seconds):
            """Ctrl-C while the first rank sleeps for longer than its clients measure."""
            if seconds > 5:
                assert all(connection.poll(PATIENCE_S) for connection in link._connections.values())
                raise KeyboardInterrupt

        monkeypatch.setattr("taillab.cluster.master.time.sleep", interrupted)
        code = experiment.load(link, load(duration_ns=60 * S), settings(folder, []))
    found = result(folder)
    assert code == experiment.INTERRUPTED and found["response_time"]["count"] == 4_000 and found["partial"]
    assert "Ctrl-C" in found["verdict"]["warnings"][-1]["text"]


def test_questions_for_the_time_may_be_broken_off(prepared):
    folder, _ = prepared
    with ranks(folder, [{}]) as (link, processes):
        master = Master(link, Waits(20, 0.3), lambda _: None)
        master.greet("0.1.0")
        samples = master._samples(master.members[0])
        master._ask(master.members[0], "clock", 200)
        master._answer(master.members[0], "reading its clock")
        assert next(samples).there_ns > 0
        # the answer to the second one is still under way when something else is asked
        link.send(1, None, "asking for the time")
        master._ask(master.members[0], "hello", None)
        assert master._next(master.members[0], Hello, PATIENCE_S, "starting").host == "host-1"
        master.end()
    assert processes[0].exitcode == 0


def test_what_cannot_be_done_is_refused_before_it_starts(prepared):
    folder, _ = prepared
    with ranks(folder, [{}]) as (link, _):
        for wrong, says in ((settings(folder, [], server_rank=5), "no rank 5"), (settings(folder, [], server_rank=1), "three ranks")):
            with pytest.raises(UsageError, match=says):
                experiment.load(link, load(), wrong)
        with pytest.raises(UsageError, match="3 servers need as many ranks .* mpirun -n 4"):
            experiment.fan_out(link, load(), ["echo+tcp://db:7"] * 3, settings(folder, []))
    with ranks(folder, [{}]) as (link, _):
        (folder / "out").mkdir(exist_ok=True)
        (folder / "out" / "cluster.json").write_text("{}")
        with pytest.raises(UsageError, match="holds a result already"):
            experiment.load(link, load(), settings(folder, []))
    link.size = 1
    with pytest.raises(UsageError, match="mpirun -n 2"):
        Master(link, Waits(), lambda _: None)
