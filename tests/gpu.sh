#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Checks and figures on a machine with a GPU, by programs that were built elsewhere.
#
#   bash tests/gpu.sh build         on a machine with the CUDA Toolkit: builds the programs into build/gpu-programs
#   bash tests/gpu.sh smoke         on the machine with the GPU: the tests with the label gpu, a short training run
#   bash tests/gpu.sh figures       launches beside a hand-written loop; training within several budgets
#   bash tests/gpu.sh torch         the same training step in PyTorch, and remat_torch_plan on the GPU
#   bash tests/gpu.sh sanitize      the tests and a training run under compute-sanitizer
#   bash tests/gpu.sh all           the last four, one after the other
#
# The machine with the GPU needs this folder, build/gpu-programs and a driver: no compiler, package, network or .git. Matrix
# products are computed by cuBLAS where it is found (the toolkit's, or PyTorch's), else by a kernel of the example.
# Each part ends within eight minutes with exit status 0, or 1 if anything failed; what was skipped has failed. A log of
# each part and CSV files go to $OUT (build/gpu): at most 8 files of at most 16 MiB.
#
# Variables: OUT; PROGRAMS (build/gpu-programs); PYTHON (python3); MATMUL any|cublas|own (any); PART_SECONDS (460);
# SIZES and STEPS, of the largest training run; ARCHITECTURES, of the build ("90": machine code for sm_90, and PTX).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

programs=${PROGRAMS:-build/gpu-programs}
out=${OUT:-build/gpu}
python=${PYTHON:-python3}
matmul=${MATMUL:-any}
part_seconds=${PART_SECONDS:-460}
most_files=8
most_bytes=$((16 * 1024 * 1024))
most_program_bytes=$((40 * 1024 * 1024))
gpt2='--layers 12 --width 768 --heads 12 --context 1024 --batch 8 --vocabulary 50304'

stop() { echo "gpu.sh: $*" >&2; exit 2; }

# ---- build ---------------------------------------------------------------------------------------------------------------

# The files of compute-sanitizer: of the toolkit, else of NVIDIA's Python package (whole from 13.4 on: older ones lack the
# program that starts the checked one).
add_sanitizer() {
  local to=$1 from
  mkdir -p "$to"
  from=$(dirname "$(readlink -f "$(command -v nvcc)")")/../compute-sanitizer
  if [ -x "$from/TreeLauncherSubreaper" ]; then
    find "$from" -maxdepth 1 -type f -exec cp {} "$to" ';'
    return
  fi
  if ! "$python" -m pip download --quiet --no-deps --only-binary=:all: --dest "$to" 'nvidia-cuda-sanitizer-api>=13.4,<14'; then
    echo "compute-sanitizer is neither in the toolkit nor to be downloaded: \`sanitize\` will need the machine's own" >&2
    return
  fi
  "$python" - "$to" <<'PYTHON'
import pathlib, sys, zipfile
to = pathlib.Path(sys.argv[1])
for wheel in to.glob("*.whl"):
    with zipfile.ZipFile(wheel) as files:
        for path in map(pathlib.PurePosixPath, files.namelist()):
            if path.parent.name == "compute-sanitizer" and path.suffix in ("", ".so"):
                (to / path.name).write_bytes(files.read(str(path)))
                (to / path.name).chmod(0o755)
    wheel.unlink()
PYTHON
}

