#!/usr/bin/env bash
# Builds the packages, and the program in them: fat LTO, laid out by a training run (profile-guided optimisation). Takes
# a quarter of an hour on two cores. Needs no root: what records is not trained.
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf '\n== %s\n' "$*"; }
host=$(rustc -vV | sed -n 's/^host: //p')
profdata=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
[ -x "$profdata" ] || rustup component add llvm-tools
work=$PWD/target/pgo
rm -rf "$work/profiles" "$work/files"
mkdir -p "$work/profiles" "$work/files"

# The counts are found again by the functions' names, so both builds have all in common: profile, target, and what
# is built, since the example chooses features.
# --target: otherwise build scripts count, too.
build() {
  RUSTFLAGS="-C $1" cargo build --profile dist --locked --target "$host" --target-dir "$work/$2" \
    --workspace --bin taillab --example ten_million
}

say "a build that counts what runs"
build "profile-generate=$work/profiles" counting

say "training"
server=
trap '[ -z "$server" ] || kill -INT "$server" 2>/dev/null || true; rm -rf "$work/files"' EXIT
built=$work/counting/$host/dist recording=$work/files/recording.tlc
taillab() { "$built/taillab" "$@" >/dev/null; }
"$built/examples/ten_million" 1 "$recording" >/dev/null
# what runs only with other options would count as seldom used
taillab explain "$recording" --json
taillab explain "$recording" -o "$work/files/explained"
# an instrument can be taken out
if taillab sim --help 2>/dev/null; then
  taillab sim -q --workers 4 --discipline fifo,lifo,jsq,static:64,work-stealing:1us,ps \
    --service exponential:50us -n 5M
  taillab sim -q --exact -n 20M
fi
# serve ARCHITECTURE TARGET: loads a server over loopback
serve() {
  "$built/taillab" serve "$1" --listen 127.0.0.1:7799 -q & server=$!
  sleep 0.5
  # 4: the training ran beside something else
  taillab load "$2://127.0.0.1:7799" -u 50% -d 5s || [ $? -eq 4 ]
  taillab load "$2://127.0.0.1:7799" --ping-pong -d 2s || [ $? -eq 4 ]
  kill -INT "$server"; wait "$server" || true
  server=
}
serve epoll-per-worker echo+tcp
serve udp-shared echo+udp
if taillab rtt --help 2>/dev/null; then
  taillab rtt -q --proto tcp,udp,unix,shm --count 20000 --runs 1
fi
"$profdata" merge -o "$work/merged.profdata" "$work/profiles"

say "the build for packages"
build "profile-use=$work/merged.profdata" trained
mkdir -p target/dist
cp "$work/trained/$host/dist/taillab" target/dist/taillab

say "packages"
scripts/package.sh target/dist/taillab target/dist
