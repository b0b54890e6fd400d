#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# clang-tidy 14 with the checks of .clang-tidy over all headers for C++ compilers, in one translation unit; run by hand.
# `bash tests/tidy.sh SOURCE…` also checks these sources of examples/. Exit status 1 if a check found something.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

clang_tidy=$(command -v clang-tidy-14 || command -v clang-tidy) ||
  { echo "clang-tidy is missing (Debian: clang-tidy-14)" >&2; exit 1; }
bash .ci/install-packages test
cmake --preset dev >/dev/null
headers=build/dev/all_headers.cpp  # header-only, so that the checks see each definition as users compile it
(cd include && find remat -name '*.hpp' ! -path '*/impl/*' ! -name 'src*.hpp' | sort | sed 's/.*/#include "&"/') >"$headers"
exec "$clang_tidy" --quiet -p build/dev --extra-arg=-UREMAT_SEPARATE_COMPILATION "$headers" "$@"
