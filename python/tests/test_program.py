"""How the program is started and ended: options, errors, progress, Ctrl-C."""

import datetime
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import taillab
from taillab import _commands, _program, _screen

# the longest wait for a condition, on a machine that is busy
PATIENCE_S = 30
# CPU time that only the simulation itself takes: it has results by then
WORKED_S = 0.5
# a simulation that nobody waits for
ENDLESS = 10**12


class Seen(_screen.Lines):
    """A screen that keeps what it is shown."""

    draws = True

    def __init__(self):
        self.remarks, self.steps, self.closed = [], [], False

    def remark(self, line):
        self.remarks.append(line)

    def progress(self, step):
        self.steps.append(step)

    def close(self):
        self.closed = True


@pytest.fixture
def seen(monkeypatch):
    screen = Seen()
    monkeypatch.setattr(_program, "choose", lambda progress: screen)
    return screen


def test_options_are_those_of_the_command_line():
    words = _commands._option
    assert words("client_cpus", "2-3") == ["--client-cpus=2-3"]
    assert words("size", [64, "1K"]) == ["--size=64,1K"]
    assert words("sweep", ["workers=1,2", "utilization=0.5,0.8"]) == ["--sweep=workers=1,2", "--sweep=utilization=0.5,0.8"]
    assert words("assert", ["p99<=1ms"]) == ["--assert=p99<=1ms"]
    assert words("rate", 20_000.0) == ["--rate=20000"] and words("utilization", 0.5) == ["--utilization=0.5"]
    assert words("duration", datetime.timedelta(seconds=1.5)) == ["--duration=1500000us"]
    assert words("fix", True) == ["--fix"] and words("fix", False) == words("fix", None) == words("plot", []) == []
    with pytest.raises(TypeError, match="output= or progress="):
        words("json", True)


def test_an_error_has_the_words_and_the_code_of_the_program(tmp_path):
    with pytest.raises(taillab.UsageError, match="lifo-or-so") as error:
        taillab.sim(discipline="lifo-or-so", output=tmp_path / "new")
    assert error.value.exit_code == 2 and error.value.result is None
    assert "sim" in error.value.command and "\n" not in error.value.line and "taillab:" not in error.value.line
    assert not (tmp_path / "new").exists()
    with pytest.raises(taillab.ProgramError, match="cannot read .*no-recording") as error:
        taillab.explain(tmp_path / "no-recording")
    assert error.value.exit_code == 1 and type(error.value) is taillab.ProgramError


def test_options_of_run_and_trace_are_read_by_the_program():
    with pytest.raises(taillab.UsageError, match="no-such-server"):
        taillab.run("no-such-server", duration="1s")
    with pytest.raises(taillab.UsageError, match="0s|above 0"):
        taillab.trace(1, duration="0s", service_time="0s")


def test_a_connection_for_each_request_is_asked_of_the_program(monkeypatch):
    """What the program is started with, for the parameters that `connect` has beside the other options."""
    words = []

    def start(given, progress):
        words.extend(given)
        raise taillab.UsageError("not started", 2, given, None)

    monkeypatch.setattr(_program, "start", start)
    for call in (lambda: taillab.run("nginx", connect="each"), lambda: taillab.load_test("http://h/", rate=1, connect="each")):
        with pytest.raises(taillab.UsageError):
            call()
        assert words.count("--connect=each") == 1
        words.clear()


def test_a_limit_that_is_missed_is_an_error_with_the_result(recording):
    with pytest.raises(taillab.LimitMissedError, match="p99<=1ns is not met: sojourn .* ms") as error:
        taillab.explain(recording, limits="p99<=1ns")
    assert error.value.exit_code == 3
    assert error.value.result.summary.assertions[0].outcome == "fail"
    assert len(error.value.result.requests) > 0


def test_what_is_not_kept_is_gone_with_its_result():
    made = taillab.sim(requests=10_000, progress=False)
    directory = made.directory
    assert (directory / "sim.json").is_file()
    del made
    assert not directory.exists()


def test_progress_is_what_the_program_draws(seen, tmp_path):
    taillab.rtt(proto="unix", mode="blocking", count=2_000, runs=1, timeout="20s", output=tmp_path)
    assert {step.name for step in seen.steps} == {"round trips"}
    assert all(0 <= step.done <= 1 for step in seen.steps) and seen.closed


def test_remarks_bars_and_errors_are_told_apart(seen):
    speech = _program._Speech(seen)
    bar = "\rload             [==>      ]  25 %   sent → answered\r\n1,000/s → 1,000/s"
    for piece in ("taillab: a rem", "ark\r\n", bar, "\x1b[1A\r\x1b[2K" + bar.replace("25", "50")):
        speech.hear(piece.encode())
    speech.hear("\r\x1b[2Ktaillab: error: it fell over: stand up\r\n".encode())
    speech.hear(b"")
    assert seen.remarks == ["taillab: a remark"]
    assert [(step.name, step.done, step.rest) for step in seen.steps] == [
        ("load", 0.25, "sent → answered"),
        ("load", 0.5, "sent → answered"),
    ]
    assert speech.error() == "it fell over: stand up"


def test_what_goes_on_where_a_bar_has_filled_its_line_is_read(seen):
    speech = _program._Speech(seen)
    full = f"\r{'calibrating            [========]  100 %  2s, 0s left':<120}"
    speech.hear(full.encode() + b"warming up             [>       ]   3 %  0s, 4s left")
    speech.hear(b"\r" + full.encode() + "taillab: a remark\r\n".encode())
    speech.hear(full.encode() + b"taillab: error: no luck\r\n")
    assert [str(step) for step in seen.steps] == ["warming up 3 %  0s, 4s left"]
    assert seen.remarks == ["taillab: a remark"] and speech.error() == "no luck"


