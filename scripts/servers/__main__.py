"""Real servers with a trouble that is known: `python3 scripts/servers TAILLAB`, as root, which `make servers` calls.

Each server is started on loopback, loaded, and traced. What `taillab trace` says is held against what is known from
outside: the log of a collector, the clock of a backend, the account of the kernel, the latencies of the client. An
attempt is repeated only where its recording shows that the machine spoiled it, and that is said. The screens,
results and recordings are kept.
"""

import argparse
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import processes

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

import dashboard  # noqa: E402
import go  # noqa: E402
import java  # noqa: E402
import mariadb  # noqa: E402
import nginx  # noqa: E402
import proxies  # noqa: E402
import redis  # noqa: E402
from bench import Bench  # noqa: E402
from results import Result, closing_line, exit_code, save, table  # noqa: E402

MODULES = (proxies, java, go, redis, nginx, mariadb, dashboard)
SERVERS = tuple(server for module in MODULES for server in module.SERVERS)
ATTEMPTS = 3
TARGET = HERE.parents[1] / os.environ.get("CARGO_TARGET_DIR", "target")
MAY_SKIP = os.environ.get("TAILLAB_SKIP_LIVE") == "1"


def main():
    options = arguments()
    if os.geteuid() != 0:
        sys.exit("error: tracing needs root: call it with sudo, or `make servers`")
    # an end by a signal goes through `finally`, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    processes.adopt_orphans()
    only = options.only
    chosen = [server for server in SERVERS if not only or any(part in server.name for part in only)]
    if not chosen:
        sys.exit(f"error: no server has such a name; there are {', '.join(server.name for server in SERVERS)}")
    results, rows = [], []
    try:
        for server in chosen:
            found, row = judged(server, options)
            results += found
            rows.append(row)
    except KeyboardInterrupt:
        print("\ninterrupted: what follows is what was found until then", file=sys.stderr)
        results.append(Result("servers", "all", "not run", 0.0, "interrupted"))
    finally:
        processes.end_all()
    return told(results, rows, options)


def arguments():
    parser = argparse.ArgumentParser(prog="servers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("taillab", type=Path, help="the program to test")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME",
                        help="only servers whose names contain one of these")
    parser.add_argument("--seconds", type=int, default=10, help="how long each is recorded (10)")
    parser.add_argument("--into", type=Path, default=TARGET / "tests" / "servers", metavar="DIR",
                        help="where all is kept")
    return parser.parse_args()


def judged(server, options):
    """The results of one server, and its row of the table."""
    began = time.monotonic()
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    missing = [program for program in server.programs if not shutil.which(program, path=path)]
    if missing:
        said = f"no {' and no '.join(missing)}: run `scripts/setup.sh servers`"
        results = [Result(server.name, "all", "skipped", 0.0, said)]
    else:
        results = first_unspoiled(server, options)
    took = time.monotonic() - began
    for result in results:
        print(f"{result.outcome.upper()} {server.name}: {result.test}: {result.said}", flush=True)
    held = sum(result.outcome == "passed" for result in results)
    outcomes = {result.outcome for result in results}
    worst = next((each for each in ("failed", "skipped") if each in outcomes), "passed")
    return results, (server.name, server.trouble, f"{held} of {len(results)}", worst, f"{took:.0f} s")


def first_unspoiled(server, options):
    """The first attempt that passes, or whose failures are not the machine's. Of one that the machine spoiled, what holds
    holds nevertheless."""
    for attempt in range(1, ATTEMPTS + 1):
        began = time.monotonic()
        bench = Bench(options.taillab.resolve(), options.into / server.name.replace(" ", "-"), options.seconds)
        try:
            reason, checks = server.attempt(bench)
        except (processes.Failed, OSError) as error:
            return [Result(server.name, "it was measured", "failed", time.monotonic() - began, str(error))]
        finally:
            processes.end_all()
        took = time.monotonic() - began
        if reason is None or all(check.holds for check in checks):
            break
        print(f"{server.name}: attempt {attempt} of {ATTEMPTS} is spoiled: {reason}", flush=True)
    return [judged_check(server, check, reason, took) for check in checks]


def judged_check(server, check, reason, took):
    if check.holds or reason is None:
        return Result(server.name, check.what, "passed" if check.holds else "failed", took, check.figures)
    return Result(server.name, check.what, "skipped", took, f"spoiled, {reason}; {check.figures}")


def told(results, rows, options):
    print(f"\n{table(('server', 'trouble', 'checks', 'result', 'seconds'), rows)}\n")
    for result in results:
        if result.outcome == "failed":
            print(f"failed: {result.suite}: {result.test}")
    save(options.into / "results.json", results, {"seconds_of_each_recording": options.seconds})
    print(f"the screens are in {options.into}/*/screen.txt\n\n{closing_line(results)}")
    return exit_code(results, MAY_SKIP)


if __name__ == "__main__":
    sys.exit(main())
