#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Installs PyTorch into a virtual environment in build/, builds remat-plan, runs the tests of remat_torch_plan and an example.
#
#   bash examples/pytorch/run.sh [example|test|all]      (all)
#
# About 3 GB with PyTorch's libraries. The environment stays for the next time. PYTORCH_INDEX names another index for pip,
# as that of PyTorch's wheels for the CPU.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
what=${1:-all}

bash .ci/install-packages pytorch
environment=build/pytorch
if [ ! -x "$environment/bin/python" ]; then python3 -m venv "$environment"; fi
if ! "$environment/bin/python" -c 'import torch, numpy, pytest, matplotlib' 2>/dev/null; then
  echo "installing PyTorch …"
  "$environment/bin/pip" install --quiet ${PYTORCH_INDEX:+--index-url "$PYTORCH_INDEX"} 'torch>=2.11' numpy pytest matplotlib
fi

# Built anew if its sources have changed; a program of yours is taken as it is.
if [ -z "${REMAT_PLAN:-}" ]; then bash .ci/build-remat-plan; fi
export REMAT_PLAN=${REMAT_PLAN:-$PWD/build/release/examples/remat-plan}

cd examples/pytorch
python=../../$environment/bin/python
case $what in
  example | all) "$python" example.py ;;
  test) ;;
  *) echo "unknown argument $what; expected example, test or all" >&2; exit 2 ;;
esac
case $what in
  test | all) "$python" -m pytest -q tests ;;
esac
