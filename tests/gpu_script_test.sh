#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Tests tests/gpu.sh by programs that only pretend: what each part runs, what counts as a failure, what lands in OUT.
set -uo pipefail
script=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/gpu.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mistakes=0
export PROGRAMS=$work/programs OUT=$work/out PYTHON=$work/python MATMUL=any
unset SIZES STEPS PART_SECONDS LD_LIBRARY_PATH REMAT_PLAN

fake() {  # FILE LINES…: a program of these lines, which notes its arguments
  local file=$1
  shift
  mkdir -p "$(dirname "$file")"
  # shellcheck disable=SC2016
  printf '%s\n' '#!/usr/bin/env bash' 'echo "${0##*/} $*" >>"'"$work"'/calls"' "$@" >"$file"
  chmod +x "$file"
}
fresh() {  # every program passes
  rm -rf "$work/programs" "$work/out" "$work/calls"
  touch "$work/calls"
  local name
  for name in tests/gpu.a_test tests/gpu.b_fault_test train-gpt-gpu cuda-minimal cuda_bench remat-plan; do
    fake "$PROGRAMS/$name" 'echo fine'
  done
  fake "$work/python" 'exit 1'
  mkdir "$work/compute-sanitizer"
  # As the real one: it runs the program behind its own arguments.
  # shellcheck disable=SC2016
  fake "$work/compute-sanitizer/compute-sanitizer" \
    'while [ $# -gt 0 ] && [ "$1" != 1 ]; do shift; done; shift; exec "$@"'
  tar -C "$work" -czf "$PROGRAMS/compute-sanitizer.tar.gz" compute-sanitizer
  rm -rf "$work/compute-sanitizer"
}
gpu() { bash "$script" "$@" >"$work/printed" 2>&1; }

expect() {  # WHAT STATUS ACTUAL
  [ "$2" -eq "$3" ] && return
  echo "WRONG: $1: exit status $3 instead of $2"
  sed 's/^/    /' "$work/printed"
  mistakes=$((mistakes + 1))
}
contains() {  # FILE TEXT
  grep -qF -- "$2" "$1" 2>/dev/null && return
  echo "WRONG: no '$2' in ${1##*/}:"
  sed 's/^/    /' "$1"
  mistakes=$((mistakes + 1))
}
lacks() {  # FILE TEXT
  grep -qF -- "$2" "$1" || return
  echo "WRONG: '$2' in ${1##*/}"
  mistakes=$((mistakes + 1))
}

# ---- arguments
fresh
gpu
expect "no part" 2 $?
contains "$work/printed" "a part is missing: build, smoke, figures, torch, sanitize or all"
gpu smoek
expect "an unknown part" 2 $?
contains "$work/printed" "unknown part smoek; build, smoke, figures, torch, sanitize and all are known"
gpu smoke figures
expect "two parts" 2 $?
contains "$work/printed" "expected one argument"
PROGRAMS=$work/nowhere gpu smoke
expect "no programs" 2 $?
contains "$work/printed" "tests/gpu.sh build"

# ---- smoke runs every test that was built, and the examples
gpu smoke
expect "smoke" 0 $?
contains "$OUT/smoke.log" "6 passed, 0 failed"
for call in gpu.a_test gpu.b_fault_test cuda-minimal "cuda_bench --quick" "--matmul any" "--matmul own --streams 2 --graph"; do
  contains "$work/calls" "$call"
done

