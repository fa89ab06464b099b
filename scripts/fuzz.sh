#!/usr/bin/env bash
# fuzz.sh [SECONDS]: damaged files, answers and streams for every reader, from another seed each time, for an hour or
# for SECONDS. Half of the time is for files given to the commands, a quarter for answers to the codecs, and a quarter for
# the properties of the framings and of redaction.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-3600}
case $seconds in ''|0*|*[!0-9]*) echo "error: fuzz.sh [SECONDS], e.g. fuzz.sh 60" >&2; exit 2 ;; esac
tests() { ${CARGO:-cargo} test --workspace --locked "$@"; }
tests --no-run --quiet --test cli --test integration
quarter=$(((seconds + 3) / 4))

echo "== files given to the commands, $((2 * quarter)) s"
FUZZ_SECONDS=$((2 * quarter)) tests --test cli -- --nocapture damaged_files

echo "== answers to the codecs, $quarter s"
FUZZ_SECONDS=$quarter tests --test integration -- --nocapture fuzz::every_protocol

echo "== what clients and servers write, $quarter s"
end=$((SECONDS + quarter))
rounds=0
while [ $SECONDS -lt $end ]; do
  # each round draws other cases; the first ones are few, so that a short run ends in time
  said=$(PROPTEST_CASES=$((100 << (rounds < 5 ? rounds : 5))) tests --quiet --test integration -- framing:: redaction:: 2>&1) ||
    { echo "$said" >&2; exit 1; }
  rounds=$((rounds + 1))
done
echo "$rounds rounds"
