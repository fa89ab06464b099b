#!/usr/bin/env bash
# The probe's live tests on kernels that this machine does not have, in QEMU: Debian 12's 6.1,
# where two of the tracepoints are missing, and its backport 6.12; both allow fentry and fexit.
# The tests are built here, as this user, and run in a guest; see vm.sh.
#
# VM_SUITES (bookworm bookworm-backports) and VM_TESTS (modules of the probe's tests/live; not
# storage, since a guest has no disk) may be set.
set -euo pipefail
cd "$(dirname "$0")/.."

# of the whole workspace: the same features, so what `cargo test --workspace` built is used
binary=$(cargo test --workspace --test live --no-run --locked --quiet --message-format=json |
  grep '/crates/probe/Cargo.toml"' | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
: "${binary:?the live tests were not built}"

filters=()
for module in ${VM_TESTS:-stamps streams network disturbances agreement}; do
  filters+=("$module::")
done
status=0
for suite in ${VM_SUITES:-bookworm bookworm-backports}; do
  scripts/vm.sh "$suite" "$binary" --test-threads=1 "${filters[@]}" || status=1
done
exit "$status"
