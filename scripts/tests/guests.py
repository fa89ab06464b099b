"""Live tests in QEMU, on kernels and hardware that this machine does not have. scripts/vm.sh boots a guest, and the
tests that were built here run in it.

A guest under software emulation is as unsteady as its host. So there is no limit for all of its work: it may go on as
long as its tests end. It hangs when none has ended for thrice the time that all of them take at the reference speed,
divided by the speed that the guest had at its boot, and another two minutes, for which a test may wait before it fails
by itself. Each test has as much time, so a guest always ends. A guest that hangs or does not boot gets a second try
with the tests that have not ended, where those that hung are the last. A test that fails is never repeated.
"""
import contextlib
import os
import re
import shlex
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import libtest
import results
from cargo import ROOT
from results import Result

VM, CACHE = ROOT / "scripts" / "vm.sh", ROOT / ".cache" / "vm"

# turns of the loop in vm.sh in a second, where the guest is alone on a quiet machine with two CPUs
REFERENCE_SPEED = 70_000
# a boot takes 6 s there; a download of a kernel may come before it
DOWNLOAD_S, BOOT_S, POWER_OFF_S = 1800, 240, 60
LOOK_EVERY_S = 1
# the longest that a test waits for anything, at any speed
TEST_WAITS_S = 120
MARGIN = 3


@dataclass(frozen=True)
class Guest:
    name: str
    suite: str  # of Debian, whose kernel it has
    crate: str  # whose live tests it runs
    filters: tuple[str, ...]  # of the tests' names
    seconds: int  # from its start to its end, at the reference speed
    setup: str = "true"  # what its shell does first
    env: tuple[str, ...] = ()  # options of vm.sh


@dataclass
class GuestResult:
    guest: Guest
    kernel: str = "?"  # its release
    seconds: float = 0
    speed: float = 0  # at its boot, as a part of the reference speed
    outcome: str = ""  # "passed", "failed", "hung" or "did not boot"
    results: list[Result] = field(default_factory=list)
    why: list[str] = field(default_factory=list)  # of each try that did not end all of its tests


def of_probe(suite, **modules):
    """A guest for each module of the probe's tests. There is none for storage, since a guest has no disk."""
    return [Guest(f"{suite}-{module}", suite, "probe", (f"{module}::",), seconds) for module, seconds in modules.items()]


def of_instrument(name, *guests):
    """Guests for the tests of an instrument; none where its folder was taken out."""
    return guests if (ROOT / "crates" / "instruments" / name).is_dir() else ()


NEW, SERVER = "trixie-backports", ("VM_SERVER=1",)
GUESTS = (
    # 6.1 lacks two of the tracepoints; 6.12, like 6.1, allows fentry and fexit
    *of_probe("bookworm", stamps=60, streams=65, network=60, disturbances=60, agreement=65),
    # with VLANs and fq, which not every machine has
    *of_probe("bookworm-backports", stamps=27, streams=60, network=40, disturbances=29, agreement=75, ways=60),
    # RDMA between two namespaces (soft RoCE)
    *of_instrument("rtt", Guest("rdma", NEW, "taillab", ("rdma::",), 30, "modprobe -a rdma_rxe ib_uverbs", SERVER)),
    # `tune` on a server's hardware, in a guest with control groups of version 2
    Guest("hardware", NEW, "taillab", ("hardware::",), 25, "modprobe -a virtio_net acpi_cpufreq && "
          "echo +cpuset +memory >/sys/fs/cgroup/cgroup.subtree_control", SERVER),
    # without VM_SERVER: with a server's idle states the kernel does not trust QEMU's time stamp counter
    *of_instrument("noise", Guest("noise", NEW, "taillab", ("noise::a_loop_in_a_guest", "noise::a_quota"), 40)),
    # what `tune` changes of a network card's work
    Guest("cards", NEW, "host", ("receiving::",), 40, "modprobe -a virtio_net e1000e", SERVER),
    Guest("systemd", NEW, "taillab", ("systemd::",), 15, env=("VM_SYSTEMD=1",)),
    # `noise` compared with the kernel's own meter (osnoise), which only this kernel has
    *of_instrument("noise", Guest("osnoise", NEW, "taillab", ("noise::the_kernels_own_meter",), 20, env=("VM_FLAVOUR=rt-amd64",))),
)
QUICKEST = min(GUESTS, key=lambda guest: guest.seconds)


