#!/usr/bin/env bash
# recorder.sh [SECONDS]: records a server at its peak for ten minutes, or for SECONDS. Fails if an event
# was lost, if memory was not bounded, or if a request is missing from the file.
# First the probe and the file alone, then `taillab trace` on memcached: recording, analysis and
# all files in at most 300 MB.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-600}
case $seconds in ''|0*|*[!0-9]*) echo "error: recorder.sh [SECONDS], e.g. recorder.sh 60" >&2; exit 2 ;; esac
target=${CARGO_TARGET_DIR:-target}/release
cargo build --release --locked --quiet
cargo build --release --locked --quiet -p taillab-probe --example soak

echo "== the probe and the file, an echo server at its peak, $seconds s"
scripts/as-root.sh "loads the kernel probe for $seconds s" "$target/examples/soak" "$seconds"

echo "== taillab trace, memcached at its peak, $seconds s"
port=21211 last=$(($(nproc) - 1))
out=$(mktemp -d)
children=()
trap 'kill "${children[@]}" 2>/dev/null || true; rm -rf "$out"' EXIT
user=(); [ "$(id -u)" -ne 0 ] || user=(-u nobody)
taskset -c "$last" memcached "${user[@]}" -l 127.0.0.1 -p 0 -U "$port" -t 1 -m 64 &
children+=($!)
sleep 1
"$target/taillab" load "memcached+udp://127.0.0.1:$port" -R max --warmup 0s -d "$((seconds + 5))s" \
  --client-cpus 0 --oversubscribe --floor off -q >"$out/load.txt" 2>&1 &
children+=($!)
sleep 2
scripts/as-root.sh "traces memcached for $seconds s" \
  python3 scripts/peak-memory.py "$target/taillab" trace --port "$port" --udp -d "${seconds}s" -q --json -o "$out/trace" >"$out/trace.json" 2>"$out/trace.err" ||
  [ $? -eq 4 ] || { cat "$out/trace.err" >&2; exit 1; } # its verdict is not tested: the machine is too busy
began=$(date +%s%N)
"$target/taillab" explain "$out/trace" -q --json >"$out/again.json" || [ $? -eq 4 ]
again_ms=$((($(date +%s%N) - began) / 1000000))
python3 - "$out" "$seconds" "$again_ms" <<'PY'
import json, os, re, sys

out, seconds, again_s = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) / 1e3
peak_mb = int(re.search(r"peak resident memory (\d+) MB", open(f"{out}/trace.err").read())[1])
trace, again = (json.load(open(f"{out}/{name}.json")) for name in ("trace", "again"))
matching, observer = trace["matching"], trace["observer"]
requests = matching["responses"] or sys.exit("error: no request was recorded")
size = os.path.getsize(f"{out}/trace/capture.tlc")
events = observer["events_per_request"] * requests
print(f"{requests} requests, {requests / seconds:.0f} per second, {events / requests:.1f} events each")
print(f"file {size / 1e6:.0f} MB, {size / events:.2f} bytes an event; observer {observer['cpu_share']:.1%} of a CPU, "
      f"{observer['peak_memory_bytes'] / 2**20:.0f} MiB while recording")
print(f"matched {matching['matched'] / requests:.4%}, complete {matching['complete'] / requests:.4%}")
print(f"explained again in {again_s:.1f} s, {again_s / requests * 1e6:.2f} us a request; "
      f"peak memory of taillab trace {peak_mb} MB, with the analysis and all files")
wrong = [text for ok, text in [
    (requests > 1000 * seconds, "too few requests for a soak"),
    (matching["lost_events"] == 0, f"{matching['lost_events']} events were lost"),
    (peak_mb <= 300, f"taillab trace took {peak_mb} MB, more than 300 MB"),
    (again["matching"] == matching, "explaining the file again gives something else"),
] if not ok]
sys.exit("error: " + "; ".join(wrong) if wrong else 0)
PY
