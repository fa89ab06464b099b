"""Varnish and HAProxy before a backend that is slow for one request in a hundred."""

import statistics

from bench import Server, Watched, free_port, traced
from checks import Check, as_the_client_saw_it, every_request, named_first, near, whole

SLOW_MS, EVERY = 30, 100
RATE = 500

# nothing is kept, so each request goes to the backend
VARNISH = """vcl 4.1;
backend default {{ .host = "127.0.0.1"; .port = "{backend}"; }}
sub vcl_recv {{ return (pass); }}
"""
HAPROXY = """global
  nbthread 1
defaults
  mode http
  timeout client 10s
  timeout server 10s
  timeout connect 1s
  http-reuse always
frontend all
  bind 127.0.0.1:{port}
  default_backend slow
backend slow
  server slow 127.0.0.1:{backend}
"""


def varnish(bench):
    backend, port = bench.slow_backend(SLOW_MS, EVERY), free_port()
    conf = bench.folder / "default.vcl"
    conf.write_text(VARNISH.format(backend=backend))
    # no sandbox for its child and no port for its administrator: both are for machines that others use
    bench.serve("varnish", port, "varnishd", "-F", "-j", "none", "-n", bench.folder / "varnish", "-f", conf,
                "-a", f"127.0.0.1:{port}", "-s", "malloc,64m", "-S", "none", "-T", "none")
    return watched(bench, backend, port)


def haproxy(bench):
    backend, port = bench.slow_backend(SLOW_MS, EVERY), free_port()
    conf = bench.folder / "haproxy.cfg"
    conf.write_text(HAPROXY.format(port=port, backend=backend))
    bench.serve("haproxy", port, "haproxy", "-db", "-f", conf)
    return watched(bench, backend, port)


def watched(bench, backend, port):
    bench.facts["backend"] = backend
    return Watched(port, ("--protocol", "http"), bench.load(f"http://127.0.0.1:{port}/", RATE, 16))


def checks(seen):
    backend = f"127.0.0.1:{seen.facts['backend']} "

    def is_backend(who):
        # where another thread of the proxy asks it, it is the end of a chain
        names = [*(who or {}).get("servers", ()), (who or {}).get("end", "")]
        return any(f"{name} ".startswith(backend) for name in names)

    yield named_first(seen.result, ("upstream",), is_backend)
    what = "the slow requests waited for the backend as long as its own clock says"
    yield near(what, median(waits_of_slow(seen.result)), median(of_backend(seen)), 0.1)
    longest = (whole(seen.result, "upstream") or {}).get("longest_event_ns") or 0
    yield Check("a wait for the backend is one event", longest >= SLOW_MS * 1e6,
                f"the longest takes {longest / 1e6:.1f} ms, the backend slept for {SLOW_MS} ms")
    yield every_request(seen.result, seen.client)
    yield as_the_client_saw_it(seen.result, seen.client)


def of_backend(seen):
    """How long the backend took for each of its slow requests while it was recorded, by its own clock."""
    log = [tuple(map(int, line.split())) for line in (seen.folder / "backend.log").read_text().splitlines()]
    return [answered - read for read, answered in log
            if seen.begin_ns <= read <= seen.end_ns and answered - read >= SLOW_MS * 1e6]


def waits_of_slow(result):
    """How long each of the slowest requests waited for an upstream, of those that took as long as a slow one does."""
    slow = [each for each in result["explanation"]["slowest"] if each["sojourn_ns"] >= SLOW_MS * 1e6]
    return [sum(stretch["lasted_ns"] for stretch in each["stretches"] if stretch["cause"] == "upstream") for each in slow]


def median(lengths):
    return statistics.median(lengths) if lengths else None


TROUBLE = f"its backend takes {SLOW_MS} ms for one request in {EVERY}"
SERVERS = (
    Server("varnish", TROUBLE, ("varnishd",), traced(varnish, checks)),
    Server("haproxy", TROUBLE, ("haproxy",), traced(haproxy, checks)),
)
