#!/usr/bin/env python3
"""Runs every taillab command line that the docs, --help-all and results print, on this machine.

usage (as root): scripts/printed.py [PROGRAM] [PART]   PROGRAM: target/release/taillab; PART: only lines that contain it

Starts memcached, nginx and echo servers on loopback, puts a light load on those that a line watches, and runs each line
in a temporary directory: with short durations instead of long ones, with --dry-run where it would change a setting, and
on a terminal where it needs one. Each line has LIMIT_S seconds. A line is wrong if it ends with a usage error (2), with a
failure (1), or too late. What this machine lacks (5) is listed with its reason. Ends with a count of each, and with exit
code 1 if any line is wrong.
"""
import contextlib
import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TAILLAB = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "target/release/taillab"))
PART = sys.argv[2] if len(sys.argv) > 2 else ""
LIMIT_S = 90
DOCS = ("README.md", "docs/tune.md", "docs/fix.md", "docs/verdict.md", "docs/packages.md")
COMMANDS = ("run", "trace", "explain", "compare", "load", "agent", "serve", "sim", "rtt", "noise", "budget", "tune", "tune plan", "tune apply",
            "doctor", "reproduce", "reproduce list", "reproduce tales", "reproduce deconstructing", "reproduce time-gone")
# shorter durations, and other places, that are enough to see that a line works
SHORTER = [
    (r"-d \d+m?s", "-d 1s"), (r"\b\d+s@(\d+),\d+s@(\d+)", r"1s@\1,1s@\2"), (r"-n \d+M", "-n 1M"), (r"--pairs \d+", "--pairs 5"),
    (r"deconstructing all\b(?=.*-o figures)", "deconstructing fig4"), (r"reproduce all --quick.*", "reproduce list"),
    (r"tales fig5", "tales headline"),
    # twelve runs
    (r" --again \d+", ""),
    (r"//db\b", "//127.0.0.1"), (r"\[::1\]:8080|localhost/", "127.0.0.1:8080/"), (r"10k\.\.100k:10k", "1k..3k:1k"),
    (r"--size 64\.\.512K", "--size 64..256"), (r"192\.0\.2\.7:11111", "127.0.0.1:7778"), (r"192\.0\.2\.7:7777", "127.0.0.1:7777"),
    # CPUs that a small machine does not have, and the user's own directory
    (r"-C 0-3", "-C 0"), (r"--cpus 0-3", "--cpus 0-1"), (r"--cpus 2,3", "--cpus 0,1"), (r"/run/user/1000/", "./"),
]
FIX = "--fix-budget 5s "
EXTRA = {"load": "-d 1s --warmup 0 --floor off", "rtt": "--count 2000 --runs 2", "noise": "-d 1s",
         "budget": "-d 500ms --draws 10000", "reproduce time-gone": "-d 500ms", "run": "-d 2s --warmup 500ms --pairs 6 --block 100ms",
         "serve": "--listen 0", "reproduce deconstructing": "--count 500 --runs 2", "reproduce": "", "trace": "-d 2s"}
# these run until they are stopped
ENDLESS = ("serve", "--live", "--hold")
ECHO = ("import socket\ns = socket.socket(type=socket.SOCK_DGRAM); s.bind(('127.0.0.1', 7778))\n"
        "while True: s.sendto(*s.recvfrom(65536))")


