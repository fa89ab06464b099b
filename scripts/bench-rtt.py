#!/usr/bin/env python3
"""Compares `taillab rtt` with sockperf's ping-pong and with a shared-memory ping-pong in C, in interleaved rounds.

Servers run on CPU 0, clients on CPU 1, over loopback. Both clients talk to sockperf's server, which taillab reaches with
--target, so that only the clients differ. Each figure is the median of the rounds, with the smallest and the largest in
brackets. Needs two CPUs, sockperf, gcc, and a build of taillab (TAILLAB names it).

`connect` shows why the clients differ over UDP. It compares two clients in C: one connects its socket, as taillab does;
the other names the server in each send, as sockperf does.

  scripts/bench-rtt.py [--rounds 7] [--seconds 3] [sockperf] [shm] [connect]
"""
import argparse, contextlib, json, os, re, signal, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
TAILLAB = os.environ.get("TAILLAB", os.path.join(TARGET, "release", "taillab"))
PORT = 21311
SIZE = 1024

# the clock and the sorting that both programs use
TIMES = r"""
static uint64_t now(void) {
    struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}
static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}
"""

PING_PONG = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SIZE = 1024, COUNT = 200000 };
struct box { _Alignas(128) _Atomic uint64_t written; _Alignas(128) char bytes[SIZE]; };
static struct box request, answer;

static void pin(int cpu) {
    cpu_set_t set; CPU_ZERO(&set); CPU_SET(cpu, &set);
    if (pthread_setaffinity_np(pthread_self(), sizeof set, &set)) exit(1);
}
static void *echo(void *unused) {
    pin(0);
    for (uint64_t n = 1; n <= COUNT; n++) {
        while (atomic_load_explicit(&request.written, memory_order_acquire) < n) __builtin_ia32_pause();
        memcpy(answer.bytes, request.bytes, SIZE);
        atomic_store_explicit(&answer.written, n, memory_order_release);
    }
    return unused;
}
""" + TIMES + r"""int main(void) {
    static uint64_t took[COUNT];
    char message[SIZE], got[SIZE];
    memset(message, 7, SIZE);
    pthread_t thread;
    if (pthread_create(&thread, 0, echo, 0)) return 1;
    pin(1);
    for (uint64_t n = 1; n <= COUNT; n++) {
        uint64_t sent = now();
        memcpy(request.bytes, message, SIZE);
        atomic_store_explicit(&request.written, n, memory_order_release);
        while (atomic_load_explicit(&answer.written, memory_order_acquire) < n) __builtin_ia32_pause();
        took[n - 1] = now() - sent;
        memcpy(got, answer.bytes, SIZE);
        if (memcmp(got, message, SIZE)) return 1;
    }
    pthread_join(thread, 0);
    qsort(took, COUNT, sizeof took[0], by_size);
    printf("%llu\n", (unsigned long long)took[COUNT / 2]);
    return 0;
}
"""


# Spins or blocks, with the header of sockperf's messages: number, flags (from a client, wants an answer), length.
UDP = r"""
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { SIZE = 1024, WARM_UP = 1000 };

