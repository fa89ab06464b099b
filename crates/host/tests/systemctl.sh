#!/bin/sh
# Stands in for systemctl in tests: a file below proc/units keeps each unit's CPUs, and one below run where they come
# from.
root=$(dirname "$0")/../..
units=$root/proc/units
case $1 in
show) unit=$6 ;;
set-property) unit=$4 ;;
esac
[ -e "$units/$unit" ] || { echo "Unit $unit not loaded." >&2; exit 1; }
case $1 in
show) cat "$units/$unit" ;;
# as systemd writes ranges
set-property)
  printf %s "${5#*=}" | tr , ' ' >"$units/$unit"
  mkdir -p "$root/run/systemd/system.control/$unit.d"
  echo "[Slice]" >"$root/run/systemd/system.control/$unit.d/50-AllowedCPUs.conf"
  ;;
esac
