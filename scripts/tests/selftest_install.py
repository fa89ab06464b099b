"""The installation of packages, with stand-ins for apt-get and systemctl: no server that came with one runs."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "install.sh"
# the units that start at boot are the files of a folder
APT_GET = """#!/bin/sh
echo "$*" >>{root}/asked
[ "$1" = update ] && exit 0
cat {root}/usr/sbin/policy-rc.d >{root}/policy
touch {root}/boot/ssh.service {installs}
"""
SYSTEMCTL = """#!/bin/sh
shift # --root
case $1 in
list-unit-files) for unit in {root}/boot/*; do echo "$(basename $unit) enabled enabled"; done ;;
disable) shift; for unit in "$@"; do rm {root}/boot/$unit || exit 1; done ;;
esac
"""


def installed(units, has_systemd=True, policy=None):
    """What an installation of packages with these units says and leaves, beside one that was there."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in ("boot", "usr/sbin", "bin"):
            (root / name).mkdir(parents=True)
        (root / "boot/ssh.service").touch()
        there = root / "usr/sbin/policy-rc.d"
        if policy:
            there.write_text(policy)
        installs = " ".join(f"{root}/boot/{unit}" for unit in units)
        programs = {"apt-get": APT_GET.format(root=root, installs=installs)}
        if has_systemd:
            programs["systemctl"] = SYSTEMCTL.format(root=root)
        for name, text in programs.items():
            (root / "bin" / name).write_text(text)
            (root / "bin" / name).chmod(0o755)
        for name in ("sh", "grep", "rm", "chmod", "cat", "touch", "basename"):
            (root / "bin" / name).symlink_to(next(path for path in (Path("/bin") / name, Path("/usr/bin") / name)
                                                  if path.exists()))
        environment = {"PATH": str(root / "bin"), "INSTALL_ROOT": str(root)}
        ended = subprocess.run([SCRIPT, "memcached", "nginx-light"], env=environment, capture_output=True, text=True)
        asked = (root / "asked").read_text().splitlines()
        left = sorted(os.listdir(root / "boot"))
        return ended, asked[-1], left, (root / "policy").read_text(), there.read_text() if there.exists() else None


class Install(unittest.TestCase):
    def test_what_came_with_a_package_starts_neither_now_nor_at_boot(self):
        ended, asked, left, policy, after = installed(["memcached.service", "nginx.service"])
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertTrue(asked.endswith("memcached nginx-light"), asked)
        self.assertEqual(left, ["ssh.service"])
        self.assertIn("disabled at boot", ended.stderr)
        self.assertIn(": memcached.service nginx.service (", ended.stderr)
        self.assertIn("exit 101", policy)
        self.assertIsNone(after)

    def test_nothing_is_said_where_nothing_would_start(self):
        ended, _, left, _, _ = installed([])
        self.assertEqual((ended.returncode, ended.stderr, left), (0, "", ["ssh.service"]))

    def test_a_machine_without_systemd_and_a_policy_of_somebody_else_stay_as_they_are(self):
        ended, _, left, policy, after = installed(["nginx.service"], has_systemd=False, policy="theirs")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertEqual(left, ["nginx.service", "ssh.service"])
        self.assertEqual((policy, after), ("theirs", "theirs"))
