#!/usr/bin/env bash
# Measures the part of docs/benchmarks.md that takes minutes. Nothing else should run meanwhile.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked --quiet
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT

echo "== memory with two million requests, and the cost of the probe (interleaved blocks of the same run)"
scripts/as-root.sh "runs memcached under the probe for about a minute" \
  python3 scripts/peak-memory.py target/release/taillab run memcached -q --json -d 50s -o "$out/long" \
  >"$out/long.json" || [ $? -eq 4 ]
python3 - "$out/long.json" <<'PY'
import json, sys
run = json.load(open(sys.argv[1]))
o = run["overhead"]
print(f"{run['load']['requests']} requests")
print(f"throughput loss {o['throughput_loss']:.1%} ({o['throughput_loss_lo']:.1%} to {o['throughput_loss_hi']:.1%}), "
      f"{o['pairs']} pairs, {o['cpu_ns_per_request']:.0f} ns of server CPU per request")
PY

echo "== speed of the simulator's kernels, one core"
cargo run --release --locked --quiet -p taillab-simulator --example speed

echo "== speed of the matcher and of the analysis"
cargo run --release --locked --quiet -p taillab-analysis --example two_million

echo "== the analysis with a long queue, and without"
cargo run --release --locked --quiet -p taillab-analysis --example long_queue

echo "== memory with ten thousand connections"
cargo run --release --locked --quiet -p taillab-load --example many_connections -- 10000 20000

echo "== the load generator beside its peers"
cargo build --release --locked --quiet -p taillab-load --examples
scripts/peers.sh
scripts/as-root.sh "stamps packets on the loopback device" python3 scripts/bench-peers.py