def lines_of(text, prompted):
    """The command lines in a text, without `sudo`, comments and what comes after a pipe. A result has
    `$ ` before each of them (prompted)."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        line = line.strip()
        if prompted and not line.startswith("$ "):
            continue
        line = line.removeprefix("$ ").removeprefix("sudo ")
        if line.startswith("taillab ") and "COMMAND" not in line:
            yield re.split(r"\s{2,}|\s+#| && | \| ", line)[0]


def said_by(words, place):
    return subprocess.run([TAILLAB, *words], capture_output=True, text=True, cwd=place, timeout=LIMIT_S).stdout


class Place:
    """A directory with the files that the lines name, and the servers that they watch."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix="printed-")
        os.chmod(self.path, 0o755)
        self.servers, self.groups, self.pids = [], [], {}

    def begin(self):
        with open(self.file("nginx.conf"), "w") as out:
            out.write(f"daemon off; pid {self.path}/nginx.pid; events {{}} http {{ access_log off; server {{ listen 127.0.0.1:8080; "
                      "location / { return 200 ok; } } }")
        with open(self.file("arrivals.csv"), "w") as out:
            out.write("time_us\n" + "".join(f"{70 * n + n % 7 * 9}\n" for n in range(20000)))
        with open(self.file("racks.toml"), "w") as out:
            out.write('name = "two racks"\nhops = 3\nfibre_m = 40\n')
        self.pids["memcached"] = self.start("memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", "11211", "-U", "11211", "-t", "1")
        self.pids["nginx"] = self.start("nginx", "-c", self.file("nginx.conf"), "-p", self.path, "-e", "stderr")
        self.start(TAILLAB, "serve", "epoll-shared", "--listen", "127.0.0.1:7777", "-q")
        self.start(sys.executable, "-c", ECHO)
        time.sleep(1)
        for server in self.servers:
            if server.poll() is not None:
                sys.exit(f"error: {server.args[0]} ended at once: is its port taken?")

    def file(self, name):
        return os.path.join(self.path, name)

    def start(self, *words):
        quiet = subprocess.DEVNULL
        self.servers.append(subprocess.Popen(words, cwd=self.path, stdout=quiet, stderr=quiet))
        return self.servers[-1].pid

    def loads(self):
        """A light load on the watched servers: only while somebody watches."""
        begun = len(self.servers)
        for target in ("memcached+udp://127.0.0.1", "http://127.0.0.1:8080/"):
            self.start(TAILLAB, "load", target, "-R", "500", "-d", "3600s", "--floor", "off", "-q", "--wait", "hybrid")
        return begun

    def end(self, begun):
        for server in reversed(self.servers[begun:]):
            server.terminate()
            server.wait()
        del self.servers[begun:]

    def group(self, name):
        """A control group with nginx in it; its directory, or None where none can be made."""
        for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpu"):
            group = os.path.join(root, name)
            try:
                if not os.path.exists(os.path.join(root, "cgroup.procs")):
                    continue
                os.makedirs(group)
                self.groups.append(group)
                children = open(f"/proc/{self.pids['nginx']}/task/{self.pids['nginx']}/children").read().split()
                for pid in [str(self.pids["nginx"]), *children]:
                    with open(os.path.join(group, "cgroup.procs"), "w") as out:
                        out.write(pid)
                return group
            except OSError:
                continue
        return None

    def leave(self):
        self.end(0)
        for group in self.groups:
            with contextlib.suppress(OSError):
                os.rmdir(group)
        shutil.rmtree(self.path, ignore_errors=True)


def plan(place):
    """Writes the plan of an agent, which begins in a moment; returns its file."""
    version = said_by(["--version"], place.path).split()[-1]
    start = {"clock": "realtime", "at_ns": time.time_ns() + 3 * 10**9}
    wanted = {"taillab": version, "client": 0, "clients": 1, "target": "echo+tcp://127.0.0.1:7777", "rate_per_s": 500, "seed": 1}
    wanted |= {"warmup_ns": 0, "duration_ns": 10**9, "start": start, "options": ["--floor=off"]}
    with open(place.file("plan.json"), "w") as out:
        json.dump(wanted, out)
    return out.name


def as_run(line, place):
    """The words of a line, as it is run here."""
    text = re.sub(r"\$\(pidof (\w+)\)", lambda found: str(place.pids[found.group(1)]), line)
    text = re.sub(r"taillab-\w+-\*/|\brun/(?=capture)", "taillab-memcached-1/", text)
    text = re.sub(r"-p 4711\b", f"-p {place.pids['nginx']}", text)
    for old, new in SHORTER:
        text = re.sub(old, new, text)
    fresh = tempfile.mkdtemp(dir=place.path)
    text = re.sub(r"(-o|--output|--export) (\S+)", lambda found: f"{found.group(1)} {fresh}/{os.path.basename(found.group(2).rstrip('/'))}", text)
    group = re.search(r"--cgroup (\S+)", text)
    if group and (made := place.group(os.path.basename(group.group(1)))):
        text = text.replace(group.group(1), made)
    words = shlex.split(text)
    extra = EXTRA.get(" ".join(words[1:3]), EXTRA.get(words[1], ""))
    extra += " " + (FIX.replace("5s", "40s") if "--factorial" in words else FIX) if "--fix" in words else ""
    extra += " --yes" if "--hold" in words or words[1] == "trace" and "--fix" in words else ""
    extra += " --dry-run" if words[1:3] == ["tune", "apply"] and not {"--dry-run", "--hold"} & set(words) else ""
    # the memcached here listens on both
    extra += " --udp" if words[1] == "trace" and str(place.pids["memcached"]) in words and "--tcp" not in words else ""
    # an option that the line has already stays as it is
    options = [option.split() for option in re.findall(r"--?\w[\w-]*(?: [^-\s]\S*)?", extra)]
    at = words.index("--") if "--" in words else len(words)
    words[at:at] = [word for option in options if option[0] not in words for word in option]
    if words[1] == "compare":
        words[2:4] = [place.file("taillab-memcached-1")] * 2
    return words