def test_a_character_in_two_pieces_is_one(seen):
    speech = _program._Speech(seen)
    for byte in "taillab: 5 µs\n".encode():
        speech.hear(bytes([byte]))
    assert seen.remarks == ["taillab: 5 µs"]


def test_a_program_that_crashes_is_reported(seen, tmp_path, monkeypatch):
    program = tmp_path / "taillab"
    program.write_text("#!/bin/sh\necho \"thread 'main' panicked at src/x.rs:1:\" >&2\necho 'index 7' >&2\nexit 101\n")
    program.chmod(0o755)
    monkeypatch.setenv(_program.VARIABLE, str(program))
    with pytest.raises(taillab.ProgramError, match="panicked at src/x.rs:1: index 7; please report") as error:
        taillab.sim(output=tmp_path)
    assert error.value.exit_code == 101
    program.write_text("#!/bin/sh\nkill -KILL $$\n")
    with pytest.raises(taillab.ProgramError, match="exit code -9"):
        taillab.sim(output=tmp_path)


def test_a_process_that_it_leaves_behind_does_not_hold_us_up(seen, tmp_path, monkeypatch):
    program = tmp_path / "taillab"
    program.write_text(f"#!/bin/sh\nsleep {10 * PATIENCE_S} &\necho $! > {tmp_path}/left\necho '{{}}'\n")
    program.chmod(0o755)
    monkeypatch.setenv(_program.VARIABLE, str(program))
    with pytest.raises(taillab.ProgramError):
        taillab.sim(output=tmp_path)
    left = int((tmp_path / "left").read_text())
    os.kill(left, signal.SIGKILL)  # it still ran


def test_without_the_program_it_is_said_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv(_program.VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(taillab.MissingProgramError, match="nowhere, which is no program"):
        taillab.sim()
    monkeypatch.delenv(_program.VARIABLE)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(_program.sysconfig, "get_path", lambda *_: str(tmp_path))
    with pytest.raises(taillab.MissingProgramError, match="install the package"):
        taillab.sim()


def test_the_module_is_the_program():
    ran = subprocess.run([sys.executable, "-m", "taillab", "--version"], capture_output=True, text=True)
    assert re.fullmatch(r"taillab \d+\.\d+\.\d+\n", ran.stdout) and ran.returncode == 0


def test_ctrl_c_ends_the_program_and_what_it_found_is_kept(seen, tmp_path):
    interrupter = threading.Thread(target=interrupt_once_it_works)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt) as stopped:
        taillab.sim(requests=ENDLESS, output=tmp_path / "kept")
    interrupter.join()
    assert not children(os.getpid())
    assert taillab.load(tmp_path / "kept").summary.partial
    assert str(tmp_path / "kept") in stopped.value.__notes__[0]


def test_whoever_else_interrupts_it_gets_the_result_with_the_error(seen):
    interrupter = threading.Thread(target=interrupt_once_it_works, args=("the program",))
    interrupter.start()
    with pytest.raises(taillab.InterruptedRunError) as stopped:
        taillab.sim(requests=ENDLESS)
    interrupter.join()
    assert stopped.value.exit_code == 130 and stopped.value.result.summary.partial


def test_ctrl_c_while_the_program_is_started_leaves_nothing_behind(seen, monkeypatch):
    popen = subprocess.Popen

    def interrupted(*words, **options):
        program = popen(*words, **options)
        os.kill(os.getpid(), signal.SIGINT)
        return program

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        taillab.sim(requests=ENDLESS)
    assert not children(os.getpid())


def test_ctrl_c_on_a_terminal_reaches_both_and_ends_both(tmp_path):
    code = f"import taillab; taillab.sim(requests={ENDLESS}, output={str(tmp_path / 'kept')!r})"
    # a new group, as a shell makes one
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stderr=subprocess.PIPE, text=True) as script:
        program = working_child(script.pid)
        os.killpg(script.pid, signal.SIGINT)
        said = script.stderr.read()
    assert script.returncode == -signal.SIGINT and "KeyboardInterrupt" in said and "what was measured" in said
    assert not Path(f"/proc/{program}").exists() and taillab.load(tmp_path / "kept").summary.partial


def interrupt_once_it_works(whom="us"):
    program = working_child(os.getpid())
    os.kill(os.getpid() if whom == "us" else program, signal.SIGINT)


def working_child(parent):
    """The program that `parent` has started, once it handles Ctrl-C and has something to show."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        for child in children(parent):
            handles = int(status(child).get("SigCgt", "0"), 16) >> (signal.SIGINT - 1) & 1
            if handles and cpu_s(child) >= WORKED_S:
                return child
        time.sleep(0.02)
    raise TimeoutError(f"process {parent} started no program that handles Ctrl-C and works")


def cpu_s(process):
    """How long a process has had a CPU; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    # utime and stime of proc_pid_stat(5)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children(parent):
    """The running programs that `parent` has started."""
    numbers = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    states = {number: status(number) for number in numbers}
    ours = {number: state for number, state in states.items() if state.get("PPid") == str(parent)}
    return [number for number, state in ours.items() if state["Name"] == "taillab" and state["State"][0] != "Z"]


def status(process):
    """What the kernel says of a process; nothing if it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return {}
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)
