#!/usr/bin/env bash
# live.sh PACKAGE [FILTER ...]: runs the live tests of one package: all of them, or those whose names
# (with the module, as in streams::memcached) contain a filter. Built as the user, run as root.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { echo "usage: live.sh taillab|taillab-probe|taillab-host|taillab-testkit [FILTER ...]" >&2; exit 2; }
package=$1; shift
exec cargo test --package "$package" --test live --locked \
  --config "target.'cfg(all())'.runner=['$PWD/scripts/test-runner.sh','live']" -- "$@"
