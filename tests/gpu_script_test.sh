#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Tests tests/gpu.sh by programs that only pretend: what each part runs, what counts as a failure, what lands in OUT.
set -uo pipefail
script=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/gpu.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mistakes=0
export PROGRAMS=$work/programs OUT=$work/out BEFORE=$work/before PYTHON=$work/python MATMUL=any
unset SIZES STEPS PART_SECONDS LD_LIBRARY_PATH REMAT_PLAN AGAIN

fake() {  # FILE LINES…: a program of these lines, which notes its arguments
  local file=$1
  shift
  mkdir -p "$(dirname "$file")"
  # shellcheck disable=SC2016
  printf '%s\n' '#!/usr/bin/env bash' 'echo "${0##*/} $*" >>"'"$work"'/calls"' "$@" >"$file"
  chmod +x "$file"
}
# shellcheck disable=SC2016
writes='while [ $# -gt 0 ]; do [ "$1" != --csv ] || printf "a,header\nb,line\n" >>"$2"; shift; done'
fresh() {  # every program passes
  rm -rf "$work/programs" "$work/out" "$work/before" "$work/calls" "$work/own"
  touch "$work/calls"
  local name
  for name in tests/gpu.a_test tests/gpu.b_fault_test tests/gpu.c_regions_test cuda-minimal measure-link remat-plan; do
    fake "$PROGRAMS/$name" 'echo fine'
  done
  for name in train-gpt-gpu cuda_bench; do fake "$PROGRAMS/$name" "$writes"; done
  echo fine >"$PROGRAMS/cuda-minimal.expected"
  echo "commit of these programs" >"$PROGRAMS/manifest.txt"
  fake "$work/python" 'exit 1'
  # The machine's own driver and tools, whatever this machine has.
  # shellcheck disable=SC2016
  fake "$work/bin/nvidia-smi" 'case "$*" in *loop*) echo $$ >"'"$work"'/logger"; echo 1, 2, 3; exec sleep 60 ;; *) echo a device ;; esac'
  mkdir "$work/compute-sanitizer"
  # As the real one: it runs the program behind its own arguments, and reports what is planted.
  # shellcheck disable=SC2016
  sanitizer='all=$*; while [ "$1" != "'"$PROGRAMS"'" ] && [ "${1#"'"$PROGRAMS"'"}" = "$1" ]; do shift; done; "$@" || exit
case "$all" in *--test-case=planted*) exit 33 ;; esac'
  fake "$work/compute-sanitizer/compute-sanitizer" "$sanitizer"
  tar -C "$work" -cJf "$PROGRAMS/compute-sanitizer.tar.xz" compute-sanitizer
  fake "$PROGRAMS/xz" "exec $(command -v xz) \"\$@\""
  rm -rf "$work/compute-sanitizer"
}
gpu() { PATH=$work/bin:$PATH bash "$script" "$@" >"$work/printed" 2>&1; }

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
contains "$work/printed" "a part is missing: build, --plan, first, second, package smoke llm link bits sanitize compilers graphs figures torch more or all"
gpu smoek
expect "an unknown part" 2 $?
contains "$work/printed" "unknown part smoek; expected build, --plan, first, second, package smoke"
gpu smoke figuers
expect "an unknown second part" 2 $?
lacks "$work/calls" "gpu.a_test"
gpu all smoke
expect "all and a part" 2 $?
contains "$work/printed" "all stands alone"
PROGRAMS=$work/nowhere gpu smoke
expect "no programs" 2 $?
contains "$work/printed" "tests/gpu.sh build"

gpu --help
expect "help" 0 $?
contains "$work/printed" "bash tests/gpu.sh --plan"

# ---- the plan runs nothing: each part with its steps; each call fits ten minutes, and both, with the machine's start, fifteen
for word in --plan --dry-run plan; do
  gpu $word
  expect "$word" 0 $?
done
contains "$work/printed" "nothing is done yet"
contains "$work/printed" "60 s at most  remat_torch_plan, bits"
contains "$work/printed" "90 s at most  gpu.a_test"
if [ -s "$work/calls" ] || [ -e "$OUT" ]; then
  echo "WRONG: the plan ran something"
  mistakes=$((mistakes + 1))
