"""A program of this host that a rank starts and waits for, without a wake-up until it has ended."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# from Ctrl-C until it is killed: it writes what it has
_GRACE_S = 10.0
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Ended:
    """How a program ended. The exit code is negative for a signal."""

    exit_code: int
    said: str
    """Its error, or the last line that it said."""
    stdout: bytes
    in_time: bool


def version(program: str) -> str:
    """The version of the program, as `--version` has it."""
    ran = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=False)
    return ran.stdout.strip().removeprefix("taillab ") or "no version"


def run(words: list[str], stdin: bytes, within_s: float) -> Ended:
    """Runs a program to its end. One that takes longer is interrupted, and killed where that does not help; so is one
    of ours when this rank is ended.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as given:
        # files, since a pipe would wake us up
        given.write(stdin)
        given.seek(0)
        child = subprocess.Popen(words, stdin=given, stdout=out, stderr=err, preexec_fn=_interrupted_with_us)
        in_time = False
        try:
            in_time = _ended(child, within_s)
        finally:
            if not in_time:
                _end(child)
        out.seek(0)
        err.seek(0)
        return Ended(child.wait(), _last_line(err.read()), out.read(), in_time)


def run_plan(program: str, plan: dict[str, Any], directory: Path, within_s: float) -> Ended:
    """Runs `taillab agent` with a plan; its result is in the directory."""
    words = [program, "agent", "-", "--quiet", f"--output={directory}"]
    return run(words, json.dumps(plan).encode(), within_s)


def _interrupted_with_us() -> None:
    """Where this rank is killed, its program ends as by Ctrl-C, and keeps what it has measured."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def _ended(child: subprocess.Popen[bytes], within_s: float) -> bool:
    """Sleeps until the child has ended, at most this long."""
    descriptor = os.pidfd_open(child.pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(max(0.0, within_s) * 1e3))
    finally:
        os.close(descriptor)


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.send_signal(signal.SIGINT)
    if not _ended(child, _GRACE_S):
        child.kill()
    child.wait()


def _last_line(text: bytes) -> str:
    lines = [line for line in text.decode(errors="replace").splitlines() if line.strip()]
    errors = [line.removeprefix("taillab: error: ") for line in lines if line.startswith("taillab: error: ")]
    return (errors or lines or [""])[-1]