build() {
  local made=build/portable work
  work=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" EXIT
  export PATH="$PATH:/usr/local/cuda/bin"
  if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}; fi
  cmake --preset portable "-DCMAKE_CUDA_ARCHITECTURES=${ARCHITECTURES:-90}" || exit 1
  cmake --build --preset portable --parallel "${JOBS:-$(nproc)}" || exit 1

  rm -rf "$programs"
  mkdir -p "$programs/tests"
  cp "$made"/tests/gpu.*_test "$programs/tests" 2>/dev/null
  [ -n "$(ls "$programs/tests")" ] || stop "no test program was built: is doctest installed?"
  cp "$made"/examples/{train-gpt-gpu,cuda-minimal,remat-plan} "$made/bench/cuda_bench" "$programs" || exit 1
  add_sanitizer "$work/compute-sanitizer"
  if [ -x "$work/compute-sanitizer/compute-sanitizer" ]; then
    tar -C "$work" -czf "$programs/compute-sanitizer.tar.gz" compute-sanitizer || exit 1
  fi
  {
    echo "commit $(git describe --always --dirty 2>/dev/null || echo unknown)"
    nvcc --version | tail -n 2
    echo "architectures ${ARCHITECTURES:-90}"
    find "$programs" -type f -not -name manifest.txt -printf '%s %P\n' | sort -k 2
  } >"$programs/manifest.txt"
  local bytes
  bytes=$(du -sb "$programs" | cut -f 1)
  cat "$programs/manifest.txt"
  echo "$bytes bytes in $programs"
  [ "$bytes" -le "$most_program_bytes" ] || stop "$programs has $bytes bytes; at most $most_program_bytes may travel"
}

# ---- running programs ----------------------------------------------------------------------------------------------------

part=""
log=/dev/null
deadline=0
passed=0
failures=()
usual_steps=20

say() { printf '%s\n' "$*" | tee -a "$log"; }
fail() {  # NAME WHY
  failures+=("$part: $1")
  say "FAILED: $1: $2"
}

# run NAME SECONDS COMMAND…: at most so long, and no longer than the part may take. What is skipped has failed.
run() {
  local name=$1 limit=$2 left=$((deadline - SECONDS)) begun=$SECONDS status=0
  shift 2
  [ "$limit" -le "$left" ] || limit=$left
  say "" && say "## $name" && say "$*"
  if [ "$limit" -lt 1 ]; then
    fail "$name" "not run, because the part's $part_seconds seconds are over"
    return 1
  fi
  timeout --kill-after=5 "$limit" "$@" </dev/null 2>&1 | tee -a "$log" || status=${PIPESTATUS[0]}
  case $status in
    0) passed=$((passed + 1)) && say "passed after $((SECONDS - begun)) s" ;;
    77) fail "$name" "skipped by the program, see above: a skip is a failure here" ;;
    124 | 137) fail "$name" "not ended within $limit s" ;;
    126 | 127) fail "$name" "it cannot be started (exit status $status)" ;;
    *) fail "$name" "exit status $status" ;;
  esac
  return "$status"
}

# Puts the first cuBLAS found into LD_LIBRARY_PATH: the toolkit's, or that of PyTorch's packages.
find_cublas() {
  local folder
  while read -r folder; do
    if compgen -G "$folder/libcublas.so.1[23]" >/dev/null && compgen -G "$folder/libcublasLt.so.1[23]" >/dev/null; then
      export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
      say "cuBLAS: $folder"
      return
    fi
  done < <(
    tr ':' '\n' <<<"${LD_LIBRARY_PATH:-}"
    if command -v ldconfig >/dev/null; then ldconfig -p | sed -n 's|.*=> \(/.*\)/libcublas\.so\.1[23]$|\1|p'; fi
    "$python" - 2>/dev/null <<'PYTHON'
import glob, os, sys
for path in sys.path:
    for folder in sorted(glob.glob(os.path.join(path, "nvidia", "cu1[23]", "lib")), reverse=True):
        print(folder)
    print(os.path.join(path, "nvidia", "cublas", "lib"))
PYTHON
    printf '%s\n' /usr/local/cuda/lib64 /usr/local/cuda-1[23]*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib
  )
  say "cuBLAS: none; matrix products by the example's own kernel, in fewer training steps"
  usual_steps=6
}

begin() {  # PART
  part=$1
  deadline=$((SECONDS + part_seconds))
  [ -d "$programs" ] || stop "$programs is missing: make it with \`bash tests/gpu.sh build\` on a machine with the CUDA Toolkit"
  mkdir -p "$out" || stop "$out cannot be made"
  log=$out/$part.log
  : >"$log" || stop "$log cannot be written"
  say "# gpu.sh $part"
  if [ -f "$programs/manifest.txt" ]; then head -n 4 "$programs/manifest.txt" | tee -a "$log"; fi
  if command -v nvidia-smi >/dev/null; then
    timeout 30 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv 2>&1 | tee -a "$log"
  fi
  find_cublas
}

