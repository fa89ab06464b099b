#!/usr/bin/env bash
# Makes a Python environment with the packages of a requirements file, unless it is there: python-env.sh FOLDER FILE.
# Where that fails there is no FOLDER; the reason is in FOLDER.failed, in one line, and what pip said in FOLDER.log.
set -uo pipefail
folder=$1 requirements=$2
stamp="$(python3 -VV) $(sha256sum <"$requirements")"
if [ "$(cat "$folder/stamp" 2>/dev/null)" = "$stamp" ] && "$folder/bin/python" -c pass 2>/dev/null; then
  exit 0
fi
rm -rf "$folder"
mkdir -p "$(dirname "$folder")"
echo "making a Python environment in $folder" >&2
if python3 -m venv "$folder" >"$folder.log" 2>&1 &&
  "$folder/bin/pip" install --quiet --no-input --retries 1 --only-binary :all: -r "$requirements" >>"$folder.log" 2>&1; then
  echo "$stamp" >"$folder/stamp"
  rm -f "$folder.failed"
  exit 0
fi
# without a network, pip's error is only that there is no such package
reason=$(grep -m 1 -oE "Failed to (establish a new connection|resolve)[^)]*|Temporary failure in name resolution" "$folder.log" ||
  grep -m 1 -iE '^error|no module|not available' "$folder.log" || tail -n 1 "$folder.log")
rm -rf "$folder"
echo "the packages of $requirements cannot be installed (${reason#ERROR: }); see $folder.log" >"$folder.failed"
cat "$folder.failed" >&2
exit 1
