"""The tests of the Python package: pytest in an environment of its own, with the program of the same build."""

import ast
import json
import os
import selectors
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import suites
from cargo import ROOT, TARGET, environment
from libtest import HANGS_AFTER_S
from results import Result

NAME = "python"
TESTS = ROOT / "python" / "tests"
# made by scripts/setup.sh; where it could not be made, the reason is beside it
ENVIRONMENT = TARGET / "python" / "tests"
WHY_NOT = ENVIRONMENT.with_name("tests.failed")


@dataclass(frozen=True)
class Suite:
    """Tests of the package, by their names: `results::a_directory_is_read_with_its_kind`."""

    stage: str
    tests: tuple
    name = NAME
    is_live = False

    @property
    def limit_s(self):
        return suites.limit_s(self.stage, self.name)

    def run(self, on_result):
        if not (ENVIRONMENT / "stamp").is_file():
            why = missing()
            for test in self.tests:
                on_result(Result(NAME, test, "skipped", 0.0, why, lacks_network=True))
            return
        command = [ENVIRONMENT / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_results"]
        run([*command, *map(node, self.tests)], self.tests, on_result)


def select(stage, only=()):
    """The suite of a stage, with those tests whose names contain one of `only`. They belong to `test`, and those that
    suites.toml lists to `live`."""
    every = names()
    in_live = suites.TABLES["units_in_live"].get(NAME, [])
    idle = [test for test in in_live if test not in every]
    if idle:
        raise suites.UnknownTest(f"suites.toml names tests that {NAME} does not have: {', '.join(idle)}")
    of_stage = {"test": [test for test in every if test not in in_live], "live": in_live}.get(stage, [])
    tests = tuple(test for test in of_stage if not only or any(part in test for part in only))
    return [Suite(stage, tests)] if tests else []


def names():
    """All tests. They are read from the source, since pytest may not be there."""
    found = []
    for path in sorted(TESTS.glob("test_*.py")):
        functions = (each.name for each in ast.parse(path.read_text()).body if isinstance(each, ast.FunctionDef))
        found.extend(name_of(f"{path.name}::{name}") for name in functions if name.startswith("test_"))
    return found


def name_of(node_id):
    """`x/test_a.py::test_b[c]` as `a::b[c]`."""
    file, _, function = node_id.partition("::")
    return f"{Path(file).stem.removeprefix('test_')}::{function.removeprefix('test_')}"


def node(name):
    """`a::b` as pytest is told it."""
    module, _, function = name.partition("::")
    return f"{TESTS / f'test_{module}.py'}::test_{function}"


def missing():
    """Why there is no environment, in one line."""
    try:
        return WHY_NOT.read_text().strip()
    except OSError:
        return f"there is no {ENVIRONMENT}: run `scripts/setup.sh test`"


def run(command, tests, on_result):
    """Runs pytest, which writes each result to a pipe (pytest_results.py); `on_result` gets each Result."""
    ours, theirs = os.pipe()
    paths = [str(ROOT / "python"), str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {
        **environment(),
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TAILLAB_BINARY": str(TARGET / "debug" / "taillab"),
        "TEST_RESULTS": str(theirs),
    }
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, cwd=ROOT / "python", env=env, stdin=subprocess.DEVNULL, stdout=output,
                                 stderr=subprocess.STDOUT, pass_fds=[theirs], start_new_session=True)
        os.close(theirs)
        reader = Reader(on_result)
        try:
            hung = follow(ours, reader)
        finally:
            end(child, ours)
        output.seek(0)
        report_missing(reader, tests, hung, output.read().decode(errors="replace"), on_result)


def follow(pipe, reader):
    """Reads until the end; whether it had to be given up."""
    selector = selectors.DefaultSelector()
    selector.register(pipe, selectors.EVENT_READ)
    rest = b""
    while True:
        if not selector.select(timeout=HANGS_AFTER_S):
            return True
        piece = os.read(pipe, 1 << 16)
        if not piece:
            return False
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            reader.line(json.loads(line))


def end(child, pipe):
    """Ends what is left of it, also what it started and did not end."""
    os.close(pipe)
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


class Reader:
    """Turns the lines of pytest_results.py into results."""

    def __init__(self, on_result):
        self.on_result = on_result
        self.seen, self.running = set(), None

    def line(self, event):
        name = name_of(event["test"])
        if event["outcome"] == "started":
            self.running = name
            return
        self.running = None
        self.seen.add(name.partition("[")[0])
        self.on_result(Result(NAME, name, event["outcome"], event["seconds"], event["said"]))


def report_missing(reader, tests, hung, output, on_result):
    """A pytest that ended early took with it the test that ran and all that would have followed."""
    said = "\n".join(output.splitlines()[-40:])
    if reader.running:
        why = f"gave no sign of life for {HANGS_AFTER_S} s" if hung else "ended its process"
        on_result(Result(NAME, reader.running, "failed", 0.0, f"{why}\n{said}"))
        reader.seen.add(reader.running.partition("[")[0])
    unseen = [test for test in tests if test not in reader.seen]
    if unseen and not reader.seen:
        # nothing ran: an error in the tests or of pytest itself, which says it once
        on_result(Result(NAME, "all tests", "failed", 0.0, said))
    for test in unseen:
        on_result(Result(NAME, test, "not run", 0.0, "pytest ended before it"))
