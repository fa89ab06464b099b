#!/usr/bin/env python3
"""Runs a command and says on stderr how much memory it took at most; exits as it did."""
import resource
import subprocess
import sys

code = subprocess.run(sys.argv[1:], check=False).returncode
peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
print(f"peak resident memory {peak_mb:.0f} MB", file=sys.stderr)
sys.exit(code)
