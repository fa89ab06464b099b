#!/usr/bin/env bash
# churn.sh [SECONDS]: a server to which each request comes on a connection of its own, for an hour or for SECONDS.
# First recordings of 3 and 10 million such connections, whose explanation must need the same memory. Then
# `taillab trace --live` of a server with a thread for each connection and of nginx, with clients at several addresses: its
# memory must not grow in the second half, and nothing may be lost or forgotten.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-3600}
case $seconds in ''|0*|*[!0-9]*) echo "error: churn.sh [SECONDS], e.g. churn.sh 60" >&2; exit 2 ;; esac
# where the programs are built already, with the same names
target=${CHURN_PROGRAMS:-${CARGO_TARGET_DIR:-target}/release}
if [ -z "${CHURN_PROGRAMS:-}" ]; then
  cargo build --release --locked --quiet
  cargo build --release --locked --quiet -p taillab-analysis --example churn
fi
server=churn-s$$ client=churn-c$$
out=$(mktemp -d)
children=()
cleanup() {
  kill "${children[@]}" 2>/dev/null || true
  for name in "$server" "$client"; do ip netns delete "$name" 2>/dev/null || true; done
  rm -rf "$out"
}
trap cleanup EXIT

recordings=${CHURN_MILLIONS-3 10}
[ -z "$recordings" ] || echo "== recordings of $recordings million connections"
for millions in $recordings; do
  "$target/examples/churn" "$millions" "$out/churn.tlc"
  python3 scripts/peak-memory.py "$target/taillab" explain "$out/churn.tlc" -q --json >"$out/$millions.json" 2>"$out/$millions.err" ||
    [ $? -eq 4 ] || { cat "$out/$millions.err" >&2; exit 1; }
  rm "$out/churn.tlc"
done
# shellcheck disable=SC2086 # a list of numbers
[ -z "$recordings" ] || python3 - "$out" $recordings <<'PY'
import json, re, sys

out, *sizes = sys.argv[1:]
peaks = []
for millions in sizes:
    matched = json.load(open(f"{out}/{millions}.json"))["matching"]["matched"]
    peaks.append(int(re.search(r"peak resident memory (\d+) MB", open(f"{out}/{millions}.err").read())[1]))
    print(f"{millions} million connections: {matched} matched, peak {peaks[-1]} MB")
    if matched != int(millions) * 10**6:
        sys.exit(f"error: {int(millions) * 10**6 - matched} were not matched")
if peaks[-1] > 1.1 * peaks[0]:
    sys.exit(f"error: {sizes[-1]} million connections need {peaks[-1]} MB, {sizes[0]} million {peaks[0]} MB")
PY

[ "$(id -u)" -eq 0 ] || exec scripts/as-root.sh "makes two network namespaces and traces servers there for $seconds s" \
  env CHURN_PROGRAMS="$target" CHURN_MILLIONS= "$0" "$seconds"
echo "== taillab trace --live, $seconds s each"
addresses=8
ip netns add "$server"
ip netns add "$client"
ip -n "$server" link add churn type veth peer name churn netns "$client"
for k in $(seq "$addresses"); do
  ip -n "$server" address add "10.213.1.$k/24" dev churn
  ip -n "$client" address add "10.213.2.$k/24" dev churn
done
for name in "$server" "$client"; do
  ip -n "$name" link set churn up
  ip -n "$name" link set lo up
  # ports that are in TIME_WAIT are used again
  ip netns exec "$name" sysctl -q net.ipv4.tcp_tw_reuse=1 net.ipv4.ip_local_port_range='1024 65535'
done
ip -n "$server" route add 10.213.2.0/24 dev churn
for k in $(seq "$addresses"); do
  ip -n "$client" route add "10.213.1.$k/32" dev churn src "10.213.2.$k"
done

# rate: connections per second of all clients
traced() {
  local name=$1 url=$2 pid=$3 port=$4 rate=$5 loads=()
  for k in $(seq "$addresses"); do
    ip netns exec "$client" "$target/taillab" load "$url://10.213.1.$k:$port" --connect each -R "$((rate / addresses))" \
      --threads 1 --oversubscribe --floor off --warmup 0s -d "$((seconds + 10))s" -q >"$out/load-$k" 2>&1 &
    loads+=($!)
  done
  children+=("${loads[@]}")
  sleep 2
  ip netns exec "$server" "$target/taillab" trace -p "$pid" --live --metrics 127.0.0.1:9188 -d "${seconds}s" \
    -o "$out/$name" >"$out/$name.txt" 2>"$out/$name.err" </dev/null &
  local tracer=$!
  children+=("$tracer")
  python3 scripts/churn-memory.py "$tracer" "$seconds" "$name" "$server" || { cat "$out/$name.err" "$out"/load-* >&2; exit 1; }
  wait "$tracer" || [ $? -eq 4 ] || { cat "$out/$name.err" >&2; exit 1; }
  kill "${loads[@]}" 2>/dev/null || true
  wait "${loads[@]}" 2>/dev/null || true
}

ip netns exec "$server" "$target/taillab" serve null-rpc --listen 0.0.0.0:7777 >"$out/serve.txt" 2>&1 &
children+=($!)
sleep 1
traced threads echo+tcp "${children[-1]}" 7777 "${CHURN_RATE:-2000}"
if command -v nginx >/dev/null; then
  cat >"$out/nginx.conf" <<CONF
daemon off; worker_processes 1; pid $out/nginx.pid; error_log stderr;
events { worker_connections 4096; }
http { access_log off; server { listen 8080; return 200 "x"; } }
CONF
  ip netns exec "$server" nginx -c "$out/nginx.conf" 2>"$out/nginx.txt" &
  children+=($!)
  sleep 1
  traced nginx http "${children[-1]}" 8080 "${CHURN_RATE:-2000}"
fi
