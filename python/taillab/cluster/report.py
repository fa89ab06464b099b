"""The one result of all clients: what each measured and whether it can be believed, and what all measured together."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from taillab import histogram as histograms
from taillab.cluster import fanout, join, page
from taillab.cluster.master import Member
from taillab.cluster.merge import QUANTILES, Part, Records, instants, superposition, together, write_requests
from taillab.cluster.plan import Load
from taillab.cluster.words import at, length, quantile_name
from taillab.histogram import Histogram

SCHEMA_VERSION = 1
FILE = "cluster.json"
_SERIES = "response_time"


@dataclass(frozen=True)
class Experiment:
    """What was asked for, and when it began by our clock."""

    command: str
    load: Load
    at_ns: int
    version: str
    capacity_per_s: float | None = None
    interrupted: bool = False


def conclude(experiment: Experiment, clients: list[Member], server: Member | None, out: Path) -> dict[str, Any]:
    """Merges what is in `out`, writes `cluster.json`, its page and the requests of all, and returns the result."""
    rows = [_client(experiment, member) for member in clients]
    curves = page.Curves()
    curves.whole, distribution = together(_parts(clients, curves))
    merged = _requests(clients, out) if not experiment.interrupted else 0
    measured = [row for row in rows if row["requests"] is not None]
    result = {
        "schema_version": SCHEMA_VERSION,
        "command": f"cluster {experiment.command}",
        "taillab_version": experiment.version,
        "target": experiment.load.target,
        "concluded_unix_s": int(time.time()),
        "partial": experiment.interrupted or any(row["partial"] for row in rows),
        "rate_per_s": experiment.load.rate_per_s,
        "capacity_per_s": experiment.capacity_per_s,
        "duration_ns": experiment.load.duration_ns,
        "requests": sum(row["requests"] for row in measured),
        "response_time": distribution,
        "start_skew": _skew(measured),
        "arrivals": _arrivals(experiment, clients, server, out if merged else None),
        "clients": rows,
        "server": _server(server),
    }
    if result["server"] and merged:
        result["server"]["joined"] = _joined(experiment, clients, server, out)
    result["verdict"] = _verdict(experiment, result)
    (out / page.FILE).write_text(page.render(result, curves))
    _write(result, out)
    return result


def _parts(clients: list[Member], curves: page.Curves) -> Iterator[Part]:
    """What each client measured, one after the other; the page gets its curve."""
    for member in clients:
        part = _part(member)
        if part is not None:
            curves.add(f"{member.number} {member.host}", part.histogram)
            yield part


def conclude_fan_out(experiment: Experiment, targets: list[str], members: list[Member], out: Path) -> dict[str, Any]:
    """Joins what the clients of all servers measured, writes `cluster.json`, and returns the result."""
    rows = [_client(experiment, member) | {"target": target} for member, target in zip(members, targets, strict=True)]
    usable = [(member, report) for member in members if (report := _report(member)) and report["generator"].get("start")]
    parts = [(member.directory / "requests.parquet", report["generator"]["start"]["monotonic_ns"]) for member, report in usable if member.directory]
    result: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "command": "cluster fanout",
        "taillab_version": experiment.version,
        "concluded_unix_s": int(time.time()),
        "partial": any(row["partial"] for row in rows),
        "rate_per_s": experiment.load.rate_per_s,
        "duration_ns": experiment.load.duration_ns,
        "start_skew": _skew([row for row in rows if row["requests"] is not None]),
        "fan_out": fanout.slowest([path_and_start for path_and_start in parts if path_and_start[0].is_file()]),
        "clients": rows,
    }
    result["verdict"] = _verdict(experiment, result | {"requests": result["fan_out"]["complete"], "arrivals": None, "response_time": {"quantiles": []}})
    _write(result, out)
    return result


def fan_out_text(result: dict[str, Any]) -> str:
    """The result of a fan-out for a terminal."""
    found = result["fan_out"]
    lines = [f"{result['command']}: {len(result['clients'])} servers, {result['rate_per_s']:,.0f} requests per second to each", ""]
    lines += [f"{'server':<36} {'requests':>10} {'p50':>9} {'p99':>9}  verdict"]
    for row in result["clients"]:
        verdict = "no result" if row["verdict"] is None else "valid" if row["verdict"]["valid"] else "not valid"
        count = f"{row['requests']:,}" if row["requests"] is not None else "-"
        lines.append(f"{row['target'][:36]:<36} {count:>10} {at(row['response_time'], 0.5):>9} {at(row['response_time'], 0.99):>9}  {verdict}")
    lines += ["", f"the slowest of {found['servers']}, of {found['complete']:,} requests that all answered ({found['incomplete']:,} were not)"]
    lines.append(f"  {'':<9} {'measured':>9}  {'95 % interval':<24} if the servers were independent")
    for each in found["quantiles"]:
        if each["value"] is not None:
            upper = length(each["hi"]) if each["hi"] is not None else "unknown"
            lines.append(f"  {quantile_name(each['q']):<9} {length(each['value']):>9}  {length(each['lo']) + ' to ' + upper:<24} {length(each['independent'])}")
    verdict = result["verdict"]
    lines += ["", f"{'valid' if verdict['valid'] else 'not valid'}{', partial' if result['partial'] else ''}"]
    lines += [f"  {each['text']}" for each in (*verdict["reasons"], *verdict["warnings"])]
    return "\n".join(lines) + "\n"


def _write(result: dict[str, Any], out: Path) -> None:
    unfinished = out / f"{FILE}.part"
    unfinished.write_text(json.dumps(result, indent=1) + "\n")
    unfinished.rename(out / FILE)


def _report(member: Member) -> dict[str, Any] | None:
    if not member.has_result:
        return None
    assert member.directory is not None
    found: dict[str, Any] = json.loads((member.directory / "result.json").read_text())
    return found


def _part(member: Member) -> Part | None:
    report = _report(member)
    if report is None or not report.get("load"):
        return None
    assert member.directory is not None
    found: dict[str, Histogram] = histograms.read(member.directory / "latency.hlog")
    spoiled = frozenset(q for q in QUANTILES if _spoiled_by(report["verdict"], q))
    return Part(found.get(_SERIES, Histogram(())), report["load"][_SERIES], spoiled)


def _spoiled_by(verdict: dict[str, Any], q: float) -> list[str]:
    """Why a client withdraws a percentile, other than that it alone has too few requests."""
    claims = [claim for claim in verdict.get("claims", []) if claim["claim"] == quantile_name(q) and not claim["valid"]]
    return [key for claim in claims for key in claim.get("because", []) if key != "unsupported_percentile"]


def _client(experiment: Experiment, member: Member) -> dict[str, Any]:
    """What one client says of itself."""
    row: dict[str, Any] = {"client": member.number, "host": member.host, "failures": member.failures}
    row["clock"] = member.clock().summary() if member.offsets else None
    report = _report(member)
    load = report.get("load") if report else None
    row |= {"partial": True, "requests": None, "rate_per_s": None, "verdict": None, "floor": None, "lateness": None}
    row |= {"response_time": None, "start": None}
    if report is None or load is None:
        return row
    floor = report["generator"].get("floor")
    return row | {
        "partial": bool(report["partial"] or member.failures),
        "requests": load["requests"],
        "rate_per_s": load["target_rate_per_s"],
        "response_time": load[_SERIES],
        "lateness": load["lateness"],
        "floor": floor["load"][_SERIES] if floor and floor.get("load") else None,
        "floor_absent_because": report["generator"].get("floor_absent_because"),
        "start": _start(experiment, member, report["generator"].get("start")),
        "verdict": report["verdict"],
    }


def _start(experiment: Experiment, member: Member, start: dict[str, Any] | None) -> dict[str, Any] | None:
    """When a client began, against the plan, by its own records and the clocks as measured before and after."""
    if start is None or not member.offsets:
        return None
    clock, late = member.clock(), start.get("first_send_late_ns") or 0
    # a clock that jumped says nothing of when its client began
    off = clock.to_ours(start["monotonic_ns"]) - experiment.at_ns if not member.is_jumped else None
    return {
        "off_plan_ns": off,
        "first_send_late_ns": late,
        "skew_ns": off + late if off is not None else None,
        "error_ns": round(clock.error_ns(experiment.at_ns)),
    }


def _skew(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """How far the clients' starts are apart: from each one's first send to where the plan had it."""
    starts = [row["start"] for row in rows if row["start"] and row["start"]["skew_ns"] is not None]
    if not starts:
        return None
    off = [abs(start["skew_ns"]) for start in starts]
    return {"median_ns": round(median(off)), "max_ns": max(off), "error_ns": max(start["error_ns"] for start in starts)}


def _requests(clients: list[Member], out: Path) -> int:
    """Writes the requests of all clients whose clock is known."""
    usable = [member for member in clients if member.is_ready and member.directory is not None]
    records = [Records(member.number, member.directory / "requests.parquet", member.clock()) for member in usable]  # type: ignore[operator]
    records = [each for each in records if each.path.is_file()]
    return write_requests(records, out / "requests.parquet") if records else 0


def _joined(experiment: Experiment, clients: list[Member], server: Member | None, out: Path) -> dict[str, Any] | None:
    """Joins the clients' requests with what the server's host saw of them."""
    traced = _traced(server)
    if traced is None or server is None:
        return None
    errors = [member.clock().error_ns(experiment.at_ns + experiment.load.length_ns) for member in (server, *clients) if member.is_ready]
    return join.join(out / "requests.parquet", traced, server.clock(), 2 * math.ceil(max(errors)), out / join.FILE)


def _traced(server: Member | None) -> Path | None:
    """The requests that the server's host saw, where its clock is known."""
    path = server.directory / "requests.parquet" if server and server.directory and server.is_ready else None
    return path if path is not None and path.is_file() else None


