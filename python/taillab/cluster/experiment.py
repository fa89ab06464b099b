"""Experiments of the first rank: `load`, `run` and `rtt`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taillab import _program
from taillab.cluster import agent, report
from taillab.cluster.faults import ClusterError, UsageError
from taillab.cluster.link import Link
from taillab.cluster.master import Master, Member, Waits
from taillab.cluster.plan import Load, fan_out_plans, plans
from taillab.cluster.report import Experiment
from taillab.cluster.words import length

# exit codes, as those of the program
OK, FAILED, INVALID, INTERRUPTED = 0, 1, 4, 130
# of the closed loop that finds the capacity
_CALIBRATION_NS, _CALIBRATION_WARMUP_NS = 3_000_000_000, 500_000_000
_TRACE_MARGIN_S = 2.0
_NOT_REQUESTS = ("result.json", "summary.json", "latency.hlog", "report.html")


@dataclass(frozen=True)
class Settings:
    """What the command line says besides the load."""

    out: Path
    waits: Waits
    say: Callable[[str], None]
    show: Callable[[str], None]
    as_json: bool = False
    with_requests: bool = True
    server_rank: int | None = None
    """The rank on the server's host, which traces."""
    trace_options: tuple[str, ...] = ()
    utilization: float | None = None


def check(settings: Settings, size: int, servers: int | None = None) -> None:
    """Refuses what cannot be carried out by this many ranks, before anything is started."""
    if servers is not None and servers != size - 1:
        raise UsageError(f"{servers} servers need as many ranks besides the first: mpirun -n {servers + 1}")
    if (settings.out / report.FILE).exists():
        raise UsageError(f"{settings.out} holds a result already: name another directory with -o, or remove it")
    rank = settings.server_rank
    if rank is not None and not 1 <= rank < size:
        raise UsageError(f"there is no rank {rank} to trace the server: give one from 1 to {size - 1} with --server-rank")
    if rank is not None and size < 3:
        raise UsageError("there is no client beside the rank that traces: start three ranks or more")


@contextlib.contextmanager
def _leading(link: Link, settings: Settings, servers: int | None = None) -> Iterator[tuple[Master, str]]:
    """The first rank's part and the version of all. At the end, whatever it is, the other ranks are let go."""
    master = Master(link, settings.waits, settings.say)
    try:
        check(settings, link.size, servers)
        version = agent.version(_program.find())
        settings.out.mkdir(parents=True, exist_ok=True)
        master.greet(version)
        yield master, version
    finally:
        master.end()


def load(link: Link, wanted: Load, settings: Settings, command: str = "load") -> int:
    """Several clients load one server; with a rank on its host, the server is traced. Returns the exit code."""
    with _leading(link, settings) as (master, version):
        result, interrupted = _load(master, version, wanted, settings, command)
    settings.show(json.dumps(result) if settings.as_json else report.text(result) + f"saved in {settings.out}\n")
    if interrupted:
        return INTERRUPTED
    if any(member.failures for member in master.members):
        return FAILED
    return OK if result["verdict"]["valid"] else INVALID


def _load(master: Master, version: str, wanted: Load, settings: Settings, command: str) -> tuple[dict[str, Any], bool]:
    """The result, and whether it was interrupted."""
    server = next((member for member in master.members if member.rank == settings.server_rank), None)
    clients = [member for member in master.members if member is not server]
    capacity, interrupted = None, False
    try:
        if settings.utilization is not None:
            capacity = _capacity(master, clients, wanted, version, settings)
            wanted = dataclasses.replace(wanted, rate_per_s=capacity * settings.utilization)
        settings.say(f"taillab: {len(clients)} clients send {wanted.rate_per_s or 0:,.0f} per second together")
        _send(master, clients, server, wanted, version, settings)
    except KeyboardInterrupt:
        # the ranks have been interrupted too, and their programs keep what they have
        interrupted = True
        master.rescue()
        # whoever ended us kills us soon: the records of single requests are left where they are
        _gather(master, dataclasses.replace(settings, with_requests=False))
    asked = Experiment(command, wanted, master.at_ns, version, capacity, interrupted)
    return report.conclude(asked, clients, server, settings.out), interrupted


def _send(master: Master, clients: list[Member], server: Member | None, wanted: Load, version: str, settings: Settings) -> None:
    if server is not None:
        # its clock, while it has nothing to do
        master.measure_clocks()
        length_s = settings.waits.lead_s + wanted.length_ns / 1e9 + _TRACE_MARGIN_S
        words = ["trace", "--quiet", f"--duration={length_s:.3f}s", *settings.trace_options]
        master.command(server, words, length_s + settings.waits.patience_s)
    everybody = len(master.members)
    master.measure(wanted.length_ns, lambda at_ns, clocks: plans(wanted, version, at_ns, clocks, everybody), clients)
    if server is not None:
        master.finish([server], master.at_ns + wanted.length_ns, settings.waits.patience_s)
        master.measure_clocks()
    _gather(master, settings)


