"""The packages that scripts/package.sh makes, of a program that is a script; and the dashboard, which must ask for what is served."""

import hashlib
import json
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """#!/bin/sh
case $1 in
  --version) echo taillab 0.1.0 ;;
  man) echo .TH taillab >"$2/taillab.1"; echo .TH taillab-run >"$2/taillab-run.1" ;;
  completions) echo "# $2" ;;
esac
"""
FILES = [
    "bin/taillab",
    "share/bash-completion/completions/taillab",
    "share/doc/taillab/LICENSE-MIT",
    "share/doc/taillab/daemonset.yaml",
    "share/doc/taillab/grafana.json",
    "share/fish/vendor_completions.d/taillab.fish",
    "share/man/man1/taillab-run.1.gz",
    "share/man/man1/taillab.1.gz",
    "share/zsh/vendor-completions/_taillab",
]


def packaged(folder):
    program = folder / "program"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEB_COMPRESSION": "none", "SOURCE_DATE_EPOCH": "1700000000"}
    command = [ROOT / "scripts" / "package.sh", program, folder / "out"]
    subprocess.run(command, env=env, check=True, capture_output=True, timeout=60)
    return sorted((folder / "out").iterdir())


def said(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


class Packages(unittest.TestCase):
    def test_both_have_the_program_its_pages_and_completions_and_a_checksum(self):
        with tempfile.TemporaryDirectory() as place:
            sums, tar, deb = packaged(Path(place))
            self.assertEqual((deb.suffix, tar.name[-7:], sums.name), (".deb", ".tar.gz", "SHA256SUMS"))
            listed = said("dpkg-deb", "--contents", deb)
            for name in FILES:
                self.assertIn(f"./usr/{name}\n", listed)
                self.assertIn(f"/{name}\n", said("tar", "-tzf", tar))
            self.assertRegex(listed, r"(?m)^-rwxr-xr-x root/root .*\./usr/bin/taillab$")
            control = said("dpkg-deb", "--field", deb)
            self.assertRegex(control, r"(?m)^Version: 0\.1\.0$")
            self.assertRegex(control, r"(?m)^Depends: .*libc6")
            for line in sums.read_text().splitlines():
                digest, name = line.split()
                self.assertEqual(hashlib.sha256((sums.parent / name).read_bytes()).hexdigest(), digest)

    def test_the_same_source_gives_the_same_bytes(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            both = [[path.read_bytes() for path in packaged(Path(place))] for place in (one, other)]
            self.assertEqual(*both)


class Dashboard(unittest.TestCase):
    def test_it_asks_only_for_what_a_live_trace_serves(self):
        served = (ROOT / "crates/report/src/metrics.rs").read_text()
        panels = json.loads((ROOT / "docs/grafana.json").read_text())["panels"]
        asked = {name for panel in panels for target in panel["targets"] for name in re.findall(r"taillab_\w+", target["expr"])}
        self.assertGreater(len(asked), 8)
        for name in asked:
            self.assertIn(re.sub(r"_(total|bucket|sum|count)$", "", name), served)
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))
