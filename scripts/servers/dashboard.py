"""A Prometheus server that scrapes a live trace, and the dashboard's queries asked of it."""

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from bench import LAST, Server, free_port
from checks import Check

DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "grafana.json"
RATE = 1000
# two are enough for a rate; the first windows of a trace may have nothing
SCRAPES = 12
CONFIG = """global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: taillab
    static_configs: [{{targets: ["127.0.0.1:{metrics}"]}}]
"""
# what Grafana puts in
VARIABLES = {"instance": ".*", "__rate_interval": "10s", "__range": "10s", "__interval": "1s"}


def attempt(bench):
    port, metrics, web = free_port(), free_port(), free_port()
    bench.serve("echo", port, bench.taillab, "serve", "epoll-per-worker", "--listen", f"127.0.0.1:{port}", "-q")
    bench.start("client", *bench.load(f"echo+tcp://127.0.0.1:{port}", RATE, 1), "-d", "1h", cpu=LAST)
    bench.serve("live", metrics, bench.taillab, "trace", "--port", port, "--live", "--metrics", metrics, cpu=None)
    conf, data = bench.folder / "prometheus.yml", bench.folder / "data"
    conf.write_text(CONFIG.format(metrics=metrics))
    prometheus = bench.serve("prometheus", web, "prometheus", f"--config.file={conf}", f"--storage.tsdb.path={data}",
                             f"--web.listen-address=127.0.0.1:{web}", cpu=LAST)
    asker = Asker(web)
    prometheus.wait_for(f"{SCRAPES} scrapes", lambda: asker.number("sum(count_over_time(up[1h]))") >= SCRAPES)
    return None, list(checks(asker))


class Asker:
    """Asks Prometheus over its HTTP interface."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}/api/v1/query?"

    def ask(self, query):
        """(the error or `None`, the series)."""
        try:
            with urllib.request.urlopen(self.url + urllib.parse.urlencode({"query": query}), timeout=10) as answer:
                return None, json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            return json.load(error).get("error", str(error)), []
        except OSError as error:
            return str(error), []

    def number(self, query):
        """The value of a query with one; 0 where there is none yet."""
        _, series = self.ask(query)
        return float(series[0]["value"][1]) if series else 0.0


def checks(asker):
    read, all_of_them = asker.number("sum(sum_over_time(up[1h]))"), asker.number("sum(count_over_time(up[1h]))")
    yield Check("every scrape could be read", 0 < read == all_of_them, f"{read:.0f} of {all_of_them:.0f}")
    rate = asker.number("sum(rate(taillab_responses_total[10s]))")
    yield Check("the rate of responses is that of the load", 0.8 * RATE <= rate <= 1.2 * RATE,
                f"{rate:.0f}/s, the load {RATE}/s")
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            query = filled(target["expr"])
            error, series = asker.ask(query)
            # a panel that is empty under load is of no use
            yield Check(f"the panel `{panel['title']}`, query {target['refId']}", not error and bool(series),
                        error or f"{len(series)} series for {query}")


def filled(query):
    """A query of the dashboard, with values for Grafana's variables."""
    for name, value in VARIABLES.items():
        query = query.replace(f"${name}", value).replace(f"${{{name}}}", value)
    if left := re.search(r"\$[\w{]+", query):
        raise ValueError(f"{left[0]} in {query}: VARIABLES lacks it")
    return query


SERVERS = (Server("prometheus", "none: it scrapes a live trace for the dashboard", ("prometheus",), attempt),)
