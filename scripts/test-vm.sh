#!/usr/bin/env bash
# Live tests in QEMU, on kernels and hardware that this machine does not have. One suite of Debian for each:
#   bookworm               the probe on 6.1, which lacks two of the tracepoints
#   bookworm-backports     the probe on 6.12; like 6.1 it allows fentry and fexit
#   trixie-backports       RDMA between two namespaces (soft RoCE), `tune` on a server's hardware, and `noise`
#                          in a guest with control groups of version 2
#   trixie-backports-tune  what `tune` changes of a network card's work, and `tune` under systemd
#   trixie-backports-rt    `noise` compared with the kernel's own meter (osnoise), which only this kernel has
# The tests are built here, as this user, and run in a guest; see vm.sh.
#
# VM_SUITES (all of these) and VM_TESTS (modules of the probe's tests/live; not storage, since a guest has no
# disk) may be set.
set -euo pipefail
cd "$(dirname "$0")/.."

# --workspace: with the same features, so that what `cargo test --workspace` built is used
built=$(cargo test --workspace --test live --no-run --locked --quiet --message-format=json)
# live_tests CRATE: prints the path of its binary
live_tests() {
  local binary
  binary=$(grep "/crates/$1/Cargo.toml\"" <<<"$built" |
           sed -n 's/.*"executable":"\([^"]*live-[^"]*\)".*/\1/p' | tail -n 1)
  echo "${binary:?the live tests of $1 were not built}"
}
probe=$(live_tests probe)
host=$(live_tests host)
taillab=$(live_tests taillab)

filters=()
for module in ${VM_TESTS:-stamps streams network disturbances agreement}; do
  filters+=("$module::")
done
status=0
all="bookworm bookworm-backports trixie-backports trixie-backports-tune trixie-backports-rt"
for suite in ${VM_SUITES:-$all}; do
  case $suite in
    trixie-backports)
      VM_SERVER=1 scripts/vm.sh "$suite" env TAILLAB_GUEST=1 \
        sh -c 'modprobe -a rdma_rxe ib_uverbs virtio_net acpi_cpufreq &&
               echo +cpuset +memory >/sys/fs/cgroup/cgroup.subtree_control && exec "$@"' vm \
        "$taillab" --test-threads=1 rdma:: hardware:: || status=1
      # without VM_SERVER: with a server's idle states the kernel does not trust QEMU's time stamp counter
      scripts/vm.sh "$suite" env TAILLAB_GUEST=1 "$taillab" --test-threads=1 \
        noise::a_loop_in_a_guest noise::a_quota || status=1 ;;
    trixie-backports-tune)
      VM_SERVER=1 scripts/vm.sh trixie-backports env TAILLAB_GUEST=1 \
        sh -c 'modprobe -a virtio_net e1000e && exec "$@"' vm \
        "$host" --test-threads=1 --nocapture receiving:: || status=1
      VM_SYSTEMD=1 scripts/vm.sh trixie-backports env TAILLAB_GUEST=1 "$taillab" \
        --test-threads=1 systemd:: || status=1 ;;
    trixie-backports-rt)
      VM_FLAVOUR=rt-amd64 scripts/vm.sh trixie-backports env TAILLAB_GUEST=1 "$taillab" \
        --test-threads=1 --nocapture noise::the_kernels_own_meter || status=1 ;;
    *)
      scripts/vm.sh "$suite" "$probe" --test-threads=1 "${filters[@]}" || status=1 ;;
  esac
done
exit "$status"
