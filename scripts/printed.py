#!/usr/bin/env python3
"""Runs every taillab command line that the README, docs/tune.md and --help-all print, on this machine.

usage (as root): scripts/printed.py [PROGRAM]     PROGRAM: target/release/taillab

Starts memcached, Redis, nginx and the built-in echo server on loopback and gives them a light load, then runs each
printed line, with short lengths instead of long ones and with --dry-run where something would be changed. A line is wrong
if it ends with a usage error (2) or a failure (1). Prints a table; exit code 1 if any line is wrong.
"""
import os
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
COMMANDS = ["run", "trace", "explain", "compare", "load", "serve", "sim", "rtt", "noise", "budget", "tune", "doctor", "bench causes",
            "reproduce", "reproduce tales", "reproduce deconstructing", "reproduce time-gone"]
# what is longer, larger or elsewhere than it need be to see that the line works
SHORTER = [
    (r"-d \d+m?s", "-d 1s"), (r"\b\d+s@(\d+),\d+s@(\d+)", r"1s@\1,1s@\2"), (r"-n \d+M", "-n 1M"), (r"--pairs \d+", "--pairs 5"), (r"\ball\b(?=.*-o figures)", "fig4"),
    (r"--requests 10G", "--requests 10M"), (r"//db\b", "//127.0.0.1"), (r"\[::1\]:8080|localhost/", "127.0.0.1:8080/"),
    (r"10k\.\.100k:10k", "1k..3k:1k"), (r"--size 64\.\.512K", "--size 64..256"), (r"192\.0\.2\.7:11111", "127.0.0.1:7777"),
    (r"preset:\w+", lambda found: found.group(0) + " -d 1s"),
    # CPUs that a small machine does not have, a user's own directory, a host elsewhere
    (r"-C 0-3 --client-cpus 4", "-C 0 --client-cpus 1"), (r"--cpus 0-3", "--cpus 0-1"), (r"--cpus 2,3", "--cpus 0,1"),
    (r"/run/user/1000/", "./"), (r"127\.0\.0\.1:7777 --json", "127.0.0.1:7778 --json"),
]
# servers run until they are ended, and some lines need what this machine may not have
ENDLESS = ("serve", "--live", "--hold")
EXTRA = {"load": "-d 1s --warmup 0 --floor off", "rtt": "--count 2000 --runs 2", "bench": "-d 1s --pairs 5", "noise": "-d 1s", "budget": "-d 500ms --draws 10000", "reproduce time-gone": "-d 500ms",
         "run": "-d 2s --warmup 500ms --pairs 6 --block 100ms", "serve": "--listen 0", "reproduce deconstructing": "--count 500 --runs 2", "reproduce": ""}


def printed():
    """(where, words) of each printed line, once."""
    texts = {name: open(os.path.join(ROOT, name)).read() for name in ("README.md", "docs/tune.md")}
    for command in COMMANDS:
        texts[f"{command} --help-all"] = subprocess.run([TAILLAB, *command.split(), "--help-all"], capture_output=True,
                                                        text=True, check=True).stdout
    seen = set()
    for where, text in texts.items():
        for line in re.sub(r"\\\n\s*", "", text).splitlines():
            line = line.strip().removeprefix("$ ").removeprefix("sudo ")
            if not line.startswith("taillab ") or "COMMAND" in line:
                continue
            line = re.split(r"\s{2,}|\s+#| && | \| ", line)[0]
            if line not in seen:
                seen.add(line)
                yield where, line


def end(processes):
    for process in processes:
        process.terminate()
        process.wait()


