#!/bin/bash
# Takes one instrument out of a copy of the tree, then builds the copy and runs the tests of what is left.
#
#   scripts/try-without.sh NAME [DIRECTORY]
#
# The copy is DIRECTORY, by default target/without/tree, and is replaced each time. CARGO is the program that builds;
# CARGO_TARGET_DIR (by default target/without/target) is shared by all tries. Only `taillab` uses an instrument: what is run
# are its units and its tests without root, and its live tests are built. EVERYTHING=1 does it for all crates.
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
# what git tracks or would track, as it is now; times of change are kept, those of folders too, so that nothing else is built anew
git ls-files -co --exclude-standard -z | while IFS= read -r -d '' file; do
  [ -e "$file" ] && printf '%s\0' "$file"
done | tar --null -T - -cf - | tar -xf - -C "$copy"
cd "$copy"
find . -name target -prune -o -type d -print | while IFS= read -r folder; do
  touch -r "$root/$folder" "$folder"
done

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

# one choice of targets for all that follows: another one has other features, and builds anew
targets=(--bin taillab --test cli --test live)
[ -z "${EVERYTHING:-}" ] || targets=(--tests)
built=$("$cargo" test --workspace "${targets[@]}" --no-run --message-format=json-render-diagnostics)
python3 - 3<<<"$built" <<'END'
import json, pathlib, subprocess, sys

artifacts = [json.loads(line) for line in open(3) if line.startswith("{")]
tests = [one for one in artifacts if one.get("executable") and one["profile"]["test"] and one["target"]["name"] != "live"]

def run(one, *arguments):
    folder = pathlib.Path(one["manifest_path"]).parent
    print(folder.name, one["target"]["name"], *arguments, flush=True)
    return subprocess.run([one["executable"], "--quiet", *arguments], cwd=folder).returncode

if not tests:
    sys.exit("error: cargo has built no tests")
# the columns of an instrument leave the documents: the first run writes these anew
for one in tests:
    if one["target"]["name"] == "taillab":
        run(one, "documents")
if any([run(one) for one in tests]):
    sys.exit("error: a test failed")
END
echo "without $name, the other tests pass"