def run(words, place):
    """Runs one line: its exit code (None: too late), and the last thing it said."""
    begun = len(place.servers)
    if words[1] == "trace":
        place.loads()
    if any("redis://" in word for word in words):
        place.start("redis-server", "--port", "6379", "--save", "")
        time.sleep(0.5)
    if "redis-server" in words:
        place.start("sh", "-c", f"sleep 1; exec {TAILLAB} load redis://127.0.0.1 -R 500 -d 60s --floor off -q")
    endless = any(word in words for word in ENDLESS)
    terminal = pty.openpty() if "--live" in words else None
    given = open(plan(place)) if words[1] == "agent" else subprocess.DEVNULL
    out = terminal[1] if terminal else subprocess.PIPE
    process = subprocess.Popen([TAILLAB, *words[1:]], cwd=place.path, stdin=terminal[1] if terminal else given,
                               stdout=out, stderr=subprocess.PIPE, text=True)
    try:
        said = process.communicate(timeout=3 if endless else LIMIT_S)[1]
        code = process.returncode
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            said = process.communicate(timeout=LIMIT_S)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            said = process.communicate()[1]
        code = process.returncode if endless else None
    except SystemExit:  # SIGTERM: the line puts back what it has set
        process.send_signal(signal.SIGINT)
        process.communicate()
        raise
    if terminal:
        os.close(terminal[0])
        os.close(terminal[1])
    place.end(begun)
    return code, (said.strip().splitlines() or [""])[-1]


def printed(place):
    """(where, line) of each printed line, once: docs, help, and what results advise."""
    texts = {name: open(os.path.join(ROOT, name)).read() for name in DOCS}
    texts.update((f"{command} --help-all", said_by([*command.split(), "--help-all"], place.path)) for command in COMMANDS)
    load = place.loads()
    recorded = said_by(["trace", "--port", "11211", "--udp", "-d", "2s", "-o", "taillab-memcached-1"], place.path)
    texts["a trace"] = recorded + said_by(["explain", "taillab-memcached-1", "-v"], place.path)
    place.end(load)
    subprocess.run(["cp", "taillab-memcached-1/capture.tlc", "."], cwd=place.path, check=True)
    texts["a run"] = said_by(["run", "memcached", "-d", "2s", "-o", "result-of-a-run"], place.path)
    seen = set()
    for where, text in texts.items():
        for line in lines_of(text, prompted=where.startswith("a ")):
            if line not in seen and PART in line:
                seen.add(line)
                yield where, line


def main():
    if os.geteuid() != 0:
        sys.exit("error: run it as root: it traces servers")
    if not os.access(TAILLAB, os.X_OK):
        sys.exit(f"error: there is no program {TAILLAB}: run `make build`, or name another")
    # like Ctrl-C: what was started ends, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # root's rights, also under sudo: taillab writes into root's folder
    os.environ.pop("SUDO_UID", None)
    place = Place()
    right, lacking, wrong = 0, [], []
    try:
        place.begin()
        began = time.monotonic()
        lines = list(printed(place))
        print(f"{len(lines)} lines, at most {LIMIT_S} s each", flush=True)
        for where, line in lines:
            since = time.monotonic()
            code, said = run(as_run(line, place), place)
            # 3 and 4 are about the result, 130 is our own Ctrl-C
            if code in (0, 3, 4, 130):
                right, word = right + 1, "ok"
            elif code == 5:
                word = "not here"
                lacking.append((line, said))
            else:
                word = "WRONG"
                wrong.append((line, said if code is not None else f"not done after {LIMIT_S} s"))
            print(f"  {word:8}  {line}  ({where}; exit code {code}, {time.monotonic() - since:.1f} s)", flush=True)
        for title, listed in (("cannot run on this machine", lacking), ("wrong", wrong)):
            for line, said in listed:
                print(f"{title}: {line}\n    {said}")
        print(f"{right} ran, {len(wrong)} failed, {len(lacking)} cannot run here; {time.monotonic() - began:.0f} s")
    finally:
        place.leave()
    sys.exit(1 if wrong else 0)


main()
