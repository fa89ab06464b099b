#!/usr/bin/env python3
"""Runs a command, prints its peak resident memory on stderr, and exits with its exit code."""
import resource
import subprocess
import sys

code = subprocess.run(sys.argv[1:], check=False).returncode
peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
print(f"peak resident memory {peak_mb:.0f} MB", file=sys.stderr)
sys.exit(code)
