#!/usr/bin/env bash
# as-root.sh REASON COMMAND [ARG ...]: runs COMMAND as root; asks sudo only when needed.
set -euo pipefail
reason=$1; shift
if [ "$(id -u)" -eq 0 ]; then exec "$@"; fi
if ! command -v sudo >/dev/null; then
  echo "error: the next step $reason and needs root; sudo is missing: run it as root" >&2
  exit 5
fi
echo "root needed (sudo): the next step $reason" >&2
exec sudo --preserve-env=NO_COLOR,TERM,COLUMNS,TAILLAB_SKIP_LIVE,TAILLAB_BLESS,CI "$@"