def _arrivals(experiment: Experiment, clients: list[Member], server: Member | None, out: Path | None) -> dict[str, Any] | None:
    """The superposition of all clients: at T1 where the server's host was traced, else as they sent it."""
    load = experiment.load
    if load.arrivals != "poisson" or load.rate_per_s is None:
        return None
    first, last = experiment.at_ns + load.warmup_ns, experiment.at_ns + load.length_ns
    sending = sum(member.has_result for member in clients)
    rate = load.rate_per_s * (sending / len(clients) if any(member.is_lost for member in clients) else 1)
    traced = _traced(server)
    if rate > 0 and traced is not None and server is not None:
        seen_at, offset = "T1", round(server.clock().offset_ns(first))
        times = instants(traced, "t1", first + offset, last + offset, rate)
    elif rate > 0 and out is not None:
        seen_at, times = "the clients' sends", instants(out / "requests.parquet", "sent", first, last, rate)
    else:
        return None
    return {"seen_at": seen_at, "rate_per_s": rate, **superposition(times, rate)}


def _server(server: Member | None) -> dict[str, Any] | None:
    """What the rank on the server's host traced."""
    if server is None:
        return None
    path = server.directory / "summary.json" if server.directory else None
    found = json.loads(path.read_text()) if path is not None and path.is_file() else None
    return {
        "host": server.host,
        "failures": server.failures,
        "sojourn": found["measured"]["sojourn"] if found else None,
        "verdict": found["verdict"] if found else None,
        "joined": None,
    }


