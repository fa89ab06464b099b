#!/usr/bin/env bash
# cargo's runner for test binaries. test-runner.sh live|units BINARY [ARG ...]: live tests (the binaries
# `live`) run as root and one at a time, since they share the machine's CPUs; all others (units) run as the user.
set -euo pipefail
wanted=$1 binary=$2; shift 2
case $(basename "$binary") in
  live-*) kind=live ;;
  *) kind=units ;;
esac
[ "$wanted" = "$kind" ] || exit 0
[ "$kind" = live ] || exec "$binary" "$@"
exec "$(dirname "$0")/as-root.sh" "runs the live tests of $(basename "$binary")" \
  "$binary" --test-threads=1 --nocapture "$@"
