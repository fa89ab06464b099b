#!/usr/bin/env bash
# The probe's live tests on kernels that this machine does not have, in QEMU: Debian 12's 6.1,
# where two of the tracepoints are missing, and its backport 6.12; both allow fentry and fexit.
# The tests are built here, as this user, and run in a guest; see vm.sh.
#
# VM_SUITES (bookworm bookworm-backports) and VM_TESTS (all that are live) may be set.
set -euo pipefail
cd "$(dirname "$0")/.."

binaries=()
for test in ${VM_TESTS:-live live_streams live_network live_disturbances live_agreement}; do
  binary=$(cargo test -p taillab-probe --test "$test" --no-run --locked --quiet --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
  binaries+=("${binary:?the test $test was not built}")
done

# one boot for all of them; the first that fails does not stop the others
run='status=0; for binary; do "$binary" --test-threads=1 || status=1; done; exit $status'
status=0
for suite in ${VM_SUITES:-bookworm bookworm-backports}; do
  scripts/vm.sh "$suite" bash -c "$run" tests "${binaries[@]}" || status=1
done
exit "$status"