def names_of(guest, binary):
    """The tests of a guest. They are listed here, since a guest that does not boot cannot say them."""
    names = []
    for wanted in guest.filters:
        found = libtest.names(binary, wanted)
        if not found:
            raise SystemExit(f"error: guest {guest.name}: no live test of {guest.crate} is called {wanted}")
        names += found
    return list(dict.fromkeys(names))


def command(guest, binary, runs):
    """What the guest's shell does: it runs the tests once for each list of arguments. What they say goes to a file, since
    the console may mangle it."""
    runs = "; ".join(shlex.join([binary, *libtest.FORMAT, "--test-threads=1", *arguments]) for arguments in runs)
    return f"{{ export {libtest.UNSTABLE} TAILLAB_GUEST=1; {guest.setup} && {{ {runs}; }}; }} >/out/said 2>&1"


class Try:
    """A guest that runs, and what it has written."""

    def __init__(self, guest, shell, log):
        self.guest, self.log, self.out = guest, log, CACHE / f"{guest.name}.out"
        self.kernel = self.stopped = self.stage = ""
        self.began = self.since = time.monotonic()
        words = ["setpriv", "--pdeathsig", "KILL", VM, guest.suite, "sh", "-c", shell]
        env = os.environ | dict(option.split("=") for option in guest.env) | {"VM_NAME": guest.name, "VM_TIMEOUT": "0"}
        with open(log, "w") as output:
            # a group of its own, to end all of it
            self.process = subprocess.Popen(words, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=output,
                                            stderr=subprocess.STDOUT, start_new_session=True)

    def has_started(self):
        """Whether vm.sh has started QEMU. From then on the files are this guest's, not those of the one before it."""
        if not self.kernel:
            booting = re.search(r"^booting (\S+) with", self.log.read_text(errors="replace"), re.MULTILINE)
            self.kernel = booting[1] if booting else ""
        return bool(self.kernel)

    def read(self, file):
        with contextlib.suppress(FileNotFoundError):
            if self.has_started():
                return (self.out / file).read_bytes()
        return b""

    def speed(self):
        """At its boot, as a part of the reference speed; 0 before."""
        words = self.read(".loop").split()
        if len(words) < 3:
            return 0
        turns, began, ended = map(float, words)
        return turns / max(ended - began, 0.01) / REFERENCE_SPEED

    def heard(self):
        """The results of its tests so far, and who has read them."""
        found = []
        reader = libtest.Reader(self.guest.name, found.append)
        for line in self.read("said").splitlines():
            reader.line(line)
        return found, reader

    def next_stage(self):
        """What it must do next, and within how many seconds."""
        if not self.has_started():
            return "get its kernel", DOWNLOAD_S
        speed = self.speed()
        if not speed:
            return "boot", BOOT_S
        if self.read(".code"):
            return "switch itself off", POWER_OFF_S
        # a host that is faster now may become slower later
        limit = TEST_WAITS_S + MARGIN * self.guest.seconds / min(speed, 1)
        return f"end test {len(self.heard()[0]) + 1}", limit

    def is_over(self):
        """Whether it has ended. Ends it if it hangs."""
        if self.process.poll() is not None:
            return True
        (stage, limit), now = self.next_stage(), time.monotonic()
        if stage != self.stage:
            self.stage, self.since = stage, now
        if now - self.since < limit:
            return False
        self.stopped = f"it did not {stage} within {limit:.0f} s"
        self.end()
        return True

    def end(self):
        for how in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)

    def why(self):
        """Why it did not end all of its tests."""
        text = self.log.read_bytes() + self.read("said")
        lines = [line for line in text.decode(errors="replace").splitlines() if line.strip()]
        return self.stopped or "; ".join(lines[-3:])

    def keep(self):
        """Keeps what the tests have said where its log is."""
        self.log.with_suffix(".said").write_bytes(self.read("said"))


