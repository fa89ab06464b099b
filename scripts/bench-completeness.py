#!/usr/bin/env python3
"""Records 13 servers under load and says how many requests of each recording the matcher identifies.

The server runs on CPU 0, `taillab load` and the recorder on CPU 1, over loopback. The first 0.3 s of
each recording are left out. Needs root, two CPUs, memcached, nginx, Redis, Go, Python and a release
build with the example `completeness` of taillab-analysis.

  scripts/bench-completeness.py [--rounds 1] [--seconds 3] [--keep DIR] [name …]
"""
import argparse, contextlib, os, shutil, signal, socket, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
BUILD = os.environ.get("TAILLAB_BUILD", os.path.join(TARGET, "release"))
TAILLAB = os.path.join(BUILD, "taillab")
COMPLETENESS = os.path.join(BUILD, "examples", "completeness")
PORT = 21700

GO = """package main
import "net/http"
func main() {
    http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("hello")) })
    http.ListenAndServe("127.0.0.1:%d", nil)
}
"""
PYTHON = """import http.server
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.%d"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")
    def log_message(self, *arguments): pass
class S(http.server.ThreadingHTTPServer):
    request_queue_size = 1024
S(("127.0.0.1", %d), H).serve_forever()
"""
NGINX = """worker_processes 2; daemon off; error_log /dev/null; pid {0}/pid;
events {{ worker_connections 1024; }}
http {{ access_log off; keepalive_requests 10000000;
  client_body_temp_path {0}/a; proxy_temp_path {0}/b; fastcgi_temp_path {0}/c;
  uwsgi_temp_path {0}/d; scgi_temp_path {0}/e;
  server {{ listen 127.0.0.1:{1}; location / {{ return 200 "hello"; }} }} }}
"""


def memcached(threads):
    return lambda folder: ["memcached", "-u", "root", "-l", "127.0.0.1", "-p", str(PORT), "-U", str(PORT),
                           "-t", str(threads)]


def builtin(architecture, *options):
    return lambda folder: [TAILLAB, "serve", architecture, "--listen", f"127.0.0.1:{PORT}", *options]


def written(folder, name, text):
    place = os.path.join(folder, name)
    with open(place, "w") as file:
        file.write(text)
    return place


def nginx(folder):
    return ["nginx", "-c", written(folder, "nginx.conf", NGINX.format(folder, PORT))]


def python(minor):
    return lambda folder: [sys.executable, written(folder, "server.py", PYTHON % (minor, PORT))]


def go(folder):
    source, binary = written(folder, "server.go", GO % PORT), os.path.join(folder, "server")
    subprocess.run([shutil.which("go") or "/usr/local/go/bin/go", "build", "-o", binary, source], check=True)
    return [binary]


# name: server, target of the load, requests per second, and further options of `taillab trace`
SERVERS = {
    "memcached-udp": (memcached(1), "memcached+udp", 20_000),
    "memcached-udp-behind": (memcached(1), "memcached+udp", 120_000),
    "memcached-tcp-4": (memcached(4), "memcached+tcp", 20_000),
    "memcached-tcp-4-by-content": (memcached(4), "memcached+tcp", 20_000, "--protocol", "memcached"),
    "nginx-2": (nginx, "http", 8_000),
    "null-rpc": (builtin("null-rpc"), "echo+tcp", 15_000),
    "epoll-shared-2": (builtin("epoll-shared", "-w", "2"), "echo+tcp", 15_000),
    "epoll-per-worker-2": (builtin("epoll-per-worker", "-w", "2"), "echo+tcp", 15_000),
    "udp-shared-2": (builtin("udp-shared", "-w", "2"), "echo+udp", 15_000),
    "udp-reuseport-2": (builtin("udp-reuseport", "-w", "2"), "echo+udp", 15_000),
    "redis": (lambda folder: ["redis-server", "--port", str(PORT), "--bind", "127.0.0.1", "--save", ""],
              "redis", 15_000),
    "go": (go, "http", 5_000),
    "go-by-content": (go, "http", 5_000, "--protocol", "http"),
    "python-1.0": (python(0), "http", 400),
    "python-1.1": (python(1), "http", 600),
}


@contextlib.contextmanager
def running(cpu, command, **options):
    """A process on its own CPU, ended by its process id when the block ends."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **options}
    process = subprocess.Popen(["taskset", "-c", cpu, *command], **quiet)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def listening():
    for _ in range(100):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORT), 1):
            return
        time.sleep(0.05)
    sys.exit(f"error: nothing listens on port {PORT}: is the server installed?")


def record(name, seconds, file):
    command, scheme, rate, *options = SERVERS[name]
    udp = scheme.endswith("udp")
    with tempfile.TemporaryDirectory(prefix="taillab-bench-") as folder:
        with running("0", command(folder), cwd=folder):
            time.sleep(0.5) if udp and "memcached" not in name else listening()
            path = "/" if scheme == "http" else ""
            load = [TAILLAB, "load", f"{scheme}://127.0.0.1:{PORT}{path}", "-R", str(rate), "-d", f"{seconds + 5}s",
                    "--warmup", "100ms", "--json", "-q", "--floor", "off", "--client-cpus", "1"]
            if "behind" not in name:
                load += ["--wait", "hybrid"]
            with running("1", load):
                time.sleep(1.5)
                out = os.path.join(folder, "trace")
                kind = "--udp" if udp else "--tcp"
                trace = ["taskset", "-c", "1", TAILLAB, "trace", "-q", "--json", "--port", str(PORT), kind,
                         "-d", f"{seconds}s", "-o", out, *options]
                done = subprocess.run(trace, capture_output=True, text=True, timeout=seconds + 60)
                if done.returncode not in (0, 4):
                    sys.exit(f"error: {name}: {done.stderr[-2000:]}")
                shutil.copy(os.path.join(out, "capture.tlc"), file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--keep", help="keep the recordings in this directory")
    parser.add_argument("names", nargs="*", help="some of: " + ", ".join(SERVERS))
    args = parser.parse_args()
    if unknown := set(args.names) - SERVERS.keys():
        parser.error(f"no server {', '.join(sorted(unknown))}; there are {', '.join(SERVERS)}")
    if min(args.rounds, args.seconds) < 1:
        parser.error("--rounds and --seconds are at least 1")
    # like Ctrl-C: what was started ends, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # root's rights, also under sudo: taillab writes into root's folder
    os.environ.pop("SUDO_UID", None)
    folder = args.keep or tempfile.mkdtemp(prefix="taillab-bench-")
    os.makedirs(folder, exist_ok=True)
    try:
        for name in args.names or SERVERS:
            for number in range(args.rounds):
                file = os.path.join(folder, f"{name}-{number}.tlc")
                record(name, args.seconds, file)
                subprocess.run([COMPLETENESS, file], check=True)
    finally:
        if not args.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
