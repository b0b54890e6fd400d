#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Mutants of the CUDA executor: each must be noticed by a test on the fake runtime, or be harmless. By hand; half an hour.
exec python3 "$(dirname "$0")/mutants/run.py" "$@"
