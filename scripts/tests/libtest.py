"""Runs a test binary and reads its results, which libtest writes as JSON."""

import json
import os
import selectors
import signal
import subprocess
import time

from cargo import ROOT, environment
from results import SKIPPED, Result

# No test takes a tenth of it, also in an hour in which this machine is half as fast.
HANGS_AFTER_S = 600


# The format is unstable, so libtest of a stable toolchain wants to be told; the test itself is built already.
UNSTABLE = "RUSTC_BOOTSTRAP=1"
FORMAT = ("-Z", "unstable-options", "--format", "json", "--report-time", "--show-output")


def names(path, *arguments):
    """The tests in the binary at `path`, without those that only `make rounds` runs; with `--ignored` only these."""
    ignored = set() if "--ignored" in arguments else set(names(path, "--ignored"))
    command = [path, "--list", "--format", "terse", *arguments]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    every = [line.removesuffix(": test") for line in listed.stdout.splitlines() if line.endswith(": test")]
    return [name for name in every if name not in ignored]


def run(binary, tests, threads, on_result, ignored=False):
    """Runs `tests` of a binary as the user, or as root where they are live; `on_result` gets each Result."""
    options = [*FORMAT, f"--test-threads={threads}", *(["--ignored"] if ignored else []), "--exact", *tests]
    env = environment()
    # sudo keeps neither
    seed = f"PROPTEST_RNG_SEED={env['PROPTEST_RNG_SEED']}"
    command = ["env", UNSTABLE, seed, str(binary.path), *options]
    if binary.is_live:
        reason = f"runs the live tests of {binary.crate}"
        command = [str(ROOT / "scripts" / "as-root.sh"), reason, *command]
    reader = Reader(binary.suite, on_result)
    child = subprocess.Popen(command, cwd=binary.folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, start_new_session=True)
    try:
        hung = _follow(child, reader)
    finally:
        _end(child)
    _report_missing(reader, tests, hung, on_result)


def _follow(child, reader):
    """Reads until the end; whether it had to be given up."""
    selector = selectors.DefaultSelector()
    selector.register(child.stdout, selectors.EVENT_READ)
    os.set_blocking(child.stdout.fileno(), False)
    rest, heard = b"", time.monotonic()
    while True:
        if not selector.select(timeout=5):
            if time.monotonic() - heard > HANGS_AFTER_S:
                return True
            continue
        piece = child.stdout.read(1 << 16)
        if not piece:
            reader.line(rest)
            return False
        heard = time.monotonic()
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            reader.line(line)


def _end(child):
    """Ends what is left of it, also what it started and did not end."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # ended; or root's, which ends with its sudo
    child.stdout.close()
    child.wait()


def _report_missing(reader, tests, hung, on_result):
    """A binary that ended early took with it the test that ran and all that would have followed."""
    for test in tests:
        if test in reader.seen:
            continue
        if test in reader.running:
            why = f"gave no sign of life for {HANGS_AFTER_S} s" if hung else "ended its process"
            on_result(Result(reader.suite, test, "failed", 0.0, f"{why}\n{reader.said()}"))
        else:
            on_result(Result(reader.suite, test, "not run", 0.0, "the binary ended before it"))


class Reader:
    """Turns lines of a test binary into results; all else that is written is kept for the message."""

    def __init__(self, suite, on_result):
        self.suite, self.on_result = suite, on_result
        self.seen, self.running, self.other = set(), set(), []

    def line(self, raw):
        line = raw.decode(errors="replace")
        # what a child process wrote without a line break may stand before it
        begin = line.find('{ "type": ')
        try:
            event = json.loads(line[begin:]) if begin >= 0 else None
        except json.JSONDecodeError:
            event = None
        if event is None or begin > 0:
            self.other.append(line if event is None else line[:begin])
        if event and event["type"] == "test":
            self._test(event)

    def _test(self, event):
        name, kind = event["name"], event["event"]
        if kind == "started":
            self.running.add(name)
        if kind not in ("ok", "failed"):
            return  # `ignored`, or `timeout`: only a remark of libtest that it takes long
        self.running.discard(name)
        self.seen.add(name)
        said = event.get("stdout", "") + event.get("message", "")
        outcome = {"ok": "passed", "failed": "failed"}[kind]
        # captured by libtest, or written past it, and then with the test's name
        own = [line for line in self.other if name.rpartition("::")[2] in line]
        skipped = [match for match in map(SKIPPED.search, [*said.splitlines(), *own]) if match]
        if kind == "failed":
            said += self.said()
        if kind == "ok" and skipped:
            outcome, said = "skipped", skipped[0][1]
        self.on_result(Result(self.suite, name, outcome, event.get("exec_time", 0.0), said))

    def said(self):
        return "\n".join(self.other[-40:])
