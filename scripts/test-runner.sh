#!/usr/bin/env bash
# cargo's runner for test binaries: live tests (tests/live, tests/live_*.rs) run as root and one
# at a time, since they share the machine's CPUs; everything else runs as it is.
set -euo pipefail
binary=$1; shift
case $(basename "$binary") in
  live_* | live-*)
    exec "$(dirname "$0")/as-root.sh" "runs the live tests of $(basename "$binary")" \
      "$binary" --test-threads=1 --nocapture "$@" ;;
  *) exec "$binary" "$@" ;;
esac