def _verdict(experiment: Experiment, result: dict[str, Any]) -> dict[str, Any]:
    """The whole verdict: it is valid if each client's is. What else a reader must know is a warning."""
    reasons: list[dict[str, str]] = []
    warnings: list[dict[str, str]] = []
    for row in result["clients"]:
        name = f"client {row['client']} on {row['host']}"
        warnings += [{"key": "client_failed", "text": failure} for failure in row["failures"]]
        verdict = row["verdict"]
        if verdict and not verdict["valid"]:
            reasons += [{"key": each["key"], "text": f"{name}: {each['text']}"} for each in verdict["reasons"]]
        late = row["start"]["first_send_late_ns"] if row["start"] else 0
        if late > max(1_000_000, experiment.load.warmup_ns):
            text = f"{name} sent its first request {late / 1e6:.3g} ms late: its host was busy; look at what runs there"
            warnings.append({"key": "late_start", "text": text})
        if row["requests"] is None:
            warnings.append({"key": "client_missing", "text": f"{name} has no result: the server had less load than planned"})
    warnings += _spoiled(result)
    arrivals = result["arrivals"]
    if arrivals and arrivals["poisson"] is False:
        text = f"the arrivals at {arrivals['seen_at']} are no Poisson process: D = {arrivals['ks_d']:.4f}"
        warnings.append({"key": "arrivals", "text": f"{text}, more than {arrivals['ks_critical']:.4f}"})
    if experiment.interrupted:
        text = "the experiment was ended from outside: by Ctrl-C, or by mpirun, which ends all ranks where one dies (--with-ft ulfm)"
        warnings.append({"key": "interrupted", "text": text})
    if not result["requests"]:
        reasons.append({"key": "nothing_measured", "text": "no client has a result: see the failures above"})
    return {"valid": not reasons, "reasons": reasons, "warnings": warnings}