fi
awk '$1 ~ /^(first|second|known):$/ { call = $1; said[call] = $2 } $3 == "minutes," && $4 == "from" { n++; sum[call] += $2 }
  $1 == "first" { start = $5; whole = $11 }
  END { for (c in said) if (sum[c] - said[c] > 0.5 || said[c] - sum[c] > 0.5) exit 1
    both = said["first:"] + said["second:"] + start
    exit !(n == 11 && said["first:"] <= 10 && said["second:"] <= 10 && start >= 3 && both <= 15 && whole <= 15 && whole > both - 0.5) }' "$work/printed"
expect "the plan's minutes" 0 $?

# ---- smoke runs every test that was built, and the examples
gpu smoke
expect "smoke" 0 $?
contains "$OUT/gpu.log" "9 passed, 0 failed"
contains "$OUT/gpu.log" "# gpu.sh smoke: at most 150 s"
contains "$OUT/gpu.log" "a device"
for call in gpu.a_test gpu.b_fault_test cuda-minimal "cuda_bench --device" "cuda_bench --quick" "--matmul any" \
  "--matmul own --streams 2 --graph"; do
  contains "$work/calls" "$call"
done

# ---- what has passed is not run again, by the same programs, unless asked; what has failed is
: >"$work/calls"
mv "$OUT" "$BEFORE"  # what came back; the folder of the next call is empty
[ "$(grep -c ',smoke,.*,passed,' "$BEFORE/steps.csv")" -eq 9 ] || { echo "WRONG: the marks of smoke"; mistakes=$((mistakes + 1)); }
gpu smoke
expect "smoke, done before" 0 $?
contains "$OUT/gpu.log" "0 passed, 0 failed, 9 done before"
contains "$OUT/gpu.log" "9 passed, 0 failed"  # the log of the first call
lacks "$work/calls" "gpu.a_test"
gpu --plan
contains "$work/printed" "gpu.a_test: passed before"
AGAIN=1 gpu smoke
contains "$OUT/gpu.log" "## gpu.a_test, "
contains "$work/calls" "gpu.a_test"
fake "$PROGRAMS/tests/gpu.a_test" 'exit 3'
: >"$work/calls"
echo "commit of other programs" >"$PROGRAMS/manifest.txt"
gpu smoke
expect "other programs" 1 $?
contains "$OUT/gpu.log" "8 passed, 1 failed"
fake "$PROGRAMS/tests/gpu.a_test" 'exit 0'
gpu smoke
expect "what has failed is run again" 0 $?
contains "$OUT/gpu.log" "1 passed, 0 failed, 8 done before"

# ---- an unexpected output of cuda-minimal is a failure
fresh
fake "$PROGRAMS/cuda-minimal" 'echo coarse'
gpu smoke
expect "another output" 1 $?
contains "$OUT/gpu.log" "FAILED: cuda-minimal: exit status 1"
contains "$OUT/gpu.log" "> coarse"

# ---- without a device that the programs can use, the versions are printed and nothing is run
fresh
fake "$PROGRAMS/cuda_bench" 'echo "NVIDIA driver 580 or newer"; exit 77'
gpu smoke
expect "no device" 1 $?
contains "$OUT/gpu.log" "NVIDIA driver 580 or newer"
contains "$OUT/gpu.log" "FAILED: device: there is none"
lacks "$work/calls" "gpu.a_test"

