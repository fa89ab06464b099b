"""Programs that are started for a while, and that none of outlives us."""

import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
ENDS_WITHIN_S = 10
STARTS_WITHIN_S = 60


class Failed(Exception):
    """A program ended, or did not do in time what it should; the text says which, and shows what it wrote."""


def adopt_orphans():
    """What the programs start themselves becomes ours when they end, so that `end_all` finds it, whatever its
    session."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def children():
    """The processes that are ours, by their ids, without those that only have to be waited for."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == os.getpid() and state != "Z":
            found.append(int(stat.parent.name))
    return found


def end_all():
    """Ends every process that was started here, and what these started."""
    until = time.monotonic() + ENDS_WITHIN_S
    asked = set()
    while left := children():
        late = time.monotonic() > until
        for pid in left:
            if late or pid not in asked:
                asked.add(pid)
                try:
                    os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
                except ProcessLookupError:
                    pass
        reap()
        time.sleep(0.05)
    reap()


def reap():
    """Forgets all that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass


class Program:
    """A program that runs, with what it writes in two files of the folder."""

    def __init__(self, name, words, folder, env=None):
        self.name, self.out, self.err = name, folder / f"{name}.out", folder / f"{name}.err"
        # ends with us, also if we are killed
        words = ["setpriv", "--pdeathsig", "KILL", *map(str, words)]
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                            env={**os.environ, **(env or {})}, start_new_session=True)

    @property
    def pid(self):
        return self.process.pid

    def said(self):
        """The end of what it wrote."""
        lines = [line for path in (self.out, self.err) for line in path.read_text(errors="replace").splitlines()]
        return "\n".join(lines[-15:])

    def wait(self, within_s):
        """Its exit code, when it has ended by itself."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} has not ended after {within_s} s:\n{self.said()}") from None

    def interrupt(self):
        """Sends it SIGINT, and gives its exit code when it has ended."""
        self.process.send_signal(signal.SIGINT)
        return self.wait(ENDS_WITHIN_S)

    def wait_for(self, what, condition):
        """Waits until `condition` gives something, and gives that."""
        until = time.monotonic() + STARTS_WITHIN_S
        while not (found := condition()):
            if self.process.poll() is not None:
                raise Failed(f"{self.name} ended with {self.process.returncode} before {what}:\n{self.said()}")
            if time.monotonic() > until:
                raise Failed(f"{what} did not happen within {STARTS_WITHIN_S} s; {self.name} wrote:\n{self.said()}")
            time.sleep(0.02)
        return found


def listens(port):
    """Whether somebody listens on this port of the loopback interface, as the kernel's own table says. A connection
    would be one more client."""
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            _, local, _, state = line.split()[:4]
            if local.endswith(wanted) and state == "0A":
                return True
    return False


def run(words, folder, within_s=STARTS_WITHIN_S):
    """Runs a program to its end."""
    try:
        ended = subprocess.run(list(map(str, words)), cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                               timeout=within_s)
    except subprocess.TimeoutExpired:
        raise Failed(f"{words[0]} has not ended after {within_s} s") from None
    if ended.returncode != 0:
        raise Failed(f"{words[0]} ended with {ended.returncode}:\n{ended.stdout[-1000:]}{ended.stderr[-1000:]}")
    return ended.stdout
