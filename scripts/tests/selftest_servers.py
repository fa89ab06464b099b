"""What judges the real servers (scripts/servers): which cause is named, what spoils an attempt; and nothing outlives it."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SERVERS = Path(__file__).resolve().parents[1] / "servers"
sys.path.insert(0, str(SERVERS))

import checks  # noqa: E402

# starts a program that leaves a child in a session of its own, which does not end when it is asked to; then ends all
LEAVES = """
import sys
import tempfile
sys.path.insert(0, {servers!r})
import processes
from pathlib import Path
processes.ENDS_WITHIN_S = 0.3
processes.adopt_orphans()
words = ["sh", "-c", "setsid sh -c 'trap \\"\\" TERM; echo $$; while :; do sleep 1; done' & wait"]
program = processes.Program("parent", words, Path({folder!r}))
program.wait_for("its child", lambda: program.out.read_text().endswith("\\n"))
print(program.pid, program.out.read_text())
processes.end_all()
"""


def share(cause, above_p99, culprit=None, **more):
    return {"cause": cause, "culprit": culprit, "excess_share_above_p99": {"value": above_p99}, **more}


def thread(name):
    return {"kind": "thread", "name": name, "pid": 1, "tid": None}


class Judging(unittest.TestCase):
    def test_only_what_the_recording_charges_to_the_machine_spoils_an_attempt(self):
        def spoiled(*causes, ours=(), lost=0, blind=0):
            matching = {"lost_events": lost, "blind_ns": blind}
            return checks.spoiled({"matching": matching, "causes": causes}, ours)

        pause = share("pause", 0.6)
        self.assertIsNone(spoiled())
        self.assertIsNone(spoiled(pause, share("background", 0.09)))
        compiler = share("background", 0.3), share("irq", 0.1), pause, share("background", 0.25, thread("rustc"))
        said = spoiled(*compiler)
        self.assertIn("40% of the excess above p99 is the machine's, chiefly background (rustc)", said)
        # what the test has started is its own fault
        self.assertIn("15%", spoiled(*compiler, ours=("rustc",)))
        own = share("background", 0.3), share("background", 0.3, thread("client"))
        self.assertIsNone(spoiled(*own, ours=("client",)))
        server = share("background", 0.3), share("background", 0.3, {"kind": "own_thread", "name": "heap"})
        self.assertIsNone(spoiled(*server))
        self.assertIn("lost 7 events", spoiled(pause, lost=7))
        # what was not seen is nobody's only where the probe was blind
        unseen = pause, share("unobserved", 0.2)
        self.assertIsNone(spoiled(*unseen))
        self.assertIn("20% of the excess above p99", spoiled(*unseen, blind=30_000_000))

    def test_the_first_finding_about_a_cause_counts_and_its_culprit_too(self):
        findings = [{"text": "an overload", "cause": None}, {"text": "a pause", "cause": "pause"}]
        collector = {"kind": "runtime", "task": "garbage collection", "threads": []}
        causes = [share("pause", 0.6), share("pause", 0.6, collector)]
        result = {"explanation": {"findings": findings}, "causes": causes}
        is_collector = lambda who: who["task"] == "garbage collection"  # noqa: E731
        self.assertTrue(checks.named_first(result, ("pause",), is_collector).holds)
        self.assertFalse(checks.named_first(result, ("upstream",), is_collector).holds)
        self.assertFalse(checks.named_first(result, ("pause",), lambda who: who["task"] == "fork").holds)
        nothing = {"explanation": {"findings": []}, "causes": []}
        self.assertFalse(checks.named_first(nothing, ("pause",), is_collector).holds)

    def test_a_time_that_is_not_known_agrees_with_nothing(self):
        self.assertTrue(checks.near("x", 95, 100, 0.1).holds)
        self.assertFalse(checks.near("x", 85, 100, 0.1).holds)
        self.assertFalse(checks.near("x", None, 100, 0.1).holds)
        self.assertFalse(checks.within("x", 3, 4, 9).holds)


class Ending(unittest.TestCase):
    def test_what_a_program_leaves_in_another_session_is_ended_too(self):
        with tempfile.TemporaryDirectory() as folder:
            text = LEAVES.format(servers=str(SERVERS), folder=folder)
            ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        for pid in ran.stdout.split():
            self.assertFalse(Path("/proc", pid).exists(), ran.stdout)
