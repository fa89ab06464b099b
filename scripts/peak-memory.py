#!/usr/bin/env python3
"""Runs a command, prints its peak resident memory on stderr, and exits with its exit code."""
import resource
import signal
import subprocess
import sys

# Ctrl-C reaches the command as well: wait until it has cleaned up
signal.signal(signal.SIGINT, lambda *_: None)
code = subprocess.run(sys.argv[1:], check=False).returncode
peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
print(f"peak resident memory {peak_mb:.0f} MB", file=sys.stderr)
sys.exit(code if code >= 0 else 128 - code)
