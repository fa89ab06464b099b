"""MariaDB with mixed queries: a row by its key, and now and then a scan of a table."""

from bench import ENDS_WITHIN_S, LAST, SOURCES, Server, Watched, accept, free_port, traced
from checks import Check, as_the_client_saw_it, named_first, near, within
from processes import run

CONNECTIONS, RATE, SCAN_EVERY = 4, 200, 50
# a query that takes longer than this is a scan
SCAN_S = 0.002


def begin(bench):
    port, data = free_port(), bench.folder / "data"
    install = ("--no-defaults", "--auth-root-authentication-method=normal", "--user=root", "--skip-test-db")
    run(["mariadb-install-db", *install, f"--datadir={data}"], bench.folder, 120)
    places = (f"--datadir={data}", f"--socket={bench.folder}/mariadb.sock", "--bind-address=127.0.0.1", f"--port={port}")
    log = ("--slow-query-log", f"--slow-query-log-file={bench.folder}/slow.log", f"--long-query-time={SCAN_S}")
    # without grants it asks for no password, and listens only where it is told to
    bench.serve("mariadb", port, "mariadbd", "--no-defaults", "--user=root", *places, *log, "--skip-grant-tables",
                "--skip-networking=0", "--skip-name-resolve")
    client = ("python3", SOURCES / "queries.py", port)
    # its table, outside of the measurement
    prepared = bench.start("prepared", *client, "prepare", cpu=LAST)
    accept(prepared, prepared.wait(ENDS_WITHIN_S), (0,))
    return Watched(port, (), (*client, CONNECTIONS, RATE, SCAN_EVERY, bench.seconds))


def checks(seen):
    scans = seen.client["scans"]
    yield named_first(seen.result, ("slow_service",), lambda who: True)
    slow = seen.result["explanation"].get("slow_requests") or {"requests": 0, "mean_own_ns": None}
    # one may be matched to none, or not seen to work
    yield within("the scans are counted", slow["requests"], 0.95 * scans - 1, scans)
    by_log = by_its_own_log(seen.folder / "slow.log")
    yield near("a scan takes as long as the server's own log says", slow["mean_own_ns"], by_log, 0.2)
    own = (seen.result["ideal"] or {}).get("own_work") or {}
    yield Check("the ideal is that of each request's own work", bool(own.get("is_base")),
                f"coefficient of variation {own.get('cv')}")
    # the client has no stamps of the kernel, so it also counts how long it waits for its own CPU
    yield as_the_client_saw_it(seen.result, seen.client, 0.4)


def by_its_own_log(path):
    """The mean time of a scan in nanoseconds, by MariaDB's own clock; queries of its preparation are not scans."""
    times, taken = [], None
    for line in path.read_text().splitlines():
        if line.startswith("# Query_time:"):
            taken = float(line.split()[2])
        elif line.startswith("SELECT SUM("):
            times.append(taken)
    return 1e9 * sum(times) / max(1, len(times))


PROGRAMS = ("mariadbd", "mariadb-install-db")
SERVERS = (Server("mariadb", f"one query in {SCAN_EVERY} scans a table", PROGRAMS, traced(begin, checks)),)