""" + TIMES + r"""int main(int argc, char **argv) {
    if (argc != 5) return 2;
    int connects = !strcmp(argv[1], "connect"), blocks = !strcmp(argv[4], "blocking");
    uint64_t count = strtoull(argv[3], 0, 10);
    cpu_set_t set; CPU_ZERO(&set); CPU_SET(1, &set);
    if (sched_setaffinity(0, sizeof set, &set)) return 1;
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[2])) };
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    int s = socket(AF_INET, SOCK_DGRAM | (blocks ? 0 : SOCK_NONBLOCK), 0);
    if (s < 0 || (connects && connect(s, (void *)&to, sizeof to))) return 1;
    uint64_t *took = malloc(count * sizeof *took);
    unsigned char message[SIZE] = { 0 }, got[SIZE + 1];
    memset(took, 1, count * sizeof *took);
    message[9] = 3;
    message[12] = SIZE >> 8;
    for (uint64_t n = 0; n < WARM_UP + count; n++) {
        for (int i = 0; i < 8; i++) message[i] = (n + 1) >> 8 * (7 - i);
        struct sockaddr_in from; socklen_t length = sizeof from;
        uint64_t sent = now();
        ssize_t done = connects ? send(s, message, SIZE, 0) : sendto(s, message, SIZE, 0, (void *)&to, sizeof to);
        if (done != SIZE) return 1;
        int looks = 100000000;
        do {
            done = connects ? recv(s, got, sizeof got, 0) : recvfrom(s, got, sizeof got, 0, (void *)&from, &length);
        } while (done < 0 && errno == EAGAIN && looks-- > 0);
        uint64_t length_ns = now() - sent;
        if (done != SIZE || memcmp(got, message, 8)) return 1;
        if (n >= WARM_UP) took[n - WARM_UP] = length_ns;
    }
    qsort(took, count, sizeof took[0], by_size);
    printf("%llu\n", (unsigned long long)took[count / 2]);
    return 0;
}
"""


@contextlib.contextmanager
def sockperf_server(tcp, nonblocking):
    command = ["taskset", "-c", "0", "sockperf", "server", "-i", "127.0.0.1", "-p", str(PORT)]
    command += ["--tcp"] * tcp + ["--nonblocked"] * nonblocking
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        if process.poll() is not None:
            sys.exit(f"error: {' '.join(command)} ended at once: is it installed, and port {PORT} free?")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}{done.stdout[-2000:]}")
    return done.stdout


def sockperf(tcp, nonblocking, seconds):
    """Median and p99.9 in µs."""
    command = ["taskset", "-c", "1", "sockperf", "ping-pong", "-i", "127.0.0.1", "-p", str(PORT), "-t", str(seconds),
               "-m", str(SIZE), "--full-rtt"] + ["--tcp"] * tcp + ["--nonblocked"] * nonblocking
    text = re.sub(r"\x1b\[[0-9;]*m", "", run(*command))
    at = lambda q: float(re.search(rf"percentile {re.escape(q)} *= *([\d.]+)", text).group(1))
    return at("50.000"), at("99.900")


def ours(arguments, count):
    """Median and p99.9 in µs, where the sample supports it."""
    row = json.loads(run(TAILLAB, "rtt", "--json", "-q", "--client-cpus", "1", "--size", str(SIZE), "--runs", "1", "--count", str(count),
                         *arguments))["rows"][0]
    at = {q["q"]: q["value"] for q in row["rtt"]["quantiles"]}
    return tuple(None if at[q] is None else at[q] / 1e3 for q in (0.5, 0.999))


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def compare_sockperf(rounds, seconds):
    for tcp in (True, False):
        for nonblocking in (False, True):
            name = f"{'tcp' if tcp else 'udp'}, {'non-blocking' if nonblocking else 'blocking'}"
            peer, mine = [], []
            with sockperf_server(tcp, nonblocking):
                way = ["--proto", "tcp" if tcp else "udp", "--mode", "nonblocking" if nonblocking else "blocking"]
                for _ in range(rounds):
                    peer.append(sockperf(tcp, nonblocking, seconds))
                    count = max(1000, int(seconds * 1e6 / peer[-1][0] / 2))
                    mine.append(ours(way + ["--target", f"127.0.0.1:{PORT}"], count))
            for at, q in ((0, "p50"), (1, "p99.9")):
                pairs = [(a[at], b[at]) for a, b in zip(mine, peer) if a[at] is not None]
                if not pairs:
                    print(f"{name}, {q}: too few round trips")
                    continue
                print(f"{name}, {q} in µs: taillab {spread([a for a, _ in pairs])}, sockperf "
                      f"{spread([b for _, b in pairs])}; ratio {spread([a / b for a, b in pairs])}", flush=True)


@contextlib.contextmanager
def in_c(text):
    """Compiles this source; returns the program."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "peer.c"), os.path.join(folder, "peer")
        with open(source, "w") as file:
            file.write(text)
        run("gcc", "-O2", "-pthread", "-o", program, source)
        yield program


def compare_connect(rounds, seconds):
    with in_c(UDP) as program:
        for mode in ("nonblocking", "blocking"):
            with sockperf_server(False, mode == "nonblocking"):
                compare_clients(program, mode, rounds, seconds)


def compare_clients(program, mode, rounds, seconds):
    each = {how: [] for how in ("sockperf", "taillab", "C, connected", "C, named in each send")}
    for _ in range(rounds):
        each["sockperf"].append(sockperf(False, mode == "nonblocking", seconds)[0])
        count = max(1000, int(seconds * 1e6 / each["sockperf"][-1]))
        each["taillab"].append(ours(["--proto", "udp", "--mode", mode, "--target", f"127.0.0.1:{PORT}"], count)[0])
        for how, word in (("C, connected", "connect"), ("C, named in each send", "sendto")):
            each[how].append(int(run(program, word, str(PORT), str(count), mode)) / 1e3)
    for how, values in each.items():
        print(f"udp, {mode}, p50 in µs: {how} {spread(values)}; ratio to sockperf "
              f"{spread([a / b for a, b in zip(values, each['sockperf'])])}, to C, connected "
              f"{spread([a / b for a, b in zip(values, each['C, connected'])])}", flush=True)


def compare_shm(rounds):
    with in_c(PING_PONG) as program:
        peer, mine = [], []
        for _ in range(rounds):
            peer.append(int(run(program)) / 1e3)
            mine.append(ours(["--proto", "shm", "--mode", "nonblocking", "--server-cpus", "0"], 200_000)[0])
        print(f"shared memory, p50 in µs: taillab {spread(mine)}, C {spread(peer)}; ratio "
              f"{spread([a / b for a, b in zip(mine, peer)])}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="{sockperf,shm,connect}")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=3)
    arguments = parser.parse_args()
    wanted = set(arguments.what) or {"sockperf", "shm"}
    if not wanted <= {"sockperf", "shm", "connect"}:
        parser.error("choose sockperf, shm, connect, or nothing for the first two")
    if min(arguments.rounds, arguments.seconds) < 1:
        parser.error("--rounds and --seconds are at least 1")
    # like Ctrl-C: what was started ends, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if "shm" in wanted:
        compare_shm(arguments.rounds)
    if "connect" in wanted:
        compare_connect(arguments.rounds, arguments.seconds)
    if "sockperf" in wanted:
        compare_sockperf(arguments.rounds, arguments.seconds)


main()
