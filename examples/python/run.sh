#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Builds and installs remat_planner into a virtual environment in build/, and runs its tests and its figures.
#
#   bash examples/python/run.sh [test|figures|all]      (all)
#
# `test` runs the tests, `figures` measures a call beside that of the program remat-plan.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
what=${1:-all}
case $what in
  test | figures | all) ;;
  -h | --help) sed -n '3,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "run.sh: unknown argument $what; expected test, figures or all" >&2; exit 2 ;;
esac

bash .ci/install-packages pytorch
environment=build/python
if [ ! -x "$environment/bin/python" ]; then python3 -m venv "$environment"; fi
echo "building remat_planner …"
"$environment/bin/pip" install --quiet nanobind scikit-build-core ninja
"$environment/bin/pip" install --quiet --no-build-isolation "./examples/python[test]"
cd examples/python
python=../../$environment/bin/python
if [ "$what" != figures ]; then "$python" -m pytest -q tests; fi
if [ "$what" != test ]; then
  cd ../..
  bash .ci/build-remat-plan
  "$environment/bin/python" examples/python/figures.py build/release/examples/remat-plan
fi