def main():
    if os.geteuid() != 0:
        sys.exit("run it as root: it traces servers")
    place = tempfile.mkdtemp(prefix="printed-")
    servers = []

    def start(*words):
        servers.append(subprocess.Popen(words, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        return servers[-1].pid

    wrong = 0
    try:
        nginx = os.path.join(place, "nginx.conf")
        with open(nginx, "w") as out:
            out.write(f"daemon off; pid {place}/nginx.pid; events {{}} http {{ access_log off; server {{ listen 127.0.0.1:8080; "
                      "location / { return 200 ok; } } }")
        os.chmod(place, 0o755)
        pids = {"memcached": start("memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", "11211", "-U", "11211", "-t", "1"),
                "nginx": start("nginx", "-c", nginx, "-p", place, "-e", "stderr")}
        start(TAILLAB, "serve", "epoll-shared", "--listen", "127.0.0.1:7777", "-q")
        start(sys.executable, "-c", "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('127.0.0.1', 7778))\n"
              "while True: s.sendto(*s.recvfrom(65536))")
        time.sleep(1)

        def load(*targets):
            """A light load on each, which spins: only while somebody watches a server."""
            return [subprocess.Popen([TAILLAB, "load", target, "-R", "500", "-d", "3600s", "--floor", "off", "-q", "--wait", "hybrid"],
                                     cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for target in targets]

        watched = load("memcached+udp://127.0.0.1", "http://127.0.0.1:8080/")
        recording = subprocess.run([TAILLAB, "trace", "--port", "11211", "--udp", "-d", "2s", "-q", "-o", "taillab-memcached-1"],
                                   cwd=place)
        print(f"a recording for `explain`: exit code {recording.returncode}")
        end(watched)
        os.makedirs(os.path.join(place, "here"))
        shutil.copy(os.path.join(place, "taillab-memcached-1/capture.tlc"), place)
        for where, line in printed():
            text = re.sub(r"\$\(pidof (\w+)\)", lambda found: str(pids[found.group(1)]), line)
            text = re.sub(r"taillab-\w+-\*/", "taillab-memcached-1/", text)
            text = re.sub(r"-p 4711\b", f"-p {pids['nginx']}", text)
            for old, new in SHORTER:
                text = re.sub(old, new, text)
            text = re.sub(r"(-o|--output) (\S+)", lambda found: f"-o {tempfile.mkdtemp(dir=place)}/{os.path.basename(found.group(2))}", text)
            words = [word if not word.endswith(".csv") else word for word in shlex.split(text)]
            extra = EXTRA.get(" ".join(words[1:3]), EXTRA.get(words[1], "")).split()
            # an option that the line has already stays as it is
            while extra:
                name, value = extra[:2]
                extra = extra[2:]
                if name not in words:
                    at = words.index("--") if "--" in words else len(words)
                    words[at:at] = [name, value]
            if words[1:3] == ["tune", "apply"] and "--dry-run" not in words and "--hold" not in words:
                words.append("--dry-run")
            if "--hold" in words:
                words.append("--yes")
            if words[1] == "compare":
                words[2:4] = [os.path.join(place, "taillab-memcached-1")] * 2
            missing = [word for word in words if word.endswith((".csv", ".toml", ".slice", ".service")) and not os.path.exists(os.path.join(place, word))]
            if missing:
                print(f"  left out  {line}  (needs a file of the reader's: {missing[0]})")
                continue
            endless = any(word in words for word in ENDLESS)
            if "--live" in words:
                print(f"  left out  {line}  (needs a terminal)")
                continue
            others = load("memcached+udp://127.0.0.1", "http://127.0.0.1:8080/") if words[1] == "trace" else []
            if "redis://" in line:
                others.append(subprocess.Popen(["redis-server", "--port", "6379", "--save", ""], cwd=place, stdout=subprocess.DEVNULL))
                time.sleep(0.5)
            if "-- redis-server" in line:
                others.append(subprocess.Popen(["sh", "-c", "sleep 1; exec \"$0\" load redis://127.0.0.1 -R 500 -d 60s --floor off -q",
                                                TAILLAB], cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            began = time.monotonic()
            process = subprocess.Popen([TAILLAB, *words[1:]], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                out, err = process.communicate(timeout=2 if endless else 240)
                code = process.returncode
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
                out, err = process.communicate()
                code = process.returncode if endless else "too long"
            end(others)
            # 3 and 4 speak of the result, 5 of this machine, 130 of our own Ctrl-C
            fine = code in (0, 3, 4, 5, 130)
            wrong += not fine
            said = "" if fine and code != 5 else "  " + (err.strip().splitlines() or [""])[-1]
            print(f"  {'ok' if fine else 'WRONG':8}  {line}  ({where}; exit code {code}, {time.monotonic() - began:.1f} s){said}")
    finally:
        for server in reversed(servers):
            server.terminate()
            server.wait()
        shutil.rmtree(place, ignore_errors=True)
    sys.exit(1 if wrong else 0)


main()
