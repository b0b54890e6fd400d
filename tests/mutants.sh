#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Mutants, each of which a test must notice, or which are harmless: of the CUDA executor on the fake runtime (half an
# hour), or with the argument `core` of the checkers and the lower bounds (a quarter of an hour). By hand.
exec python3 "$(dirname "$0")/mutants/run.py" "$@"
