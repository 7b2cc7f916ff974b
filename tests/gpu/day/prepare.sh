#!/bin/bash
# Fills build/gpu-day-wheels with all that a bare machine with Python 3.12, PyTorch, CuPy and JAX lacks: run it in a
# checkout with .venv (`make install`), copy the checkout with that folder to the machine, run on_device.sh there.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../../.."
folder=build/gpu-day-wheels
image=${1:-pytorch-cupy-jax}
python=${PYTHON:-.venv/bin/python}
limit_mib=60
rm -rf "$folder"
mkdir -p "$folder"

# kernelcast with its C library: against glibc 2.17 where the tools of release.wheels are installed, else this machine's.
if [ -x build/release-tools/bin/python ]; then
  KERNELCAST_WHEEL=x86_64 build/release-tools/bin/python -m hatchling build --target wheel --directory "$folder" >/dev/null
else
  "$python" -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w "$folder" .
fi
unzip -l "$folder"/kernelcast-*.whl | grep -q libkernelcast_activity.so ||
  { echo "the wheel has no CUPTI decoder: install gcc or clang" >&2; exit 1; }

# The packages of the image's list in day.json, in the versions of the lock.
"$python" - "$image" >"$folder/requirements.txt" <<'LIST'
import json, re, sys
carried = json.load(open("tests/gpu/day/day.json"))["images"][sys.argv[1]]["carried"]
locked = dict(re.findall(r"^([\w.-]+)==([^ ;\\]+)", open("requirements-run.lock").read(), re.MULTILINE))
print("\n".join(f"{name}=={locked[name]}" if name in locked else name for name in carried))
LIST
"$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: \
  --python-version 3.12 --implementation cp --abi cp312 --abi abi3 --abi none \
  --platform manylinux_2_28_x86_64 --platform manylinux_2_27_x86_64 --platform manylinux_2_17_x86_64 \
  --platform manylinux2014_x86_64 --platform manylinux1_x86_64 --platform any \
  -d "$folder" -r "$folder/requirements.txt"

size_mib=$(du -sm "$folder" | cut -f1)
echo "$folder: $(ls "$folder"/*.whl | wc -l) wheels, $size_mib MiB"
[ "$size_mib" -le "$limit_mib" ] || { echo "$folder has $size_mib MiB; the limit is $limit_mib: carry fewer" >&2; exit 1; }
