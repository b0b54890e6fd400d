#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Installs dask.distributed into a virtual environment in build/, builds remat-plan, and runs remat_sweep.py.
#
#   bash examples/sweep/run.sh GRAPH.json... --budget 0.8,0.5 --work 100000 --out DIR
#
# About 200 MB. The environment stays for the next time. Without arguments it only installs.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

bash "$root/.ci/install-packages" pytorch
environment=$root/build/sweep
if [ ! -x "$environment/bin/python" ]; then python3 -m venv "$environment"; fi
if ! "$environment/bin/python" -c 'import distributed, bokeh' 2>/dev/null; then
  echo "installing dask.distributed …"
  "$environment/bin/pip" install --quiet 'dask[distributed]>=2024.1' 'bokeh>=3.1' # Bokeh: the dashboard
fi

# Built anew if its sources have changed; a program of yours is taken as it is.
if [ -z "${REMAT_PLAN:-}" ]; then (cd "$root" && bash .ci/build-remat-plan); fi
export REMAT_PLAN=${REMAT_PLAN:-$root/build/release/examples/remat-plan}
if [ $# -gt 0 ]; then exec "$environment/bin/python" "$root/examples/sweep/remat_sweep.py" "$@"; fi