def _gather(master: Master, settings: Settings) -> None:
    def called(member: Member) -> str:
        return "server" if member.rank == settings.server_rank else f"client-{member.number}"

    master.gather(settings.out, lambda name: settings.with_requests or name in _NOT_REQUESTS, called)


def _capacity(master: Master, clients: list[Member], wanted: Load, version: str, settings: Settings) -> float:
    """The most answers per second that all clients together get in a closed loop."""
    settings.say("taillab: finding the capacity with all clients")
    closed = dataclasses.replace(
        wanted,
        rate_per_s=None,
        duration_ns=_CALIBRATION_NS,
        warmup_ns=_CALIBRATION_WARMUP_NS,
        options=(*(each for each in wanted.options if not each.startswith("--floor")), "--floor=off"),
    )
    everybody = len(master.members)
    master.measure(closed.length_ns, lambda at_ns, clocks: plans(closed, version, at_ns, clocks, everybody), clients)
    master.gather(settings.out, lambda name: name == "result.json", lambda member: f"calibration-{member.number}")
    reports = [_read(member) for member in clients]
    rates = [each["generator"]["closed_loop"]["answered_rate_per_s"] for each in reports if each is not None]
    if not rates or sum(rates) <= 0:
        raise ClusterError("the capacity could not be measured: no client got an answer; see what they say above")
    return float(sum(rates))


def _read(member: Member) -> dict[str, Any] | None:
    if not member.has_result or member.directory is None:
        return None
    found: dict[str, Any] = json.loads((member.directory / "result.json").read_text())
    return found


def fan_out(link: Link, wanted: Load, targets: list[str], settings: Settings) -> int:
    """One client of many servers: each request goes to all, and lasts as long as the slowest. Returns the exit code."""
    with _leading(link, settings, len(targets)) as (master, version):
        everybody = len(master.members)
        master.measure(
            wanted.length_ns, lambda at_ns, clocks: fan_out_plans(wanted, targets, version, at_ns, clocks, everybody), master.members
        )
        _gather(master, settings)
        result = report.conclude_fan_out(Experiment("fanout", wanted, master.at_ns, version), targets, master.members, settings.out)
    settings.show(json.dumps(result) if settings.as_json else report.fan_out_text(result) + f"saved in {settings.out}\n")
    if any(member.failures for member in master.members):
        return FAILED
    return OK if result["verdict"]["valid"] else INVALID


def round_trips(link: Link, options: list[str], settings: Settings, within_s: float) -> int:
    """Each host in turn measures round trips (`taillab rtt`): at the same time they would disturb each other."""
    rows: list[dict[str, Any]] = []
    with _leading(link, settings) as (master, version):
        for member in master.members:
            master.command(member, ["rtt", "--quiet", "--json", *options], within_s)
            master.finish([member], 0, within_s)
            done = member.done
            # what it printed has all rows; the files stay with whoever wants them
            found = json.loads(done.ended.stdout)["rows"] if done and done.ended.stdout.startswith(b"{") else []
            rows += [{"host": member.host, "rank": member.rank, **row} for row in found]
    failures = [failure for member in master.members for failure in member.failures]
    result = {
        "schema_version": report.SCHEMA_VERSION,
        "command": "cluster rtt",
        "taillab_version": version,
        "partial": bool(failures),
        "rows": rows,
        "failures": failures,
    }
    (settings.out / report.FILE).write_text(json.dumps(result, indent=1) + "\n")
    settings.show(json.dumps(result) if settings.as_json else _rtt_text(rows) + f"saved in {settings.out}\n")
    return FAILED if failures else OK


def _rtt_text(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'host':<20} {'protocol':<12} {'mode':<12} {'bytes':>8} {'p50':>9} {'p99':>9} {'max':>9}"]
    for row in rows:
        at = {each["q"]: each["value"] for each in row["rtt"]["quantiles"]}
        shown = [length(at[q]) if at.get(q) is not None else "-" for q in (0.5, 0.99)]
        lines.append(
            f"{row['host'][:20]:<20} {row['proto']:<12} {row['mode']:<12} {row['size_bytes']:>8} {shown[0]:>9} {shown[1]:>9} "
            f"{length(row['rtt']['max']):>9}"
        )
    return "\n".join(lines) + "\n"
