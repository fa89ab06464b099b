"""The result of all clients as one HTML page: no script, nothing from elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from taillab.cluster.words import at, length, quantile_name
from taillab.histogram import Histogram

FILE = "report.html"
# clients that have a curve of their own
_MOST_CURVES = 24
_POINTS = 200
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _BOTTOM, _TOP = 560, 400, 68, 28, 44, 12
# those of the program's own pages
_STYLE = """
:root { color: #17212b; background: #fff; font: 15px/1.45 system-ui, sans-serif; }
body { max-width: 62rem; margin: 1.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 .3rem; } h2 { font-size: 1.1rem; margin: 1.6rem 0 .4rem; }
.quiet { color: #55636f; } .valid { color: #00805e; font-weight: 600; } .wrong { color: #cc3d3d; font-weight: 600; }
.wide { overflow-x: auto; } table { border-collapse: collapse; white-space: nowrap; }
th, td { padding: .2rem .7rem .2rem 0; text-align: right; border-bottom: 1px solid #e4e9ee; }
th:first-child, td:first-child { text-align: left; } th { color: #55636f; font-weight: 500; }
li { margin: .2rem 0; } figure { margin: 0; } svg { width: 100%; max-width: 46rem; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: #55636f; }
"""


@dataclass
class Curves:
    """The distributions that are drawn: that of all clients, and those of the first ones."""

    whole: Histogram = field(default_factory=lambda: Histogram(()))
    clients: list[tuple[str, list[tuple[int, float]]]] = field(default_factory=list)

    def add(self, name: str, histogram: Histogram) -> None:
        """One client's: of its points as many as can be told apart are kept."""
        if len(self.clients) < _MOST_CURVES:
            self.clients.append((name, _thinned(histogram.ccdf())))


def render(result: dict[str, Any], curves: Curves) -> str:
    """The page of `cluster.json`."""
    parts = [_head(result), _quantiles(result["response_time"]), _figure(curves), _clients(result["clients"]), _server(result["server"])]
    title = escape(f"{result['command']}: {result['target']}")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body>\n<h1>{title}</h1>\n" + "\n".join(part for part in parts if part) + "\n</body></html>\n"
    )


def _head(result: dict[str, Any]) -> str:
    verdict = result["verdict"]
    word, kind = ("valid", "valid") if verdict["valid"] else ("not valid", "wrong")
    rate = f"{result['rate_per_s']:,.0f} requests per second" if result["rate_per_s"] else "as fast as it answers"
    lines = [f"{rate}, {length(result['duration_ns'])}, {len(result['clients'])} clients, {result['requests']:,} requests"]
    if result["capacity_per_s"]:
        lines.append(f"capacity of all clients together: {result['capacity_per_s']:,.0f} per second")
    skew, arrivals = result["start_skew"], result["arrivals"]
    if skew:
        lines.append(f"the starts were {length(skew['median_ns'])} off (median), {length(skew['max_ns'])} at most, clocks within {length(skew['error_ns'])}")
    if arrivals and arrivals["poisson"] is not None:
        fits = "are a Poisson process" if arrivals["poisson"] else "are no Poisson process"
        lines.append(f"arrivals at {arrivals['seen_at']} {fits}: D = {arrivals['ks_d']:.4f}, limit {arrivals['ks_critical']:.4f}")
    said = [each["text"] for each in (*verdict["reasons"], *verdict["warnings"])]
    items = "".join(f"<li>{escape(text)}</li>" for text in said)
    partial = ", partial" if result["partial"] else ""
    return (
        f'<p><span class="{kind}">{word}{partial}</span> <span class="quiet">taillab {escape(result["taillab_version"])}</span></p>'
        + "".join(f"<p class=quiet>{escape(line)}</p>" for line in lines)
        + (f"<ul>{items}</ul>" if items else "")
    )


def _quantiles(distribution: dict[str, Any]) -> str:
    rows = []
    for each in distribution["quantiles"]:
        if each["value"] is None:
            rows.append([quantile_name(each["q"]), "-", "too few requests, or no client that can be believed", str(each["clients"])])
            continue
        upper = length(each["hi"]) if each["hi"] is not None else "unknown"
        rows.append([quantile_name(each["q"]), length(each["value"]), f"{length(each['lo'])} to {upper}", str(each["clients"])])
    if distribution["max"] is not None:
        rows.append(["max", length(distribution["max"]), "", ""])
    heading = "<h2>Response time of all requests</h2><p class=quiet>From the intended send. Histograms are added, percentiles never averaged.</p>"
    return heading + _table(["", "response time", "95 % interval", "clients"], rows)


def _clients(rows: Sequence[dict[str, Any]]) -> str:
    head = ["client", "requests", "p50", "p99", "p99.9", "its floor p50", "floor p99", "late p99", "start off", "clock within", "verdict"]
    return "<h2>Each client</h2>" + _table(head, [_client(row) for row in rows], [_link(row) for row in rows])


def _client(row: dict[str, Any]) -> list[str]:
    who = f"{row['client']} {row['host']}"
    if row["requests"] is None:
        return [who, *(["-"] * 9), "no result"]
    start, clock = row["start"], row["clock"]
    verdict = ("valid" if row["verdict"]["valid"] else "not valid") + (", partial" if row["partial"] else "")
    return [
        who,
        f"{row['requests']:,}",
        *(at(row["response_time"], q) for q in (0.5, 0.99, 0.999)),
        *(at(row["floor"], q) for q in (0.5, 0.99)),
        at(row["lateness"], 0.99),
        length(start["skew_ns"]) if start and start["skew_ns"] is not None else "-",
        length(clock["error_ns"]) if clock else "-",
        verdict,
    ]


def _link(row: dict[str, Any]) -> str | None:
    return f"client-{row['client']}/report.html" if row["requests"] is not None else None


def _server(server: dict[str, Any] | None) -> str:
    if not server:
        return ""
    lines = [f"host {server['host']}"]
    if server["sojourn"]:
        lines.append("in the server: " + ", ".join(f"{quantile_name(q)} {at(server['sojourn'], q)}" for q in (0.5, 0.99, 0.999)))
    joined = server["joined"]
    if joined and joined["answered"]:
        line = f"{joined['joined'] / joined['answered']:.2%} of the answered requests are joined with its stamps (joined.parquet)"
        outside = joined["outside_p50"]
        if outside:
            line += f"; outside of the server p50 {length(outside['value'])} ({length(outside['lo'])} to {length(outside['hi'])})"
        lines.append(line)
    lines += server["failures"]
    link = '<p><a href="server/report.html">its own page</a></p>' if server["sojourn"] else ""
    return "<h2>The server</h2>" + "".join(f"<p>{escape(line)}</p>" for line in lines) + link


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], links: Sequence[str | None] | None = None) -> str:
    def cell(text: str, link: str | None) -> str:
        shown = escape(text)
        return f'<td><a href="{escape(link, quote=True)}">{shown}</a></td>' if link else f"<td>{shown}</td>"

    lines = []
    for place, row in enumerate(rows):
        link = links[place] if links else None
        lines.append("<tr>" + "".join(cell(text, link if column == 0 else None) for column, text in enumerate(row)) + "</tr>")
    heads = "".join(f"<th>{escape(text)}</th>" for text in head)
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _figure(curves: Curves) -> str:
    """The share of requests that are slower, against the latency, both on logarithmic axes."""
    whole = _drawable(curves.whole.ccdf())
    others = [(label, _drawable(points)) for label, points in curves.clients]
    drawn = [points for points in (whole, *(points for _, points in others)) if len(points) > 1]
    if not drawn:
        return ""
    xs, ys = [x for points in drawn for x, _ in points], [y for points in drawn for _, y in points]
    left, right = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs)))
    deepest = min(-3, math.floor(math.log10(min(ys))))

    def place(point: tuple[float, float]) -> tuple[float, float]:
        across = (math.log10(point[0]) - left) / max(1, right - left)
        down = math.log10(point[1]) / deepest
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT), _TOP + down * (_HEIGHT - _TOP - _BOTTOM)

    def path(points: Iterable[tuple[float, float]], ink: str) -> str:
        steps = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, points))
        return f'<polyline points="{steps}" fill="none" {ink}/>'

    marks = []
    for power in range(left, right + 1):
        x, _ = place((10.0**power, 1.0))
        marks.append(f'<path d="M{x:.1f} {_TOP}V{_HEIGHT - _BOTTOM}" stroke="#e4e9ee"/>')
        marks.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle">{escape(length(10.0**power))}</text>')
    for power in range(deepest, 1):
        _, y = place((10.0**left, 10.0**power))
        marks.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#e4e9ee"/>')
        marks.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{100 * 10.0**power:g} %</text>')
    marks += [path(points, 'stroke="#9aa6b2" stroke-width="1"') for _, points in others if len(points) > 1]
    marks.append(path(whole, 'stroke="#d55e00" stroke-width="2.2"'))
    caption = f"Requests that are slower than this. All clients together (thick), and {len(others)} clients alone"
    return (
        f"<h2>Distribution</h2><figure><svg viewBox=\"0 0 {_WIDTH} {_HEIGHT}\" role=\"img\" aria-label=\"{escape(caption, quote=True)}\">"
        + "".join(marks)
        + f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 6}" text-anchor="middle">response time</text></svg>'
        + f"<figcaption class=quiet>{escape(caption)}.</figcaption></figure>"
    )


def _drawable(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return _thinned([(max(1.0, x), y) for x, y in points if y > 0])


def _thinned(points: Sequence[tuple[Any, float]]) -> list[tuple[Any, float]]:
    """As many points as can be told apart on a logarithmic axis; the last one stays."""
    kept: list[tuple[Any, float]] = []
    step = math.log(1e7) / _POINTS
    for point in points:
        if not kept or point[1] <= 0 or math.log(kept[-1][1] / point[1]) >= step or point[0] > 1.05 * kept[-1][0]:
            kept.append(point)
    if points and kept[-1] != points[-1]:
        kept.append(points[-1])
    return kept
