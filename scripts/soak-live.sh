#!/usr/bin/env bash
# soak-live.sh [ROUNDS] [quiet|busy] [FILTER ...]: runs all live tests ROUNDS times (20), from binaries that are built
# once, and prints a table of the rounds; with FILTER those whose names contain one. `busy`: beside a loop that
# takes all of CPU 1 that it gets. Fails if a round fails; what a round printed is kept in target/soak-live.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-20} beside=${2:-quiet}
case $rounds:$beside in
  *[!0-9]*:* | :* | 0:*) echo "error: soak-live.sh [ROUNDS] [quiet|busy] [FILTER ...], e.g. soak-live.sh 20 busy" >&2; exit 2 ;;
  *:quiet | *:busy) shift $(($# < 2 ? $# : 2)) ;;
  *) echo "error: quiet or busy, not '$beside'" >&2; exit 2 ;;
esac
logs=${CARGO_TARGET_DIR:-target}/soak-live
mkdir -p "$logs"

built=$(cargo test --workspace --test live --no-run --locked --quiet --message-format=json)
# the folder of each package, in which cargo runs its tests, and its live tests
mapfile -t binaries < <(
  sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"executable":"\([^"]*\/live-[^"]*\)".*/\1\t\2/p' <<<"$built")
[ "${#binaries[@]}" -gt 0 ] || { echo "error: there are no live tests" >&2; exit 1; }

loop=
trap '[ -z "$loop" ] || kill "$loop" 2>/dev/null || true' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
if [ "$beside" = busy ]; then
  # it ends with this script, however that ends
  setpriv --pdeathsig KILL taskset -c 1 sh -c 'while :; do :; done' & loop=$!
fi

sum() { awk -v what="$1;" '/^test result:/ {for (i = 2; i <= NF; i++) if ($i == what) n += $(i - 1)} END {print n + 0}' "$log"; }
status=0
row='%5s  %-6s  %6s  %6s  %7s  %7s  %s\n'
printf "$row" round beside passed failed skipped seconds failures
for round in $(seq "$rounds"); do
  log=$logs/$beside-$round.log began=$SECONDS ended=0
  : >"$log"
  for binary in "${binaries[@]}"; do
    (cd "${binary%$'\t'*}" && "$OLDPWD/scripts/as-root.sh" "runs the live tests, round $round" \
      "${binary#*$'\t'}" --test-threads=1 --nocapture "$@") </dev/null >>"$log" 2>&1 || ended=1
  done
  # libtest lists the failed ones, indented, before the result
  names=$(sed -n 's/^    \([a-z0-9_:]*\)$/\1/p' "$log" | sort -u | paste -sd' ')
  printf "$row" "$round" "$beside" "$(sum passed)" "$(sum failed)" \
    "$(grep -c 'SKIPPED ' "$log" || true)" $((SECONDS - began)) "$names"
  [ "$ended" -eq 0 ] || status=1
done
[ "$status" -eq 0 ] || echo "error: a round failed; see $logs/$beside-ROUND.log" >&2
exit "$status"
