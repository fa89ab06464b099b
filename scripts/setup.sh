#!/usr/bin/env bash
# Installs what is missing for one purpose, on Debian and Ubuntu: build, run, test, wheel (the Python package), vm (a
# guest in QEMU), servers (real servers with known troubles), or peers (other load generators, to compare with).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
purpose=${1:-}

if ! command -v cargo >/dev/null; then
  [ -x "$HOME/.cargo/bin/cargo" ] && hint='add it to the PATH: . "$HOME/.cargo/env"' ||
    hint="get it from https://rustup.rs: curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
  echo "error: no Rust toolchain (cargo) found; $hint" >&2
  exit 1
fi

# PACKAGE:FILE or PACKAGE:COMMAND; the file or command shows that the package is installed
build=(clang:clang libelf-dev:/usr/include/libelf.h zlib1g-dev:/usr/include/zlib.h
       gcc:cc make:make pkg-config:pkg-config)
run=(iproute2:ip memcached:memcached nginx-light:nginx)
# On Ubuntu the browser's package has another name, and installs the snap.
browser=chromium
grep -qs '^ID=ubuntu' /etc/os-release && browser=chromium-browser
vm=(acpica-tools:/usr/bin/iasl qemu-system-x86:/usr/bin/qemu-system-x86_64 busybox-static:/bin/busybox
    cpio:/bin/cpio xz-utils:xz kmod:/bin/kmod systemd:/lib/systemd/systemd
    debian-archive-keyring:/usr/share/keyrings/debian-archive-keyring.gpg)
# rdma-core depends on udev; for RDMA in a guest the library and its drivers are enough
test=("${run[@]}" redis-server:redis-server "$browser:chromium" python3:python3 procps:/bin/kill
      ibverbs-providers:/etc/libibverbs.d/rxe.driver)
# mariadb-install-db is in mariadb-server-core on Ubuntu, and comes along
servers=("${run[@]}" varnish:varnishd haproxy:haproxy default-jdk-headless:javac golang-go:go redis-server:redis-server
         redis-tools:redis-cli mariadb-server:mariadbd prometheus:prometheus python3:python3 util-linux:setpriv)
peers=("${run[@]}" sockperf:sockperf git:git g++:g++ make:make scons:scons gengetopt:gengetopt python3:python3
       libevent-dev:/usr/include/event.h libzmq3-dev:/usr/include/zmq.h cppzmq-dev:/usr/include/zmq.hpp
       libssl-dev:/usr/include/openssl/ssl.h zlib1g-dev:/usr/include/zlib.h)

case $purpose in
  build) wanted=("${build[@]}") ;;
  run)   wanted=("${run[@]}") ;;
  test)  wanted=("${build[@]}" "${test[@]}") ;;
  wheel) wanted=("${build[@]}" python3:python3) ;;
  vm)    wanted=("${vm[@]}") ;;
  servers) wanted=("${build[@]}" "${servers[@]}") ;;
  peers) wanted=("${peers[@]}") ;;
  *) echo "error: setup.sh knows build, run, test, wheel, vm, servers and peers, not '$purpose'" >&2; exit 2 ;;
esac

there() { case $1 in /*) [ -e "$1" ] ;; *) PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null ;; esac; }
missing=()
for entry in "${wanted[@]}"; do
  there "${entry#*:}" || missing+=("${entry%%:*}")
done
case $purpose in
  # Debian has a part of the standard library in a package of its own
  test | wheel) python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv) ;;
esac

# The tests of the Python package have an environment with pinned versions. Without it they are skipped, and
# scripts/tests says why; all other tests run.
python_environment() {
  [ "$purpose" = test ] || return 0
  local root=$here/..
  (cd "$root" && scripts/python-env.sh "${CARGO_TARGET_DIR:-target}/python/tests" python/tests/requirements.txt) || true
}

if [ ${#missing[@]} -eq 0 ]; then
  python_environment
  exit 0
fi

if ! command -v apt-get >/dev/null; then
  echo "error: please install: ${missing[*]} (automatic installation knows only apt-get)" >&2
  exit 1
fi
echo "installing: ${missing[*]}" >&2
"$here/as-root.sh" "installs the Debian packages ${missing[*]}" "$here/install.sh" "${missing[@]}"
python_environment
