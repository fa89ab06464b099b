#!/usr/bin/env bash
# Builds the load generators with which `make bench` compares ours, in target/peers (mutilate and wrk2,
# from their sources), and installs the packages that they and the comparison need.
set -euo pipefail
cd "$(dirname "$0")/.."
peers=$PWD/target/peers
mkdir -p "$peers"

scripts/setup.sh peers

# source_of NAME REPOSITORY: makes a shallow clone, once
source_of() {
  [ -d "$peers/$1" ] || git clone --quiet --depth 1 "https://github.com/$2" "$peers/$1"
}

source_of mutilate leverich/mutilate
if [ ! -x "$peers/mutilate/mutilate" ]; then
  # its build file is for Python 2
  sed -i -E 's/^( *)print (".*"),?$/\1print(\2)/; s/print "(.*)"/print("\1")/' "$peers/mutilate/SConstruct"
  (cd "$peers/mutilate" && scons >build.log 2>&1) || { tail "$peers/mutilate/build.log" >&2; exit 1; }
fi

source_of wrk2 giltene/wrk2
if [ ! -x "$peers/wrk2/wrk" ]; then
  make -C "$peers/wrk2" >"$peers/wrk2.log" 2>&1 || { tail "$peers/wrk2.log" >&2; exit 1; }
fi
