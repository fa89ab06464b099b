#!/usr/bin/env bash
# Runs every test. Built as the user; only the live tests run as root (test-runner.sh), and nothing runs beside them.
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf '\n== %s\n' "$*"; }
log=$(mktemp) guest_logs=$(mktemp -d) guests=
trap '[ -z "$guests" ] || kill -- "-$guests" 2>/dev/null || true; rm -rf "$log" "$guest_logs"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Property tests draw the same cases each time, so that a result can be repeated. A plain `cargo test` draws new ones.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-1}

# CI builds everything once: incremental data would only cost time.
[ -z "${CI:-}" ] || export CARGO_INCREMENTAL=0

say "format and lints"
cargo fmt --all --check
cargo clippy --workspace --all-targets --locked --quiet -- -D warnings

say "lints without the eBPF probe (no clang, no root)"
cargo clippy --workspace --all-targets --no-default-features --locked --quiet -- -D warnings

say "tests"
status=0
# --tests: without the examples, which clippy has checked; there are no doc tests
tests() { cargo test --workspace --tests --locked "$@"; }
# run units|live
run() {
  tests --no-fail-fast --config "target.'cfg(all())'.runner=['$PWD/scripts/test-runner.sh','$1']" 2>&1 |
    tee -a "$log" || status=$?
}
tests --no-run --quiet

# Tests in QEMU of what this machine lacks, on two kernels at a time. QEMU uses one CPU for each, so they run
# at the same time as the tests that do not mind a busy machine.
in_qemu() {
  local older failed=0
  # an older kernel without two of the tracepoints: its fentry and fexit hooks, and whether they agree with
  # the tracepoints; `make vm` runs all suites
  VM_SUITES=bookworm VM_TESTS="stamps agreement" scripts/test-vm.sh >"$guest_logs/1" 2>&1 & older=$!
  # RDMA between two namespaces, and tune on a server's hardware
  VM_SUITES=trixie-backports scripts/test-vm.sh >"$guest_logs/2" 2>&1 || failed=1
  wait "$older" || failed=1
  return "$failed"
}
if [ -n "${TAILLAB_SKIP_VM:-}" ]; then
  echo "SKIPPED the tests in QEMU (TAILLAB_SKIP_VM is set)" | tee -a "$log"
else
  set -m # a process group of its own, to end all of it
  in_qemu </dev/null & guests=$!
  set +m
fi
run units
if [ -n "$guests" ]; then
  say "tests on other kernels, in QEMU"
  wait "$guests" || status=$?
  guests=
  cat "$guest_logs"/* | tee -a "$log"
fi
say "live tests"
run live

# One line counts everything; a skipped test is counted and shown.
sum() { awk -v what="$1;" '/^test result:/ {for (i = 2; i <= NF; i++) if ($i == what) n += $(i - 1)} END {print n + 0}' "$log"; }
# With one test at a time, the test's name is before it on the same line.
skipped_lines=$(grep -c 'SKIPPED ' "$log" || true)
passed=$(sum passed) failed=$(sum failed) ignored=$(sum ignored)
skipped=$((skipped_lines + ignored))
grep -o 'SKIPPED .*' "$log" || true
if [ "$skipped" -gt 0 ] && [ -e /sys/kernel/btf/vmlinux ] && [ -z "${TAILLAB_SKIP_LIVE:-}${TAILLAB_SKIP_VM:-}" ]; then
  echo "error: $skipped tests were skipped although this kernel has BTF" >&2
  status=1
fi
if [ "$passed" -eq 0 ]; then echo "error: no test ran" >&2; status=1; fi
printf '\n%s passed, %s failed, %s skipped\n' "$passed" "$failed" "$skipped"
exit "$status"
