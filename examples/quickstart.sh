#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Installs what is missing, builds remat-plan, and plans a training step of GPT-2 small (batch 8, 1024 tokens, 124 million
# parameters) at several memory budgets.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash .ci/install-packages plan
bash .ci/build-remat-plan

report=$PWD/build/quickstart.html
command=(build/release/examples/remat-plan tests/data/graphs/gpt2-small-b8-s1024.json
  --budget 0.8,0.6,0.5 --solver rotor,evict,auto --seconds 2 --report "$report")
echo
echo "\$ ${command[*]}"
status=0
"${command[@]}" || status=$?
# 1 says that a solver found no schedule for a budget: an answer, and the table shows which.
[ "$status" -le 1 ] || exit "$status"
echo
echo "Open in a browser: file://$report"
