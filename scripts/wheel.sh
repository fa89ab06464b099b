#!/usr/bin/env bash
# Builds the Python package, one wheel with the program and the module, and runs its tests on the wheel in a fresh
# environment. WHEEL_PROFILE names another profile of cargo than release: dist, or dev, which is built quickest.
set -euo pipefail
cd "$(dirname "$0")/.."
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
wheels=$target/wheels tools=$target/python/build fresh=$target/python/wheel
scripts/python-env.sh "$tools" python/requirements-build.txt
rm -rf "$wheels"
(cd python && "$tools/bin/maturin" build --profile "${WHEEL_PROFILE:-release}" --out "$wheels")
wheel=$(echo "$wheels"/taillab-*.whl)

rm -rf "$fresh"
scripts/python-env.sh "$fresh" python/tests/requirements.txt
"$fresh/bin/pip" install --quiet --no-input "$wheel[plot]"
# the wheel is tested: neither the folder beside the tests nor the build
unset TAILLAB_BINARY PYTHONPATH
cd python/tests
"$fresh/bin/python" -P -c 'import sys, taillab; assert taillab.__file__.startswith(sys.prefix), taillab.__file__'
"$fresh/bin/pytest" --quiet -p no:cacheprovider
ls -l "$wheel"