def _spoiled(result: dict[str, Any]) -> list[dict[str, str]]:
    """Which clients are left out of the percentiles of all, from which one on, and why."""
    found = []
    measured = [row for row in result["clients"] if row["verdict"]]
    for row in measured:
        spoiled = [q for q in QUANTILES if _spoiled_by(row["verdict"], q)]
        if spoiled:
            why = ", ".join(dict.fromkeys(_spoiled_by(row["verdict"], spoiled[0])))
            text = f"client {row['client']} on {row['host']} is left out of {', '.join(map(quantile_name, spoiled))}: {why}; see its report"
            found.append({"key": "client_spoiled", "text": text})
    nobody = [quantile_name(each["q"]) for each in result["response_time"]["quantiles"] if not each["clients"] and measured]
    if nobody:
        text = f"no client can be believed at {', '.join(nobody)}: give each its own CPUs, or more clients a lower rate each"
        found.append({"key": "percentiles_withdrawn", "text": text})
    return found


def text(result: dict[str, Any]) -> str:
    """The result for a terminal."""
    rate = f"{result['rate_per_s']:,.0f} per second" if result["rate_per_s"] else "as fast as it answers"
    lines = [f"{result['command']}: {result['target']}, {rate}, {length(result['duration_ns'])}, {len(result['clients'])} clients"]
    if result["capacity_per_s"]:
        lines.append(f"capacity  {result['capacity_per_s']:,.0f} per second, all clients together")
    lines += ["", f"{'client':<24} {'requests':>10} {'p50':>9} {'p99':>9} {'floor p99':>9} {'late p99':>9} {'start off':>10}  verdict"]
    lines += [_row(row) for row in result["clients"]]
    whole = result["response_time"]
    lines.append(f"{'all':<24} {result['requests']:>10,} {at(whole, 0.5):>9} {at(whole, 0.99):>9}")
    lines += ["", "response time of all requests, from the intended send (95 % interval)"]
    for each in whole["quantiles"]:
        if each["value"] is not None:
            upper = length(each["hi"]) if each["hi"] is not None else "unknown"
            some = f", of {each['clients']} clients" if each["clients"] < sum(row["requests"] is not None for row in result["clients"]) else ""
            lines.append(f"  {quantile_name(each['q']):<9} {length(each['value']):>9}  ({length(each['lo'])} to {upper}{some})")
    if whole["count"]:
        lines.append(f"  max       {length(whole['max']):>9}")
    skew = result["start_skew"]
    if skew:
        lines.append(f"start skew  median {length(skew['median_ns'])}, max {length(skew['max_ns'])}, clocks within {length(skew['error_ns'])}")
    server = result["server"]
    if server and server["sojourn"]:
        lines.append(f"server {server['host']}: sojourn p50 {at(server['sojourn'], 0.5)}, p99 {at(server['sojourn'], 0.99)}")
    if server and server["joined"]:
        lines.append(_joined_text(server["joined"]))
    verdict = result["verdict"]
    lines += ["", f"{'valid' if verdict['valid'] else 'not valid'}{', partial' if result['partial'] else ''}"]
    lines += [f"  {each['text']}" for each in (*verdict["reasons"], *verdict["warnings"])]
    return "\n".join(lines) + "\n"


def _joined_text(joined: dict[str, Any]) -> str:
    share = joined["joined"] / joined["answered"] if joined["answered"] else 0.0
    line = f"{share:.2%} of the answered requests are joined with the server's stamps"
    outside = joined["outside_p50"]
    if outside:
        span = f"{length(outside['lo'])} to {length(outside['hi'])}"
        line += f"; outside of the server they took p50 {length(outside['value'])} ({span})"
    return line


def _row(row: dict[str, Any]) -> str:
    name = f"{row['client']} {row['host']}"[:24]
    if row["requests"] is None:
        return f"{name:<24} {'-':>10}  no result"
    skew = row["start"]["skew_ns"] if row["start"] else None
    verdict = "valid" if row["verdict"]["valid"] else "not valid"
    return (
        f"{name:<24} {row['requests']:>10,} {at(row['response_time'], 0.5):>9} {at(row['response_time'], 0.99):>9} "
        f"{at(row['floor'], 0.99):>9} {at(row['lateness'], 0.99):>9} {length(skew) if skew is not None else '-':>10}  "
        f"{verdict}{', partial' if row['partial'] else ''}"
    )
