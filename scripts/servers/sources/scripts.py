"""Has Redis run a script that takes long.

scripts.py PORT calibrate MS: writes how many turns of its loop take so many milliseconds.
scripts.py PORT run TURNS SCRIPTS SECONDS: runs it so many times, evenly over this time.
"""

import socket
import sys
import time

LOOP = "local n = 0 for i = 1, tonumber(ARGV[1]) do n = n + i end return n"


class Redis:
    def __init__(self, port):
        self.answers = socket.create_connection(("127.0.0.1", port))
        self.file = self.answers.makefile("rb")

    def ask(self, *words):
        parts = [str(word).encode() for word in words]
        self.answers.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
        line = self.file.readline()
        return self.file.read(int(line[1:]) + 2)[:-2] if line[:1] == b"$" else line[1:].strip()


def calibrated(redis, digest, ms):
    """From the quickest of a few calls."""
    turns, quickest = 1_000_000, None
    for _ in range(5):
        began = time.perf_counter()
        redis.ask("EVALSHA", digest, 0, turns)
        took = time.perf_counter() - began
        quickest = min(took, quickest or took)
    return round(turns * ms / 1e3 / quickest)


def run(redis, digest, turns, scripts, seconds):
    began = time.monotonic()
    for number in range(scripts):
        due = began + (number + 0.5) * seconds / scripts
        time.sleep(max(0, due - time.monotonic()))
        redis.ask("EVALSHA", digest, 0, turns)


port, what, *numbers = sys.argv[1:]
redis = Redis(int(port))
digest = redis.ask("SCRIPT", "LOAD", LOOP).decode()
if what == "calibrate":
    print(calibrated(redis, digest, int(numbers[0])))
else:
    run(redis, digest, *map(int, numbers))
