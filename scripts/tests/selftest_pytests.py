"""How results of pytest are counted, on a pytest that is a script."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

import pytests
from results import Result, exit_code


def event(outcome, name, said=""):
    line = f'{{"test": "python/tests/test_a.py::test_{name}", "outcome": "{outcome}", "seconds": 0.5, "said": "{said}"}}'
    return f"echo '{line}' >&$TEST_RESULTS"


def outcomes(*lines):
    results = []
    tests = ("a::first", "a::second", "a::third")
    # dash knows no descriptors above 9 after >&
    pytests.run(["bash", "-c", "\n".join(lines)], tests, results.append)
    return {result.test.removeprefix("a::"): result for result in results}


class CountingPytest(unittest.TestCase):
    def test_each_result_is_counted_with_what_it_said(self):
        found = outcomes(event("started", "first"), event("passed", "first"), event("skipped", "second", "no disk"),
                         event("passed", "third[1]"), event("failed", "third[2]", "1 is not 2"))
        self.assertEqual({name: result.outcome for name, result in found.items()},
                         {"first": "passed", "second": "skipped", "third[1]": "passed", "third[2]": "failed"})
        self.assertEqual([found[name].said for name in ("second", "third[2]")], ["no disk", "1 is not 2"])

    def test_one_that_dies_fails_the_test_that_ran_and_hides_none(self):
        found = outcomes(event("passed", "first"), event("started", "second"), "echo its last words", "kill -SEGV $$")
        self.assertEqual({name: result.outcome for name, result in found.items()},
                         {"first": "passed", "second": "failed", "third": "not run"})
        self.assertIn("its last words", found["second"].said)

    def test_one_that_cannot_begin_fails_with_what_it_said(self):
        found = outcomes("echo 'ImportError: no taillab'", "exit 4")
        self.assertEqual(found["all tests"].outcome, "failed")
        self.assertIn("ImportError", found["all tests"].said)
        self.assertEqual({found[name].outcome for name in ("first", "second", "third")}, {"not run"})

    def test_without_its_environment_the_suite_is_skipped_and_says_why(self):
        with tempfile.TemporaryDirectory() as folder:
            why = Path(folder, "tests.failed")
            why.write_text("the packages cannot be installed (no network)\n")
            with mock.patch.multiple(pytests, ENVIRONMENT=Path(folder, "tests"), WHY_NOT=why):
                results = []
                pytests.Suite("test", ("a::first",)).run(results.append)
        self.assertEqual([(result.outcome, result.said) for result in results],
                         [("skipped", "the packages cannot be installed (no network)")])
        self.assertEqual(exit_code([Result("units", "one", "passed", 0.1), *results], may_skip=False), 0)
        self.assertEqual(exit_code(results, may_skip=False), 1)

    def test_the_tests_are_found_in_the_source_and_named_as_others_are(self):
        suite, = pytests.select("test")
        self.assertIn("results::a_directory_is_read_with_its_kind", suite.tests)
        self.assertEqual(pytests.name_of("tests/test_a.py::test_b[c]"), "a::b[c]")
        self.assertTrue(pytests.node(suite.tests[0]).startswith(str(pytests.TESTS)))
        self.assertEqual(pytests.select("test", ["no such test"]), [])
        live, = pytests.select("live")
        self.assertEqual(sorted(suite.tests + live.tests), sorted(pytests.names()))
        self.assertEqual(pytests.select("soak"), [])
