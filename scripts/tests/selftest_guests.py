"""The runner of guests, on a vm.sh that is a script: what is counted, and what is tried again."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

import guests
from selftest import ended, started

BINARY = r"""#!/bin/sh
case "$*" in *--ignored*) ;; *) printf 'm::first: test\nm::second: test\nm::third: test\nm::fourth: test\n' ;; esac
"""
# what a guest writes is there when it says that it boots, so that nothing here depends on how fast this machine is
VM = """#!/bin/sh
cd {folder}; echo "$*" >>tries; rm -rf fake.out; mkdir fake.out
boots() {{ echo "50000 1 1.5" >fake.out/.loop; cat >fake.out/said; }}
says() {{ echo "booting 6.1 with 4 emulated CPUs"; }}
case $(wc -l <tries) in
1) {first} ;;
*) {second} ;;
esac
"""
HANGS = "says; sleep 600"
ENDS = "echo 0 >fake.out/.code; says"


def boots(*lines):
    return "{ " + "; ".join([*lines, ":"]) + "; } | boots; "


def tried(first, second):
    """The result of a guest of four tests that does this in its tries, and what each was asked to do."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for name, text in (("binary", BINARY), ("vm.sh", VM.format(folder=folder, first=first, second=second))):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        limits = {"BOOT_S": 0.2, "TEST_WAITS_S": 0.2, "LOOK_EVERY_S": 0.05, "CACHE": folder, "VM": folder / "vm.sh"}
        guest = guests.Guest("fake", "bookworm", "probe", ("m::",), 0)
        with mock.patch.multiple(guests, **limits):
            [found] = guests.run([guest], {"probe": folder / "binary"}, folder / "log", lambda _: None)
        return found, (folder / "tries").read_text().splitlines()


def outcomes(found):
    return [result.outcome for result in found.results]


class Guests(unittest.TestCase):
    def test_a_guest_that_hangs_goes_on_with_what_has_not_ended(self):
        found, tries = tried(boots(started("first"), ended("first"), started("second")) + HANGS,
                             boots(started("third"), ended("third"), started("fourth"), ended("fourth"),
                                   started("second"), ended("second")) + ENDS)
        self.assertEqual((found.outcome, outcomes(found)), ("passed", ["passed"] * 4))
        self.assertEqual(len(tries), 2)
        self.assertRegex(tries[1], "--exact m::third m::fourth; .* --exact m::second;")
        self.assertIn("m::second", found.why[0])

    def test_what_ended_before_a_hang_is_counted(self):
        found, tries = tried(boots(started("first"), ended("first", "failed"), started("second")) + HANGS,
                             boots(started("third")) + HANGS)
        self.assertEqual((found.outcome, outcomes(found)), ("hung", ["failed"] + ["not run"] * 3))
        self.assertEqual(len(tries), 2)

    def test_a_guest_that_does_not_boot_has_all_its_tests_not_run(self):
        found, tries = tried(HANGS, "echo 'error: no kernel'; exit 1")
        self.assertEqual((found.outcome, outcomes(found), len(tries)), ("did not boot", ["not run"] * 4, 2))
        self.assertEqual(found.why, ["it did not boot within 0 s", "error: no kernel"])

    def test_a_test_that_fails_is_not_repeated(self):
        lines = [line for name in ("first", "second", "third", "fourth") for line in (started(name), ended(name, "failed"))]
        found, tries = tried(boots(*lines) + ENDS, ENDS)
        self.assertEqual((found.outcome, outcomes(found), len(tries)), ("failed", ["failed"] * 4, 1))

    def test_a_program_that_dies_fails_its_test(self):
        found, tries = tried(boots(started("first"), ended("first"), started("second")) + ENDS, ENDS)
        self.assertEqual((found.outcome, outcomes(found)), ("failed", ["passed", "failed", "not run", "not run"]))
        self.assertEqual(len(tries), 1)