# The largest files keep their beginning and their end; more files than may travel are a failure.
limit_files() {
  local file bytes count
  for file in "$out"/*; do
    [ -f "$file" ] || continue
    bytes=$(stat -c %s "$file")
    if [ "$bytes" -gt "$most_bytes" ]; then
      { head -c $((most_bytes / 2)) "$file" && printf '\n… %s bytes left out …\n' "$((bytes - most_bytes + 4096))" &&
        tail -c $((most_bytes / 2 - 4096)) "$file"; } >"$file.short" && mv "$file.short" "$file"
      echo "$file was $bytes bytes; its middle was left out"
    fi
  done
  count=$(find "$out" -type f | wc -l)
  if [ "$count" -gt "$most_files" ]; then
    failures+=("$part: $count files in $out, of which $most_files may travel")
    echo "FAILED: $count files in $out; at most $most_files may travel"
  fi
}

# ---- the parts -----------------------------------------------------------------------------------------------------------

smoke() {
  local test found=0
  for test in "$programs"/tests/*; do
    [ -x "$test" ] || continue
    found=1
    run "${test##*/}" 120 "$test"
  done
  [ "$found" = 1 ] || fail tests "there is none in $programs/tests"
  run cuda-minimal 30 "$programs/cuda-minimal"
  local small='--layers 4 --width 128 --heads 4 --context 128 --batch 8 --seconds 0.5 --workspace 1024'
  # shellcheck disable=SC2086
  run "training, eager" 60 "$programs/train-gpt-gpu" $small --matmul "$matmul"
  # shellcheck disable=SC2086
  run "training, own products, 2 streams, replayed" 60 "$programs/train-gpt-gpu" $small --matmul own --streams 2 --graph
  run "launches" 60 "$programs/cuda_bench" --quick
}

figures() {
  local train=$programs/train-gpt-gpu budgets=1.0,0.9,0.8,0.7,0.6,0.5,0.4 sizes=${SIZES:-$gpt2} steps=${STEPS:-$usual_steps}
  rm -f "$out/training.csv"
  run "launches" 100 "$programs/cuda_bench" --csv "$out/launches.csv"
  run "a thousand replays" 60 "$train" --layers 4 --width 256 --heads 4 --context 128 --batch 8 --steps 1001 \
    --budget 0.6 --streams 2 --graph --matmul "$matmul" --csv "$out/training.csv"
  run "small network, budgets in bytes" 60 "$train" --layers 6 --width 384 --heads 6 --context 512 --batch 8 --seconds 3 \
    --steps "$steps" --budget 0.8,0.5,512MiB,384MiB --graph --matmul "$matmul" --csv "$out/training.csv"
  local how
  for how in "--graph" "" "--streams 2 --graph"; do
    # shellcheck disable=SC2086
    run "training${how:+, $how}" 150 "$train" $sizes --steps "$steps" --seconds 3 --budget "$budgets" $how \
      --matmul "$matmul" --csv "$out/training.csv"
  done
}

