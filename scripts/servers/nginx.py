"""nginx with four workers that share one CPU."""

from pathlib import Path

from bench import FIRST, Server, Watched, free_port, traced
from checks import Check, as_the_client_saw_it, every_request, named_first, whole

WORKERS, RATE = 4, 3000
# compression makes a request long enough for the workers to meet
CONF = """daemon off;
worker_processes {workers};
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off;
  gzip on; gzip_min_length 1; gzip_comp_level 9; gzip_types text/plain;
  types {{ text/plain txt; }}
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port} reuseport; root {folder}/www; }}
}}
"""


def begin(bench):
    port, www, conf = free_port(), bench.folder / "www", bench.folder / "nginx.conf"
    www.mkdir()
    (www / "index.txt").write_text("".join(f"line {n} of something that compresses\n" for n in range(300)))
    conf.write_text("user root;\n" + CONF.format(workers=WORKERS, folder=bench.folder, port=port))
    nginx = bench.serve("nginx", port, "nginx", "-p", bench.folder, "-c", conf)

    load = bench.load(f"http://127.0.0.1:{port}/index.txt", RATE, 64, "-H", "Accept-Encoding: gzip")
    return Watched(port, ("--protocol", "http"), load, read=lambda: waited_for_cpu(nginx.pid))


def waited_for_cpu(master):
    """How long the workers have waited for a CPU, in nanoseconds, by the kernel's own account."""
    workers = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    return sum(int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) for pid in workers)


def checks(seen):
    shared = {"kind": "shared_cpu", "cpu": FIRST, "threads": WORKERS}
    yield named_first(seen.result, ("own_threads",), lambda who: who == shared)
    kernel = seen.after - seen.before
    own = whole(seen.result, "own_threads") or {"events": 0, "mean_event_ns": 0}
    told = own["events"] * own["mean_event_ns"]
    # the kernel's is of all waits for a CPU, also those for another program
    yield Check("they waited for each other no longer than the kernel says", 0 < told <= 1.2 * kernel,
                f"trace {told / 1e9:.2f} s, the kernel {kernel / 1e9:.2f} s")
    yield every_request(seen.result, seen.client)
    yield as_the_client_saw_it(seen.result, seen.client)


SERVERS = (Server("nginx", f"{WORKERS} workers on one CPU", ("nginx",), traced(begin, checks)),)