# ---- a skip, a failure, a program that hangs and one that is missing are failures; the others run all the same
fresh
fake "$PROGRAMS/tests/gpu.a_test" 'echo "skipped: no CUDA device"' 'exit 77'
gpu smoke
expect "a skip" 1 $?
contains "$OUT/smoke.log" "skipped: no CUDA device"
contains "$OUT/smoke.log" "FAILED: gpu.a_test: skipped by the program"
contains "$OUT/smoke.log" "5 passed, 1 failed"
contains "$work/calls" "cuda_bench"
fresh
fake "$PROGRAMS/cuda-minimal" 'exit 3'
rm "$PROGRAMS/cuda_bench"
gpu smoke
expect "a failure and a missing program" 1 $?
contains "$OUT/smoke.log" "FAILED: cuda-minimal: exit status 3"
contains "$OUT/smoke.log" "FAILED: launches: it cannot be started"
contains "$OUT/smoke.log" "4 passed, 2 failed"
fresh
rm "$PROGRAMS"/tests/*
gpu smoke
expect "no tests" 1 $?
contains "$OUT/smoke.log" "FAILED: tests: there is none in"
fresh
fake "$PROGRAMS/tests/gpu.a_test" 'exec sleep 600'
PART_SECONDS=1 gpu smoke
expect "a program that hangs" 1 $?
contains "$OUT/smoke.log" "FAILED: gpu.a_test: not ended within 1 s"
contains "$OUT/smoke.log" "the part's 1 seconds are over"

# ---- figures and their files
fresh
# shellcheck disable=SC2016
writes='while [ $# -gt 0 ]; do [ "$1" != --csv ] || echo "a,line" >>"$2"; shift; done'
fake "$PROGRAMS/train-gpt-gpu" "$writes"
fake "$PROGRAMS/cuda_bench" "$writes"
gpu figures
expect "figures" 0 $?
contains "$work/calls" "--steps 1001"
contains "$OUT/launches.csv" "a,line"
[ "$(wc -l <"$OUT/training.csv")" -eq 5 ] || { echo "WRONG: training.csv"; mistakes=$((mistakes + 1)); }
gpu figures
[ "$(wc -l <"$OUT/training.csv")" -eq 5 ] || { echo "WRONG: training.csv grows from run to run"; mistakes=$((mistakes + 1)); }

# ---- no PyTorch: this part alone fails
gpu torch
expect "no PyTorch" 1 $?
contains "$OUT/torch.log" "FAILED: PyTorch: there is no PyTorch that sees a GPU"
fresh
fake "$work/python" 'case "$*" in *2,\ 11*) echo "PyTorch is older than 2.11"; exit 1 ;; *is_available*) echo "PyTorch 2.9" ;; esac'
gpu torch
expect "an old PyTorch" 1 $?
contains "$OUT/torch.log" "FAILED: remat_torch_plan: not run: PyTorch is older than 2.11"
contains "$work/calls" "torch_gpt_checkpoint.py"
lacks "$work/calls" "compare.py"
fresh
fake "$work/python" 'true'
gpu torch
expect "PyTorch" 0 $?
contains "$work/calls" "--plans $OUT/training.csv"
contains "$work/calls" "compare.py --device cuda"

# ---- compute-sanitizer: every tool, without the test of faults; the machine's own comes first
gpu sanitize
expect "sanitize" 0 $?
fake "$work/own/compute-sanitizer" 'exit 5'
PATH=$work/own:$PATH gpu sanitize
expect "the machine's own compute-sanitizer" 1 $?
contains "$OUT/sanitize.log" "$work/own/compute-sanitizer"
for tool in memcheck racecheck synccheck initcheck; do contains "$work/calls" "compute-sanitizer --tool $tool"; done
lacks "$work/calls" "gpu.b_fault_test"
contains "$work/calls" "gpu.a_test"
fresh
rm "$PROGRAMS/compute-sanitizer.tar.gz"
gpu sanitize
status=$?
if ! command -v compute-sanitizer >/dev/null && [ ! -x /usr/local/cuda/bin/compute-sanitizer ]; then
  expect "no compute-sanitizer" 1 "$status"
  contains "$OUT/sanitize.log" "FAILED: compute-sanitizer: it is neither in"
fi

# ---- what lands in OUT is limited
fresh
fake "$PROGRAMS/cuda-minimal" 'head -c 20000000 /dev/zero | tr "\0" x; echo; echo its last line'
gpu smoke
expect "a long log" 0 $?
[ "$(stat -c %s "$OUT/smoke.log")" -le 16777216 ] || { echo "WRONG: the log is too long"; mistakes=$((mistakes + 1)); }
contains "$OUT/smoke.log" "its last line"
contains "$OUT/smoke.log" "bytes left out"
contains "$OUT/smoke.log" "# gpu.sh smoke"
fresh
mkdir "$OUT"
touch "$OUT"/{1,2,3,4,5,6,7,8}
gpu smoke
expect "nine files" 1 $?
contains "$work/printed" "9 files in"

# ---- all: one after the other; each has its log
fresh
fake "$work/python" 'true'
gpu all
expect "all" 0 $?
for name in smoke figures torch sanitize; do [ -s "$OUT/$name.log" ] || { echo "WRONG: no $name.log"; mistakes=$((mistakes + 1)); }; done

if [ "$mistakes" -ne 0 ]; then
  echo "$mistakes wrong"
  exit 1
fi
echo "all as it should be"
