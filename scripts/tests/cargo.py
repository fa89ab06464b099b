"""Builds the tests once and finds their binaries."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")


@dataclass(frozen=True)
class Binary:
    """A test binary: of `crate` (its folder's name), called `target` (`units`: the tests in the source)."""

    crate: str
    target: str
    path: Path
    # where cargo runs it: the crate's folder
    folder: Path

    @property
    def suite(self):
        return f"{self.crate} {self.target}"

    @property
    def is_live(self):
        return self.target == "live"


def environment():
    """What cargo and the tests get."""
    env = dict(os.environ)
    # The same cases each time, so that a result can be repeated. A plain `cargo test` draws new ones.
    env.setdefault("PROPTEST_RNG_SEED", "1")
    # Where nobody builds incrementally, data for it would only cost time. Cargo makes the folder in any case, and
    # builds all anew if this changes.
    if "CI" in env or not any((TARGET / "debug").glob("incremental/*")):
        env.setdefault("CARGO_INCREMENTAL", "0")
    return env


def build():
    """All test binaries; `None` if they cannot be built, and cargo has said why."""
    # --tests: without the examples, which clippy checks; there are no doc tests
    command = ["cargo", "test", "--workspace", "--tests", "--no-run", "--locked",
               "--message-format=json-render-diagnostics"]
    built = subprocess.run(command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        return None
    messages = (json.loads(line) for line in built.stdout.splitlines())
    artifacts = (message for message in messages if message.get("executable"))
    binaries = [_binary(artifact) for artifact in artifacts if artifact["profile"]["test"]]
    return sorted(binaries, key=lambda binary: (binary.is_live, binary.crate, binary.target))


def _binary(artifact):
    folder = Path(artifact["manifest_path"]).parent
    units = not {"test"} & set(artifact["target"]["kind"])
    target = "units" if units else artifact["target"]["name"]
    return Binary(folder.name, target, Path(artifact["executable"]), folder)


def lint():
    """(name, passed) for the format and both sets of lints."""
    clippy = ["cargo", "clippy", "--workspace", "--all-targets", "--locked"]
    warnings = ["--", "-D", "warnings"]
    commands = [
        ("format", ["cargo", "fmt", "--all", "--check"]),
        ("lints", clippy + warnings),
        ("lints without the eBPF probe", clippy + ["--no-default-features"] + warnings),
    ]
    for name, command in commands:
        print(f"\n== {name}", file=sys.stderr, flush=True)
        yield name, subprocess.run(command, cwd=ROOT, env=environment()).returncode == 0
