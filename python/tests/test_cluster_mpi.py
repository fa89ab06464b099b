"""The cluster over MPI, with ranks of this machine."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet
from stand_in import PATIENCE_S

from taillab.cluster import DataSet
from test_cluster_ranks import prepared  # noqa: F401

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


def test_clients_under_mpirun_begin_together(prepared):  # noqa: F811
    folder, _ = prepared
    words = ["load", "echo+tcp://db:7", "-R", "6k", "-d", "100ms", "--warmup", "0", "--lead", "500ms", "-o", folder / "out"]
    child = started([*words, "--", "--connections=4"], 3)
    said, errors = ended(child)
    assert child.returncode == 0, errors
    found = json.loads((folder / "out" / "cluster.json").read_text())
    assert found["requests"] == 4_000 and found["verdict"]["valid"] and not found["partial"] and "start skew" in said
    # one machine has one clock, and its ranks must find that
    for row in found["clients"]:
        assert abs(row["clock"]["offset_ns"]) <= row["clock"]["error_ns"] < 1_000_000
    assert set(pyarrow.parquet.read_table(folder / "out" / "requests.parquet")["client"].to_pylist()) == {0, 1}
    plan = json.loads((folder / "out" / "client-1" / "plan.json").read_text())
    assert plan["options"] == ["--connections=4"] and plan["rate_per_s"] == 3_000


def test_a_rank_that_is_killed_under_mpirun_leaves_the_others(prepared):  # noqa: F811
    folder, _ = prepared
    # its program hangs, so that the rank is still at work when it is killed
    (folder / "behaviour.json").write_text('{"1": "hangs"}')
    words = ["load", "echo+tcp://db:7", "-R", "6k", "-d", "100ms", "--warmup", "0", "--lead", "500ms", "--patience", "20s"]
    child = started([*words, "-o", folder / "out"], 3)
    os.kill(parent_of("agent", str(folder)), signal.SIGKILL)
    said, errors = ended(child)
    found = json.loads((folder / "out" / "cluster.json").read_text())
    assert child.returncode != 0 and found["partial"] and found["response_time"]["count"] == 2_000
    assert "rank 2 on" in errors and "ended while measuring" in errors and "partial" in said


def parent_of(word, place):
    """The rank whose program, of this folder, sleeps: it hangs."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().decode().split("\0")
                state = (process / "stat").read_text().rsplit(")", 1)[1].split()
                sleeps = "nanosleep" in (process / "wchan").read_text()
            except OSError:
                continue
            if word in words and any(each.startswith(place) for each in words) and sleeps:
                return int(state[1])
        time.sleep(0.02)
    raise TimeoutError("no rank has started its program")


def test_a_sweep_is_computed_on_the_ranks(tmp_path):
    words = ["sweep", "sim", "--vary", "utilization=0.5,0.8", "--seeds", "2", "-o", tmp_path / "sweep"]
    child = started([*words, "--", "--requests=50k", "--threads=1"], 2)
    said, errors = ended(child)
    assert child.returncode == 0 and "4 of 4 points" in said, errors
    table = DataSet(tmp_path / "sweep").read()
    assert len(table) == 4 and table["p99_lo_ns"].null_count == 0


def test_what_is_wrong_is_said_in_one_line(tmp_path):
    for words, says in (
        (["load", "echo+tcp://db:7", "-R", "fast"], "`fast` is no rate"),
        (["load", "echo+tcp://db:7", "-R", "1k"], "mpirun -n 2"),
    ):
        command = [sys.executable, "-m", "taillab.cluster", *words, "-o", str(tmp_path / "out")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert ran.returncode == 2 and says in ran.stderr and ran.stderr.count("\n") == 1, ran.stderr
