#!/usr/bin/env bash
# The probe's live tests on kernels that this machine does not have, in QEMU: Debian 12's 6.1,
# where two of the tracepoints are missing, and its backport 6.12; both allow fentry and fexit.
# And, on Debian 13's newest backport, RDMA between two namespaces by soft RoCE, what `tune` changes on
# hardware that this machine lacks, and what takes time in a guest with control groups of version 2; on its
# flavour with PREEMPT_RT, the only one that has the kernel's own meter (osnoise), the two side by side.
# The tests are built here, as this user, and run in a guest; see vm.sh.
#
# VM_SUITES (bookworm bookworm-backports trixie-backports trixie-backports-rt) and VM_TESTS (modules of the probe's
# tests/live; not storage, since a guest has no disk) may be set.
set -euo pipefail
cd "$(dirname "$0")/.."

# of the whole workspace: the same features, so what `cargo test --workspace` built is used
built=$(cargo test --workspace --test live --no-run --locked --quiet --message-format=json)
# live_tests CRATE: its binary
live_tests() {
  local binary
  binary=$(grep "/crates/$1/Cargo.toml\"" <<<"$built" |
           sed -n 's/.*"executable":"\([^"]*live-[^"]*\)".*/\1/p' | tail -n 1)
  echo "${binary:?the live tests of $1 were not built}"
}

filters=()
for module in ${VM_TESTS:-stamps streams network disturbances agreement}; do
  filters+=("$module::")
done
status=0
for suite in ${VM_SUITES:-bookworm bookworm-backports trixie-backports trixie-backports-rt}; do
  case $suite in
    trixie-backports)
      VM_SERVER=1 scripts/vm.sh "$suite" env TAILLAB_GUEST=1 \
        sh -c 'modprobe -a rdma_rxe ib_uverbs virtio_net acpi_cpufreq &&
               echo +cpuset +memory >/sys/fs/cgroup/cgroup.subtree_control && exec "$@"' vm \
        "$(live_tests taillab)" --test-threads=1 rdma:: hardware:: || status=1
      # where CPUs have idle states like a server's, QEMU's time stamp counter is not trusted
      scripts/vm.sh "$suite" env TAILLAB_GUEST=1 "$(live_tests taillab)" --test-threads=1 \
        noise::a_loop_in_a_guest noise::a_quota || status=1 ;;
    trixie-backports-rt)
      VM_FLAVOUR=rt-amd64 scripts/vm.sh trixie-backports env TAILLAB_GUEST=1 "$(live_tests taillab)" \
        --test-threads=1 --nocapture noise::the_kernels_own_meter || status=1 ;;
    *)
      scripts/vm.sh "$suite" "$(live_tests probe)" --test-threads=1 "${filters[@]}" || status=1 ;;
  esac
done
exit "$status"
