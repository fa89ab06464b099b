#!/usr/bin/env python3
"""Compares our load generator with its peers, in interleaved rounds, on this machine.

Servers run on CPU 0 and generators on CPU 1, all over loopback: the same conditions for all.
Each figure is the median of the rounds, with the smallest and the largest in brackets. Needs root
(packet stamps), two CPUs, the peers of scripts/peers.sh and a release build with examples.

  scripts/bench-peers.py [--rounds 5] [--json FILE] [peak] [cost] [wire] [lateness]
"""
import argparse, contextlib, json, os, re, resource, shutil, signal, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
TAILLAB = os.path.join(TARGET, "release", "taillab")
WATCH = os.path.join(TARGET, "release", "examples", "wire_watch")
PEERS = os.environ.get("TAILLAB_PEERS", os.path.join(ROOT, "target", "peers"))
MUTILATE = os.path.join(PEERS, "mutilate", "mutilate")
WRK2 = os.path.join(PEERS, "wrk2", "wrk")
SERVER_CPU, CLIENT_CPU = "0", "1"
MEMCACHED, NGINX, ECHO, SOCKPERF = 21211, 21280, 21277, 21299


@contextlib.contextmanager
def server(*command, cwd=None):
    """A server on its own CPU, ended by its process id when the block ends."""
    def start():
        return subprocess.Popen(["taskset", "-c", SERVER_CPU, *command], cwd=cwd,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    process = start()
    try:
        time.sleep(0.5)
        if process.poll() is not None:
            # connections of the round before may still hold the port for a moment
            time.sleep(2)
            process = start()
            time.sleep(0.5)
        if process.poll() is not None:
            sys.exit(f"error: {command[0]} ended at once: is it installed, and its port free?")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def client(*command, ok=(0,)):
    """The output of a generator on its CPU, and the CPU seconds that it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    pinned = ["taskset", "-c", CLIENT_CPU, *command]
    done = subprocess.run(pinned, capture_output=True, text=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in ok:
        sys.exit(f"error: {' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, cpu_s


def taillab_load(*arguments):
    # 4: the run is invalid; its figures are printed all the same
    out, _ = client(TAILLAB, "load", "--json", "-q", "--floor", "off", "--client-cpus", CLIENT_CPU, *arguments, ok=(0, 4))
    return json.loads(out)


def number(pattern, text):
    found = re.search(pattern, text)
    if not found:
        sys.exit(f"error: no {pattern!r} in:\n{text[-2000:]}")
    return float(found.group(1))


def memcached():
    return server("memcached", "-u", "nobody", "-t", "1", "-l", "127.0.0.1", "-p", str(MEMCACHED),
                  "-U", str(MEMCACHED), "-c", "4096")


@contextlib.contextmanager
def nginx():
    folder = tempfile.mkdtemp(prefix="taillab-bench-")
    os.chmod(folder, 0o755)
    with open(os.path.join(folder, "index.html"), "w") as page:
        page.write("x" * 600)
    # nginx's workers have a user of their own
    os.chmod(page.name, 0o644)
    with open(os.path.join(folder, "nginx.conf"), "w") as config:
        config.write(f"""daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  server {{ listen 127.0.0.1:{NGINX}; root {folder}; }} }}""")
    try:
        with server(shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin") or "nginx", "-c",
                    os.path.join(folder, "nginx.conf")):
            yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def echo(architecture):
    return server(TAILLAB, "serve", architecture, "--listen", f"127.0.0.1:{ECHO}", "--busy", "-q")


def sockperf_server(*more):
    return server("sockperf", "server", "-i", "127.0.0.1", "-p", str(SOCKPERF), *more)


# --- peak -------------------------------------------------------------------------------------

def peak_taillab(target):
    # mutilate's defaults
    store = ["--keys", "1000", "--key-bytes", "30", "--value-bytes", "200", "--get-share", "1"]
    found = taillab_load(target, "-R", "max", "-d", "3s", "-c", "16", "--outstanding", "32",
                         *(store if target.startswith("memcached") else []))
    found = found["generator"]["closed_loop"]
    return found["answered_rate_per_s"], found["client"]["cpu_ns_per_request"] / 1000


def peak():
    def taillab_memcached(scheme):
        def one():
            with memcached():
                return peak_taillab(f"memcached+{scheme}://127.0.0.1:{MEMCACHED}")
        return one

    def mutilate(depth):
        def one():
            with memcached():
                out, cpu_s = client(MUTILATE, "-s", f"127.0.0.1:{MEMCACHED}", "-c", "16", "-d", depth,
                                    "-r", "1000", "-K", "30", "-V", "200", "-t", "3")
            rate = number(r"Total QPS = ([0-9.]+)", out)
            return rate, cpu_s * 1e6 / (rate * 3)
        return one

    def taillab_echo(architecture, scheme):
        def one():
            with echo(architecture):
                return peak_taillab(f"echo+{scheme}://127.0.0.1:{ECHO}")
        return one

    def sockperf(*tcp):
        def one():
            with sockperf_server(*tcp):
                out, cpu_s = client("sockperf", "under-load", "-i", "127.0.0.1", "-p", str(SOCKPERF), *tcp,
                                    "-m", "128", "-t", "3", "--mps", "max", "--reply-every", "1")
            answers = number(r"ReceivedMessages=([0-9]+)", out)
            length = number(r"RunTime=([0-9.]+)", out)
            return answers / length, cpu_s * 1e6 / answers
        return one

    return ("answers/s; µs of client CPU per answer", {
        "memcached UDP: taillab": taillab_memcached("udp"),
        "memcached TCP: taillab": taillab_memcached("tcp"),
        "memcached TCP: mutilate": mutilate("1"),
        "memcached TCP: mutilate, 16 deep": mutilate("16"),
        "null responder UDP 128 B: taillab": taillab_echo("udp-shared", "udp"),
        "null responder TCP 128 B: taillab": taillab_echo("epoll-per-worker", "tcp"),
        "sockperf server UDP 128 B: sockperf": sockperf(),
        "sockperf server TCP 128 B: sockperf": sockperf("--tcp"),
    })


# --- cost at one rate -------------------------------------------------------------------------

def cost():
    # mutilate spins on its sockets and cannot say how much of that was idle: see its peak instead
    rate = 20_000

    def taillab(server_of, target, *more):
        def one():
            with server_of():
                found = taillab_load(target, "-R", str(rate), "-d", "4s", "-c", "16", *more)
            return (found["load"]["client"]["cpu_ns_per_request"] / 1000,)
        return one

    def wrk2():
        with nginx():
            out, cpu_s = client(WRK2, "-t", "1", "-c", "16", "-R", str(rate), "-d", "4s",
                                f"http://127.0.0.1:{NGINX}/index.html")
        return (cpu_s * 1e6 / number(r"(\d+) requests in", out),)

    return (f"µs of client CPU per request at {rate}/s, idle spinning left out", {
        "null responder UDP: taillab": taillab(lambda: echo("udp-shared"), f"echo+udp://127.0.0.1:{ECHO}"),
        "memcached UDP: taillab": taillab(memcached, f"memcached+udp://127.0.0.1:{MEMCACHED}"),
        "memcached UDP: taillab --keep-awake": taillab(memcached, f"memcached+udp://127.0.0.1:{MEMCACHED}", "--keep-awake"),
        "memcached TCP: taillab": taillab(memcached, f"memcached+tcp://127.0.0.1:{MEMCACHED}"),
        "nginx: taillab": taillab(nginx, f"http://127.0.0.1:{NGINX}/index.html"),
        "nginx: wrk2": wrk2,
    })


# --- arrivals on the wire ---------------------------------------------------------------------

def watched(port, rate, *command, udp=False, together=False, seconds=4.0, ok=(0, 4)):
    """What a generator really sends, as the kernel stamps it; the watcher runs on the server's CPU."""
    generator = subprocess.Popen(["taskset", "-c", CLIENT_CPU, *command], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
    arguments = ["--device", "lo", "--port", str(port), "--seconds", str(seconds), "--udp" if udp else "--tcp"]
    if rate:
        arguments += ["--rate", str(rate)]
    if together:
        arguments.append("--together")
    try:
        time.sleep(1.5)
        seen = subprocess.run(["taskset", "-c", SERVER_CPU, WATCH, *arguments], capture_output=True, text=True)
        if generator.wait(60) not in ok:
            sys.exit(f"error: {' '.join(command)} ended with {generator.returncode}")
    finally:
        generator.kill()
    if seen.returncode:
        sys.exit(f"error: {seen.stderr}")
    return json.loads(seen.stdout)


def load_command(target, rate, *more):
    return [TAILLAB, "load", target, "-q", "--floor", "off", "--client-cpus", CLIENT_CPU, "-R", str(rate), "-d", "7s", "-c", "16", *more]


def figures(seen):
    idc = {at["window_ns"]: at["value"] for at in seen["idc"]}
    return seen["ks_d"], seen["ks_critical"], seen["cv"], idc[1_000_000], idc[10_000_000]


def wire():
    rows = {}
    for rate in (5_000, 20_000):
        def taillab_udp(*more, rate=rate):
            with memcached():
                command = load_command(f"memcached+udp://127.0.0.1:{MEMCACHED}", rate, *more)
                return figures(watched(MEMCACHED, rate, *command, udp=True))

        def taillab_tcp(rate=rate):
            with memcached():
                return figures(watched(MEMCACHED, rate, *load_command(f"memcached+tcp://127.0.0.1:{MEMCACHED}", rate)))

        def mutilate(rate=rate):
            with memcached():
                return figures(watched(MEMCACHED, rate, MUTILATE, "-s", f"127.0.0.1:{MEMCACHED}", "-c", "16",
                                       "-q", str(rate), "-i", "exponential:1", "-t", "7"))

        def wrk2(rate=rate):
            with nginx():
                return figures(watched(NGINX, rate, WRK2, "-t", "1", "-c", "16", "-R", str(rate), "-d", "7s",
                                       f"http://127.0.0.1:{NGINX}/index.html"))

        rows[f"{rate}/s: taillab UDP"] = taillab_udp
        rows[f"{rate}/s: taillab UDP --keep-awake"] = lambda one=taillab_udp: one("--keep-awake")
        rows[f"{rate}/s: taillab TCP"] = taillab_tcp
        rows[f"{rate}/s: mutilate"] = mutilate
        rows[f"{rate}/s: wrk2"] = wrk2
    return "KS D; critical D; CV; index of dispersion at 1 ms; at 10 ms", rows


# --- lateness ---------------------------------------------------------------------------------

def lateness():
    rate = 5_000

    def of(seen):
        late = seen["lateness_ns"]
        if late is None:
            return (float("nan"),) * 3
        return late["p50"] / 1000, late["p99"] / 1000, late["p999"] / 1000

    def taillab():
        with nginx():
            return of(watched(NGINX, None, *load_command(f"http://127.0.0.1:{NGINX}/index.html", rate,
                                                         "--arrivals", "deterministic"), together=True))

    def wrk2():
        with nginx():
            return of(watched(NGINX, None, WRK2, "-t", "1", "-c", "16", "-R", str(rate), "-d", "7s",
                              f"http://127.0.0.1:{NGINX}/index.html"))

    # wrk2 has a constant schedule for each connection; ours is one for all connections
    return f"µs behind the constant schedule at {rate}/s, on the wire: p50; p99; p99.9", {
        "nginx: taillab": taillab, "nginx: wrk2": wrk2}


SECTIONS = {"peak": peak, "cost": cost, "wire": wire, "lateness": lateness}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE", help="also write every single figure there")
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join(SECTIONS))
    arguments = parser.parse_args()
    if unknown := set(arguments.sections) - SECTIONS.keys():
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    if arguments.rounds < 1:
        parser.error("--rounds is at least 1")
    # like Ctrl-C: what was started ends, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    everything = {}
    for name in arguments.sections or SECTIONS:
        unit, rows = SECTIONS[name]()
        results = {row: [] for row in rows}
        for _ in range(arguments.rounds):
            # interleaved: a machine whose speed drifts slows all alike
            for row, run in rows.items():
                results[row].append(run())
        print(f"{name}: {unit}")
        for row, runs in results.items():
            columns = [f"{statistics.median(c):.4g} [{min(c):.4g}, {max(c):.4g}]" for c in zip(*runs)]
            print(f"  {row:38} {'; '.join(columns)}", flush=True)
        everything[name] = results
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump(everything, out, indent=1)


if __name__ == "__main__":
    main()