# ---- a skip, a failure, a program that hangs and one that is missing are failures; the others run all the same
fresh
fake "$PROGRAMS/tests/gpu.a_test" 'echo "skipped: no CUDA device"' 'exit 77'
gpu smoke
expect "a skip" 1 $?
contains "$OUT/gpu.log" "skipped: no CUDA device"
contains "$OUT/gpu.log" "FAILED: gpu.a_test: skipped by the program"
contains "$OUT/gpu.log" "8 passed, 1 failed"
contains "$work/calls" "cuda_bench"
fresh
fake "$PROGRAMS/cuda-minimal" 'exit 3'
rm "$PROGRAMS/cuda_bench"
gpu smoke
expect "a failure and a missing program" 1 $?
contains "$OUT/gpu.log" "FAILED: device: cuda_bench --device failed"
contains "$OUT/gpu.log" "FAILED: cuda-minimal: exit status 3"
contains "$OUT/gpu.log" "FAILED: launches, quick: it cannot be started"
contains "$OUT/gpu.log" "7 passed, 3 failed"
fresh
rm "$PROGRAMS"/tests/*
gpu smoke
expect "no tests" 1 $?
contains "$OUT/gpu.log" "FAILED: tests: there is none in"
fresh
fake "$PROGRAMS/tests/gpu.a_test" 'exec sleep 600'
PART_SECONDS=3 gpu smoke
expect "a program that hangs" 1 $?
contains "$OUT/gpu.log" "FAILED: gpu.a_test: not ended within "
contains "$OUT/gpu.log" "the part's 3 seconds are over"

# ---- figures and their files: rows below one header, however often a step was run
fresh
gpu figures link
expect "figures" 0 $?
contains "$OUT/training.csv" "a,header,step"
for name in launches,launches "training,training--eager"; do contains "$OUT/${name%,*}.csv" "b,line,${name#*,}"; done
[ "$(wc -l <"$OUT/training.csv")" -eq 5 ] || { echo "WRONG: training.csv"; mistakes=$((mistakes + 1)); }
AGAIN=1 gpu figures
[ "$(wc -l <"$OUT/training.csv")" -eq 5 ] || { echo "WRONG: training.csv grows from run to run"; mistakes=$((mistakes + 1)); }
gpu more
contains "$work/calls" "--steps 1001"
[ "$(wc -l <"$OUT/training.csv")" -eq 8 ] || { echo "WRONG: training.csv without the rows of more"; mistakes=$((mistakes + 1)); }

# ---- clocks and temperature are logged while a part runs, and no longer
fresh
fake "$PROGRAMS/cuda_bench" "$writes" 'sleep 0.3'
gpu link
contains "$OUT/clocks.csv" "part,timestamp,clocks.sm"
contains "$OUT/clocks.csv" "link,1, 2, 3"
if kill -0 "$(cat "$work/logger")" 2>/dev/null; then
  echo "WRONG: the log of clocks goes on"
  mistakes=$((mistakes + 1))
fi
fresh
rm "$work/bin/nvidia-smi"
if ! command -v nvidia-smi >/dev/null; then
  gpu figures
  expect "no nvidia-smi" 0 $?
  contains "$OUT/gpu.log" "nvidia-smi: none"
fi

# ---- no PyTorch: this part alone fails
fresh
gpu torch
expect "no PyTorch" 1 $?
contains "$OUT/gpu.log" "FAILED: PyTorch: there is no PyTorch that sees a GPU"
fresh
fake "$work/python" 'case "$*" in *2,\ 11*) echo "PyTorch is older than 2.11"; exit 1 ;; *is_available*) echo "PyTorch 2.9" ;; esac'
gpu torch bits
expect "an old PyTorch" 1 $?
contains "$OUT/gpu.log" "FAILED: remat_torch_plan: not run: PyTorch is older than 2.11"
contains "$work/calls" "torch_gpt_checkpoint.py"
lacks "$work/calls" "check_networks.py"

# ---- the package's own tests and rows, and its networks, are run on the GPU
fresh
# shellcheck disable=SC2016
fake "$work/python" 'case "$*" in *gpu_graphs*) printf "a,header\nb,line\n"; exec 1>&-; echo "with $REMAT_PLAN" >&2 ;; esac'
gpu package graphs bits llm compilers
expect "the package" 0 $?
contains "$work/calls" "gpu_llm.py --networks gpt2 --ways eager,checkpoint,selective --ours graph"
contains "$work/calls" "gpu_llm.py --networks llama_blocks --ways compile"
contains "$work/calls" "-m pytest -q -m gpu"
contains "$work/calls" "gpu_graphs.py --size full --budgets 1,0.6"
contains "$OUT/graphs.csv" "b,line,steps-as-graphs--small"
contains "$OUT/gpu.log" "with $(realpath "$PROGRAMS/remat-plan")"
contains "$work/calls" "check_networks.py --device cuda --networks gpt2 --budgets 0.6"
contains "$work/calls" "check_networks.py --device cuda --networks gpt2 --budgets 0.4 --link measure"
fake "$work/python" 'case "$*" in *pytest*) exit 5 ;; esac'  # no test was collected
AGAIN=1 gpu package
expect "tests of the package that fail" 1 $?
contains "$OUT/gpu.log" "FAILED: tests of the package: exit status 5"

# ---- a machine that is lost takes neither rows nor marks with it, and the next call goes on from there
fresh
# shellcheck disable=SC2016
fake "$PROGRAMS/train-gpt-gpu" "$writes" 'case "$(grep -c ^train "'"$work"'/calls")" in 2) echo $$ >"'"$work"'/hangs"; exec sleep 60 ;; esac'
PATH=$work/bin:$PATH bash "$script" figures >"$work/printed" 2>&1 &
lost=$!
for _ in $(seq 600); do
  if [ -s "$work/hangs" ] && grep -q 'b,line,training--eager' "$OUT/training.csv" 2>/dev/null; then break; fi
  sleep 0.1
done
kill -9 "$lost"
wait "$lost" 2>/dev/null
kill "$(cat "$work/hangs")" "$(cat "$work/logger")" 2>/dev/null
contains "$OUT/training.csv" "b,line,training--replayed"
contains "$OUT/training.csv" "b,line,training--eager"
contains "$OUT/steps.csv" ",figures,training--replayed,passed,"
lacks "$OUT/steps.csv" "training--eager"
mv "$OUT" "$BEFORE"
gpu figures
expect "after a machine was lost" 0 $?
contains "$OUT/gpu.log" "3 passed, 0 failed, 1 done before"
[ "$(grep -c '^train-gpt-gpu' "$work/calls")" -eq 5 ] || { echo "WRONG: what had passed was run again"; mistakes=$((mistakes + 1)); }
[ "$(cut -d , -f 3 "$OUT/training.csv" | sort | uniq -c | awk '{ print $1, $2 }' | paste -sd ' ')" = \
  "1 step 1 training--eager 1 training--replayed 1 training-in-bfloat16--replayed 1 training-with-copies--replayed" ] ||
  { echo "WRONG: the rows of both calls"; cat "$OUT/training.csv"; mistakes=$((mistakes + 1)); }
[ "$(grep -c ',passed,' "$OUT/steps.csv")" -eq 4 ] || { echo "WRONG: the marks of both calls"; mistakes=$((mistakes + 1)); }

# ---- each part has a time of its own: one that is over takes none of the next
fresh
fake "$PROGRAMS/measure-link" 'exec sleep 600'
PART_SECONDS=4 gpu link smoke
expect "a part that is over" 1 $?
contains "$OUT/gpu.log" "FAILED: the link: not ended within "
contains "$OUT/gpu.log" "FAILED: launches: not run"
contains "$OUT/steps.csv" ",link,the-link,failed,"
contains "$OUT/steps.csv" ",smoke,gpu-a-test,passed,"

# ---- PyTorch is held beside the rows of figures, and does not get the cuBLAS of train-gpt-gpu
fresh
mkdir "$work/cublas"
touch "$work"/cublas/libcublas{,Lt}.so.13
# shellcheck disable=SC2016
fake "$work/python" 'case "$*" in "-") echo "'"$work"'/cublas" ;; *torch_gpt*) echo "PyTorch: ${LD_LIBRARY_PATH:-clean}" ;; esac'
# shellcheck disable=SC2016
fake "$PROGRAMS/train-gpt-gpu" 'echo "training: ${LD_LIBRARY_PATH:-none}"' "$writes"
gpu figures torch
expect "figures and PyTorch" 0 $?
contains "$OUT/gpu.log" "PyTorch: clean"
contains "$OUT/gpu.log" "training: /"
contains "$work/calls" "--plans $OUT/training.csv"
[ "$(grep -c '^train-gpt-gpu' "$work/calls")" -eq 4 ] || { echo "WRONG: rows were made twice"; mistakes=$((mistakes + 1)); }
gpu more
expect "more" 0 $?
contains "$work/calls" "compare.py --device cuda"

# ---- compute-sanitizer: cuda-minimal first; every tool, without the test of faults; the machine's own comes first
fresh
gpu sanitize
expect "sanitize" 0 $?
grep '^compute-sanitizer' "$work/calls" | head -n 1 | grep -q cuda-minimal ||
  { echo "WRONG: cuda-minimal is not checked first"; mistakes=$((mistakes + 1)); }
for tool in memcheck racecheck synccheck initcheck; do contains "$work/calls" "compute-sanitizer --tool $tool"; done
contains "$work/calls" "gpu.a_test --test-suite-exclude=uninstrumented"
lacks "$work/calls" "gpu.b_fault_test"
contains "$work/calls" "--nvtx yes $PROGRAMS/tests/gpu.c_regions_test --test-case=planted*"
lacks "$work/calls" "gpu.c_regions_test --test-suite-exclude"
# What the script names is there, in the tests.
contains "${script%/*}/execute/cuda_test.cu" 'test_suite("uninstrumented")'
contains "${script%/*}/execute/cuda_regions_test.cu" 'TEST_CASE("planted'
fresh
fake "$work/own/compute-sanitizer" "${sanitizer/exit 33/exit 0}"
PATH=$work/own:$PATH gpu sanitize
expect "an overrun that is not noticed" 1 $?
contains "$OUT/gpu.log" "$work/own/compute-sanitizer"
contains "$OUT/gpu.log" "FAILED: memcheck, a planted overrun of a region: exit status 0 instead of 33"
contains "$OUT/gpu.log" ", 1 failed"
fresh
fake "$work/own/compute-sanitizer" 'echo "========= Error: Device not supported"; exit 1'
PATH=$work/own:$PATH gpu sanitize
expect "a device that is refused" 1 $?
contains "$OUT/gpu.log" "FAILED: compute-sanitizer: it refuses this device"
lacks "$work/calls" "gpu.a_test"
fresh
fake "$work/own/compute-sanitizer" 'exit 33'
PATH=$work/own:$PATH gpu sanitize
expect "reports about cuda-minimal" 1 $?
contains "$OUT/gpu.log" "FAILED: compute-sanitizer: it fails on cuda-minimal"
# Without xz of the machine's own, that of the folder unpacks it.
fresh
bare=$work/bare
mkdir -p "$bare"
for file in /bin/* /usr/bin/* "$(command -v python3)"; do ln -sf "$file" "$bare"; done
rm -f "$bare/xz" "$bare/compute-sanitizer"
PATH=$bare gpu sanitize
status=$?
if [ ! -x /usr/local/cuda/bin/compute-sanitizer ] && [ ! -d /usr/local/cuda/compute-sanitizer ]; then
  expect "sanitize without xz" 0 "$status"
  contains "$work/calls" "xz -d"
fi
fresh
rm "$PROGRAMS/compute-sanitizer.tar.xz"
gpu sanitize
status=$?
if ! command -v compute-sanitizer >/dev/null && [ ! -x /usr/local/cuda/bin/compute-sanitizer ]; then
  expect "no compute-sanitizer" 1 "$status"
  contains "$OUT/gpu.log" "FAILED: compute-sanitizer: it is neither in"
fi

# ---- what lands in OUT is limited
fresh
fake "$PROGRAMS/tests/gpu.a_test" 'head -c 20000000 /dev/zero | tr "\0" x; echo; echo its last line'
gpu smoke
expect "a long log" 0 $?
[ "$(stat -c %s "$OUT/gpu.log")" -le 16777216 ] || { echo "WRONG: the log is too long"; mistakes=$((mistakes + 1)); }
contains "$OUT/gpu.log" "its last line"
contains "$OUT/gpu.log" "bytes left out"
contains "$OUT/gpu.log" "# gpu.sh smoke"
fresh
mkdir "$OUT"
touch "$OUT"/{1,2,3,4,5,6}
gpu smoke
expect "nine files" 1 $?
contains "$work/printed" "9 files in"

# ---- all: one after the other, the most important first
fresh
fake "$work/python" 'true'
gpu all
expect "all" 0 $?
[ "$(grep -o '^# gpu.sh [a-z]*' "$OUT/gpu.log" | cut -d ' ' -f 3 | paste -sd ' ')" = "package smoke llm link bits sanitize compilers graphs figures torch more" ] ||
  { echo "WRONG: the order of all"; mistakes=$((mistakes + 1)); }

if [ "$mistakes" -ne 0 ]; then
  echo "$mistakes wrong"
  exit 1
fi
echo "all as it should be"
