#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Runs or checks every block of the pages, in seconds: bash tests/pages.sh [--all] [PROGRAMS], with the folder of built
# examples, by default build/dev/examples. tests/docs/pages.py says how, and lists what is run by hand. --all also builds.
set -euo pipefail
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/docs/pages.py" "$@"
