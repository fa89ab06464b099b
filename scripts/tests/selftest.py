"""The runner itself, on a test binary that is a script: what is counted, whatever happens to the binary."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import cargo
import libtest
from results import Result, closing_line, exit_code


def fake(folder, body):
    """A binary with the tests m::first … m::fourth."""
    path = Path(folder) / "fake"
    listed = r"m::first: test\nm::second: test\nm::third: test\nm::fourth: test\n"
    path.write_text(f"""#!/bin/sh
case "$*" in *--ignored*) exit ;; --list*) printf "{listed}"; exit ;; esac
{body}
""")
    path.chmod(0o755)
    return cargo.Binary("model", "units", path, path.parent)


def started(name):
    return f"""echo '{{ "type": "test", "event": "started", "name": "m::{name}" }}'"""


def ended(name, event="ok", before=""):
    return f"""echo '{before}{{ "type": "test", "name": "m::{name}", "event": "{event}", "exec_time": 0.5 }}'"""


def outcomes(*lines):
    with tempfile.TemporaryDirectory() as folder:
        binary = fake(folder, "\n".join(lines))
        results = []
        libtest.run(binary, libtest.names(binary.path), 1, results.append)
        return {result.test.removeprefix("m::"): result for result in results}


class Counting(unittest.TestCase):
    def test_what_passes_fails_and_is_skipped_is_told_apart(self):
        found = outcomes(
            started("first"), ended("first", before="what a child wrote without a line break"),
            started("second"), "echo 'SKIPPED second: it needs a disk' >&2", ended("second"),
            started("third"), "echo 'what it said' >&2", ended("third", "failed"),
            started("fourth"), ended("fourth"))
        self.assertEqual([found[name].outcome for name in ("first", "second", "third", "fourth")],
                         ["passed", "skipped", "failed", "passed"])
        self.assertIn("it needs a disk", found["second"].said)
        self.assertIn("what it said", found["third"].said)

    def test_attempts_that_the_machine_spoiled_are_not_the_suites_time(self):
        said = r"attempt 0 is spoiled after 2.5 s: late\nattempt 1 is spoiled after 5.0 s: late\n"
        found = outcomes(started("first"), ended("first", f'ok", "stdout": "{said}'), started("second"), ended("second"))
        self.assertEqual([found[name].spoiled_s() for name in ("first", "second")], [7.5, 0])

    def test_a_binary_that_dies_fails_the_test_that_ran_and_hides_none(self):
        found = outcomes(started("first"), ended("first"), started("second"), "kill -SEGV $$")
        self.assertEqual([found[name].outcome for name in ("first", "second", "third", "fourth")],
                         ["passed", "failed", "not run", "not run"])

    def test_a_binary_that_says_nothing_ran_no_test(self):
        self.assertEqual({result.outcome for result in outcomes("exit 0").values()}, {"not run"})

    def test_the_exit_code_follows_from_the_closing_line(self):
        def each(*kinds):
            return [Result("suite", kind, kind, 0.0) for kind in kinds]
        self.assertEqual(closing_line(each("passed", "failed", "not run")), "1 passed, 1 failed, 0 skipped, 1 not run")
        self.assertEqual(exit_code(each("passed"), may_skip=False), 0)
        self.assertEqual(exit_code([], may_skip=True), 1)
        self.assertEqual(exit_code(each("passed", "failed"), may_skip=True), 1)
        self.assertEqual(exit_code(each("passed", "not run"), may_skip=True), 1)
        self.assertEqual(exit_code(each("passed", "skipped"), may_skip=False), 1)
        self.assertEqual(exit_code(each("passed", "skipped"), may_skip=True), 0)


def run():
    """(name, passed, what it said) of each test of the runner."""
    for test in _tests(unittest.defaultTestLoader.discover(str(Path(__file__).parent), "selftest*.py")):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            result = unittest.TextTestRunner(stream=said).run(test)
        yield test.id().rpartition(".")[2], result.wasSuccessful(), said.getvalue()


def _tests(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _tests(test)
        else:
            yield test
