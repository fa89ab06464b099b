"""A plugin of pytest: each test and its result as a line of JSON, to the descriptor that TEST_RESULTS names."""

import json
import os

DESCRIPTOR = "TEST_RESULTS"


def pytest_configure(config):
    # what the tests start does not get it
    descriptor = int(os.environ.pop(DESCRIPTOR))
    os.set_inheritable(descriptor, False)
    config.pluginmanager.register(Results(os.fdopen(descriptor, "w")))


class Results:
    """Sums up the phases of each test: its set-up, itself, its end."""

    def __init__(self, out):
        self.out = out
        self.outcome, self.seconds, self.said = "passed", 0.0, ""

    def pytest_runtest_logstart(self, nodeid):
        self.outcome, self.seconds, self.said = "passed", 0.0, ""
        self.write(test=nodeid, outcome="started")

    def pytest_runtest_logreport(self, report):
        self.seconds += report.duration
        if report.failed or (report.skipped and self.outcome == "passed"):
            self.outcome = report.outcome
            self.said = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext

    def pytest_runtest_logfinish(self, nodeid):
        self.write(test=nodeid, outcome=self.outcome, seconds=round(self.seconds, 3), said=self.said)

    def write(self, **event):
        self.out.write(json.dumps(event) + "\n")
        self.out.flush()
