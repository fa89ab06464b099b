#!/bin/bash
# Takes one instrument out of a copy of the tree, then builds the copy and runs the tests of what is left.
#
#   scripts/try-without.sh NAME [DIRECTORY]
#
# The copy is DIRECTORY, by default target/without/tree, and is replaced each time. CARGO is the program that builds;
# CARGO_TARGET_DIR (by default target/without/target) is shared by all tries. Other tests than those of the program, of
# console, host and experiment are only built.
set -euo pipefail
name=${1:?which instrument? try one of: $(ls "$(dirname "$0")/../crates/instruments" | grep -v README | tr '\n' ' ')}
root=$(cd "$(dirname "$0")/.." && pwd)
copy=${2:-$root/target/without/tree}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target/without/target}
cargo=${CARGO:-cargo}
[ -d "$root/crates/instruments/$name" ] || { echo "error: there is no instrument $name" >&2; exit 2; }

mkdir -p "$copy"
find "$copy" -mindepth 1 -maxdepth 1 ! -name target -exec rm -rf {} +
cd "$root"
# what git tracks or would track, as it is now; times of change are kept, so that nothing else is built anew
git ls-files -co --exclude-standard -z | while IFS= read -r -d '' file; do
  [ -e "$file" ] && printf '%s\0' "$file"
done | tar --null -T - -cf - | tar -xf - -C "$copy"

cd "$copy"
rm -r "crates/instruments/$name"
sed -i "/^taillab-$name = /d" crates/taillab/Cargo.toml
sed -i "/^    taillab_$name::INSTRUMENT,$/d" crates/taillab/src/instruments.rs
# the line of the path, and the module behind it
sed -i "/instruments\/$name\/tests/,+1d" crates/taillab/tests/cli.rs crates/taillab/tests/live/main.rs
rm -f "schemas/$name.schema.json"
if left=$(grep -rnE "taillab_$name::|taillab-$name =|instruments/$name/" --include=*.rs --include=*.toml crates Cargo.toml); then
  echo "error: still named: $left" >&2
  exit 1
fi

built=$("$cargo" test --workspace --tests --no-run --message-format=json-render-diagnostics)
# the columns of an instrument leave the documents: the first run writes these anew
"$cargo" test --workspace --bin taillab documents >/dev/null 2>&1 || true
"$cargo" test --workspace --bin taillab --test cli
# the units of what instruments are made of, as they were built
python3 - 3<<<"$built" <<'END'
import json, pathlib, subprocess, sys
for line in open(3):
    one = json.loads(line) if line.startswith("{") else {}
    if one.get("executable") and one["target"]["kind"] == ["lib"]:
        folder = pathlib.Path(one["manifest_path"]).parent
        if folder.name in ("console", "host", "experiment"):
            print(folder.name, flush=True)
            if subprocess.run([one["executable"], "--quiet"], cwd=folder).returncode:
                sys.exit(f"error: tests of {folder.name} failed")
END
echo "without $name, the other tests pass"
