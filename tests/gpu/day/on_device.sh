#!/bin/bash
# On a bare machine with a GPU and a copy of the checkout: installs the wheels that prepare.sh collected (no index), then
# runs the day, 450 s in all.
#   on_device.sh [STEP …] [--second RESULTS]       results in $OUT, else in build/gpu-day
# --second runs what failed or was left out in an earlier day's results.jsonl, 230 s in all; DAY_SECONDS sets another time.
set -uo pipefail
cd "$(dirname "$(readlink -f "$0")")/../../.." || exit 1
root=$PWD
wheels=$root/build/gpu-day-wheels
export OUT=${OUT:-$root/build/gpu-day}
mkdir -p "$OUT"
python=${PYTHON:-python3}
seconds=450
case " $* " in *" --second "*) seconds=230 ;; esac
seconds=${DAY_SECONDS:-$seconds}

# Into the machine's own environment, as a user would; where that is not allowed, into a folder.
install=("$python" -m pip install -q --disable-pip-version-check --no-index --no-deps --no-compile)
"${install[@]}" "$wheels"/*.whl || {
  "${install[@]}" --upgrade --target "$root/build/gpu-day-site" "$wheels"/*.whl || exit 1
  export PYTHONPATH=$root/build/gpu-day-site:${PYTHONPATH:-}
}
# A package of the machine may bring a top-level `tests`, which would come before a folder without __init__.py.
mkdir -p "$root/build/gpu-day-tests/tests"
echo "__path__ = ['$root/tests']" >"$root/build/gpu-day-tests/tests/__init__.py"
export PYTHONPATH=$root/build/gpu-day-tests:${PYTHONPATH:-}

# pytest puts the checkout before the wheel, and git ignores the C library, which is compiled here where the wheel's
# needs a newer C library than the machine has.
library=$(cd / && "$python" -c 'from kernelcast.probe.cupti.native import LIBRARY; print(LIBRARY)') || exit 1
(cd / && "$python" -c 'from kernelcast.probe.cupti.native import ActivityDecoder; ActivityDecoder()') ||
  cc -std=c11 -O2 -fPIC -shared -fvisibility=hidden -pthread exporter/kernelcast/probe/cupti/native/*.c -o "$library"
own=$root/exporter/kernelcast/probe/cupti
[ "$(dirname "$library")" = "$own" ] || cp "$library" "$own/"

# SECONDS counts from this script's start.
"$python" -m tests.gpu.day --image "${DAY_IMAGE-pytorch-cupy-jax}" --output "$OUT" --seconds $((seconds - SECONDS)) "$@"
code=$?
# One file beside the results: a machine may give back a few files only.
cd "$OUT" && tar -czf all.tgz --exclude all.tgz --exclude results.jsonl -- * && find . -mindepth 1 ! -name all.tgz ! -name results.jsonl -delete
exit $code
