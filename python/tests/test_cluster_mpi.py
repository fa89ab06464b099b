"""The cluster over MPI, with ranks of this machine."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet
import taillab
from stand_in import PATIENCE_S

from taillab.cluster import DataSet
from taillab.cluster.__main__ import main
# a fixture
from test_cluster_ranks import prepared

MPIRUN = Path(sys.executable).with_name("mpirun")


def started(words, ranks, *more):
    """An experiment under mpirun, which works for root too, and with fewer CPUs than ranks."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [MPIRUN, "--allow-run-as-root", "--oversubscribe", "--with-ft", "ulfm", *more, "-n", str(ranks)]
    command += [sys.executable, "-m", "taillab.cluster", *map(str, words)]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(child):
    try:
        return child.communicate(timeout=2 * PATIENCE_S)
    finally:
        child.kill()


def test_clients_under_mpirun_begin_together_and_are_merged(server, tmp_path):
    out = tmp_path / "out"
    words = ["load", server, "-R", "2k", "-d", "300ms", "--warmup", "100ms", "--lead", "5s", "-o", out]
    child = started([*words, "--", "--connections=2", "--floor=off", "--wait=hybrid"], 3)
    said, errors = ended(child)
    # 4: on a busy machine a client may not believe itself
    assert child.returncode in (0, 4), errors
    found = json.loads((out / "cluster.json").read_text())
    measured = [taillab.load(out / f"client-{n}") for n in range(2)]
    loads = [each.summary.load for each in measured]
    assert found["requests"] == sum(load.requests for load in loads) > 100 and not found["partial"]
    assert found["response_time"]["count"] == sum(each.histogram.count for each in measured)
    assert found["response_time"]["max"] == max(load.response_time.max for load in loads)
    # each sends half of the rate, from a seed of its own: 300 requests expected, five standard deviations
    assert all(abs(load.requests - 300) < 90 for load in loads) and loads[0].requests != loads[1].requests
    for row, each in zip(found["clients"], measured, strict=True):
        start = each.summary.generator.start
        assert (start.client, start.clients) == (row["client"], 2)
        # one machine has one clock, and its ranks must find that
        assert abs(row["clock"]["offset_ns"]) <= row["clock"]["error_ns"]
        assert abs(row["start"]["off_plan_ns"]) <= row["start"]["error_ns"] + start.error_ns
    table = pyarrow.parquet.read_table(out / "requests.parquet")
    assert set(table["client"].to_pylist()) == {0, 1} and len(table) == sum(len(each.requests) for each in measured)
    # over a Unix socket there are no ports
    assert table["client_port"].null_count == len(table)
    assert found["start_skew"]["max_ns"] >= 0 and "start skew" in said
    assert (out / "report.html").read_text().count("<polyline") == 3


def test_a_rank_that_is_killed_under_mpirun_leaves_the_others(prepared):
    folder, _ = prepared
    # its program hangs, so that the rank is still at work when it is killed
    (folder / "behaviour.json").write_text('{"1": "hangs"}')
    words = ["load", "echo+tcp://db:7", "-R", "6k", "-d", "100ms", "--warmup", "0", "--lead", "500ms", "--patience", "20s"]
    child = started([*words, "-o", folder / "out"], 3)
    program, rank = hanging(str(folder))
    os.kill(rank, signal.SIGKILL)
    said, errors = ended(child)
    # it is interrupted, and does not stay behind
    until = time.monotonic() + PATIENCE_S
    while state(program) not in ("", "Z"):
        assert time.monotonic() < until
        time.sleep(0.02)
    found = json.loads((folder / "out" / "cluster.json").read_text())
    assert child.returncode != 0 and found["partial"] and found["response_time"]["count"] == 2_000
    assert "rank 2 on" in errors and "ended while measuring" in errors and "partial" in said


def state(process):
    """The state of a process, Z where only nobody has asked for its exit code; empty if it is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def hanging(place):
    """The program of this folder that sleeps, and the rank that has started it."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().decode().split("\0")
                if "agent" in words and any(each.startswith(place) for each in words) and "nanosleep" in (process / "wchan").read_text():
                    return int(process.name), int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
        time.sleep(0.02)
    raise TimeoutError("no rank has started its program")


def test_a_sweep_is_computed_on_the_ranks(tmp_path):
    words = ["sweep", "sim", "--vary", "utilization=0.5,0.8", "--seeds", "2", "-o", tmp_path / "sweep"]
    child = started([*words, "--", "--requests=50k", "--threads=1"], 2)
    said, errors = ended(child)
    assert child.returncode == 0 and "4 of 4 points" in said, errors
    table = DataSet(tmp_path / "sweep").read()
    assert len(table) == 4 and table["p99_lo_ns"].null_count == 0


def test_what_is_wrong_is_said_once_and_ends_all_ranks(tmp_path):
    (tmp_path / "cluster.json").write_text("{}")
    child = started(["load", "echo+tcp://db:7", "-R", "1k", "-o", tmp_path], 3)
    _, errors = ended(child)
    assert child.returncode == 2 and errors.count("taillab: error: ") == 1 and "holds a result already" in errors, errors


def test_a_wrong_command_line_is_one_line(capfd):
    # without mpirun there is one rank, the first
    for words, says in ((["-R", "fast"], "`fast` is no rate"), (["-R", "1k", "-d", "10"], "a number and a unit"), (["-R", "1k"], "mpirun -n 2")):
        assert main(["load", "echo+tcp://db:7", *words]) == 2
        said = capfd.readouterr().err
        assert says in said and said.count("\n") == 1