pytorch() {
  local train=$programs/train-gpt-gpu about missing
  if ! about=$("$python" -c 'import torch
if not torch.cuda.is_available(): raise SystemExit("torch.cuda.is_available() is false")
print("PyTorch", torch.__version__, "CUDA", torch.version.cuda)' 2>&1); then
    fail PyTorch "there is no PyTorch that sees a GPU ($(tail -n 1 <<<"$about")); this part needs one, 2.11 or newer"
    return
  fi
  say "$about"
  rm -f "$out/training.csv"
  # shellcheck disable=SC2086
  run "plans of the network" 120 "$train" ${SIZES:-$gpt2} --steps "${STEPS:-$usual_steps}" --seconds 3 --budget 0.8,0.6,0.5,0.4,0.3 \
    --graph --matmul "$matmul" --csv "$out/training.csv"
  # shellcheck disable=SC2086
  run "checkpoints at equal peak" 150 "$python" bench/pytorch/torch_gpt_checkpoint.py ${SIZES:-$gpt2} --steps "${STEPS:-$usual_steps}" \
    --plans "$out/training.csv" --csv "$out/checkpoints.csv"
  missing=$("$python" -c 'import torch
version = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2]))
if version < (2, 11): raise SystemExit("PyTorch is older than 2.11")' 2>&1) || {
    fail remat_torch_plan "not run: $(tail -n 1 <<<"$missing")"
    return
  }
  export REMAT_PLAN
  REMAT_PLAN=$(realpath "$programs/remat-plan")
  export PYTHONDONTWRITEBYTECODE=1
  run "remat_torch_plan, bits" 90 "$python" bench/pytorch/check_networks.py --networks gpt2 --budgets 0.6 --seconds 2
  run "remat_torch_plan beside PyTorch's own means" 220 "$python" bench/pytorch/compare.py --device cuda \
    --networks gpt2 --settings 0.4,0.6 --steps 7 --seconds 2 --csv "$out/compare.csv"
}

sanitize() {
  local tool kind test tests=() folder
  # The machine's own fits its driver.
  tool=$(PATH="$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer" command -v compute-sanitizer)
  if [ -z "$tool" ] && [ -f "$programs/compute-sanitizer.tar.gz" ]; then
    folder=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$folder'" EXIT
    tar -C "$folder" -xzf "$programs/compute-sanitizer.tar.gz" && tool=$folder/compute-sanitizer/compute-sanitizer
  fi
  if [ -z "$tool" ]; then
    fail compute-sanitizer "it is neither in $programs nor on this machine"
    return
  fi
  say "$tool"
  for test in "$programs"/tests/*; do
    # A test of faults makes the errors that the sanitizer reports.
    [[ "$test" == *fault* || ! -x "$test" ]] || tests+=("$test")
  done
  [ ${#tests[@]} -gt 0 ] || fail tests "there is none in $programs/tests"
  # Without what depends on time, or takes long.
  local quick='--test-case-exclude=*makespan*,*times of the launches*,*before its work has ended*,*thousand*'
  for kind in memcheck racecheck synccheck initcheck; do
    local extra=()
    [ "$kind" != memcheck ] || extra=(--report-api-errors no)
    for test in "${tests[@]}"; do
      run "$kind, ${test##*/}" 100 "$tool" --tool "$kind" "${extra[@]}" --error-exitcode 1 "$test" "$quick"
    done
    # cuBLAS reads bytes of its workspace that it has not written, and does not use them: initcheck would report that.
    run "$kind, training" 60 "$tool" --tool "$kind" "${extra[@]}" --error-exitcode 1 "$programs/train-gpt-gpu" \
      --layers 2 --width 64 --heads 4 --context 64 --batch 2 --steps 3 --budget 0.6 --seconds 0.5 --streams 2 --matmul own
  done
}

case "${1:-}" in
  build) build && exit 0 || exit 1 ;;
  smoke | figures | torch | sanitize) parts=("$1") ;;
  all) parts=(smoke figures torch sanitize) ;;
  "") stop "a part is missing: build, smoke, figures, torch, sanitize or all" ;;
  *) stop "unknown part $1; build, smoke, figures, torch, sanitize and all are known" ;;
esac
[ $# -eq 1 ] || stop "expected one argument, a part; the rest are variables (see the head of this file)"

for each in "${parts[@]}"; do
  begin "$each"
  case $each in
    torch) pytorch ;;
    *) "$each" ;;
  esac
  limit_files
done
echo
for failure in "${failures[@]}"; do echo "FAILED: $failure" | tee -a "$log"; done
echo "$passed passed, ${#failures[@]} failed" | tee -a "$log"
[ ${#failures[@]} -eq 0 ]