class Job:
    """A guest, its tests and its tries."""

    def __init__(self, guest, binary, log_dir):
        self.guest, self.binary, self.log_dir = guest, os.path.abspath(binary), Path(log_dir)
        self.names, self.runs = names_of(guest, self.binary), [guest.filters]
        self.found, self.tries = {}, 0
        self.result = GuestResult(guest)

    def start(self):
        self.tries += 1
        log = self.log_dir / f"{self.guest.name}-{self.tries}.log"
        self.now = Try(self.guest, command(self.guest, self.binary, self.runs), log)

    def left(self):
        return [name for name in self.names if name not in self.found]

    def finish(self):
        """Takes what the try has found. Returns whether there must be another one."""
        tried, result = self.now, self.result
        tried.keep()
        found, reader = tried.heard()
        self.found |= {each.test: each for each in found}
        result.seconds += time.monotonic() - tried.began
        result.kernel, result.speed = tried.kernel or result.kernel, tried.speed() or result.speed
        if self.left():
            result.why.append(", ".join([tried.why(), *reader.running]))
        # if the program has ended, the guest is not to blame
        if tried.read(".code"):
            died = f"ended its process\n{reader.said()}"
            self.found |= {name: Result(self.guest.name, name, "failed", 0.0, died) for name in reader.running}
        result.outcome = self.outcome()
        if result.outcome in ("hung", "did not boot") and self.tries == 1:
            rest = [name for name in self.left() if name not in reader.running]
            self.runs = [["--exact", *names] for names in (rest, reader.running) if names]
            return True
        not_run = {name: Result(self.guest.name, name, "not run", 0.0, result.why[-1]) for name in self.left()}
        result.results = [(self.found | not_run)[name] for name in self.names]
        return False

    def outcome(self):
        if self.left() and not self.now.read(".code"):
            return "hung" if self.now.speed() or self.result.outcome == "hung" else "did not boot"
        failed = any(result.outcome == "failed" for result in self.found.values())
        return "failed" if failed or self.left() else "passed"


def run(guests, binaries, log_dir, say, at_once=2):
    """Runs each of the guests; binaries has the live tests of each crate. What they say is kept in log_dir."""
    os.makedirs(log_dir, exist_ok=True)
    # the longest first, so that none is left alone at the end
    waiting = [Job(guest, binaries[guest.crate], log_dir) for guest in sorted(guests, key=lambda guest: -guest.seconds)]
    running, done = [], []
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(waiting.pop(0))
                running[-1].start()
            time.sleep(LOOK_EVERY_S)
            for job in [job for job in running if job.now.is_over()]:
                running.remove(job)
                if job.finish():
                    say(f"{job.guest.name} {job.result.outcome}: {job.result.why[-1]}; once more")
                    waiting.insert(0, job)
                else:
                    say(f"{job.guest.name} {job.result.outcome}, {job.result.seconds:.0f} s")
                    done.append(job.result)
    finally:
        for job in running:
            job.now.end()
    return sorted(done, key=lambda result: guests.index(result.guest))


def table(found):
    """Lines with the guest, kernel, seconds, speed and result of each, and why some tests did not run at once."""
    rows = []
    for each in found:
        kinds = Counter(result.outcome for result in each.results)
        tests = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        rows.append((each.guest.name, each.kernel, f"{each.seconds:.0f} s", f"{each.speed:.2f}", each.outcome, tests))
    lines = results.table(("guest", "kernel", "seconds", "speed", "result", "tests"), rows).splitlines()
    return lines + [f"{each.guest.name}: {why}" for each in found for why in each.why]
