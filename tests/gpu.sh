#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Checks and figures on a machine with a GPU, by programs that were built elsewhere.
#
#   bash tests/gpu.sh build         on a machine with the CUDA Toolkit: builds the programs into build/gpu-programs
#   bash tests/gpu.sh plan          the parts below, the most important first, their minutes, and what is done already
#   bash tests/gpu.sh smoke         on the machine with the GPU: the tests with the label gpu, a short training run
#   bash tests/gpu.sh figures       training within several budgets, replayed, eager and with copies to the host; launches
#                                   beside a hand-written loop; the link
#   bash tests/gpu.sh torch         the same training step in PyTorch, and remat_torch_plan on the GPU
#   bash tests/gpu.sh sanitize      the tests and a training run under compute-sanitizer
#   bash tests/gpu.sh more          a thousand replays; budgets in bytes; two streams; PyTorch's own means
#   bash tests/gpu.sh all           all parts, one after the other; or name some of them
#
# The machine with the GPU needs this folder, build/gpu-programs and a driver: no compiler, package, network or .git. Matrix
# products are computed by cuBLAS where it is found (the toolkit's, or PyTorch's), else by a kernel of the example.
# Each part ends within its minutes, so that it fits a command of ten, with exit status 0, or 1 if anything failed; what was
# skipped has failed. What has passed is not run again, by the same programs, unless AGAIN=1: call a part again to go on
# where it ended. A log of all calls and CSV files are copied to $OUT: at most 8 files of at most 16 MiB.
#
# Variables: OUT (build/gpu); KEPT (build/gpu-kept), a folder that must outlive a call: what is done, and its results; AGAIN;
# PROGRAMS (build/gpu-programs); PYTHON (python3); MATMUL any|cublas|own (any); PART_SECONDS, in place of a part's minutes;
# SIZES and STEPS, of the largest training run; ARCHITECTURES, of the build ("90": machine code for sm_90, and PTX).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

programs=${PROGRAMS:-build/gpu-programs}
out=${OUT:-build/gpu}
kept=${KEPT:-build/gpu-kept}
python=${PYTHON:-python3}
matmul=${MATMUL:-any}
most_files=8
most_bytes=$((16 * 1024 * 1024))
most_program_bytes=$((40 * 1024 * 1024))
all_parts=(smoke figures torch sanitize more)
declare -A minutes=([smoke]=4 [figures]=7 [torch]=6 [sanitize]=4 [more]=5)
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
  cp "$made"/examples/{train-gpt-gpu,cuda-minimal,measure-link,remat-plan} "$made/bench/cuda_bench" "$programs" || exit 1
  cp examples/cuda_minimal.expected "$programs/cuda-minimal.expected" || exit 1
  add_sanitizer "$work/compute-sanitizer"
  if [ -x "$work/compute-sanitizer/compute-sanitizer" ]; then
    # Two thirds of what gzip makes of it. A bare Debian has liblzma, but not xz, which travels, too.
    tar -C "$work" -cJf "$programs/compute-sanitizer.tar.xz" compute-sanitizer || exit 1
    cp -L "$(command -v xz)" "$programs/xz" || exit 1
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
part_seconds=0
log=/dev/null
deadline=0
passed=0
before=0
failures=()
declare -A ran=()
usual_steps=20
train=()

say() { printf '%s\n' "$*" && printf '%s\n' "$*" >>"$log"; }
fail() {  # NAME WHY
  failures+=("$part: $1")
  say "FAILED: $1: $2"
}
rows() { echo "$kept/rows/$1.${2//[^a-zA-Z0-9]/-}.csv"; }  # CSV NAME: the file for the rows of a step

# run NAME SECONDS COMMAND…: at most so long, and no longer than the part may take. What is skipped has failed. What has
# passed before is not run again. The command must end with exit status $wanted.
wanted=0
run() {
  local name=$1 limit=$2 left=$((deadline - SECONDS)) begun=$SECONDS status=0 key=${1//[^a-zA-Z0-9]/-}
  shift 2
  if [ -n "${ran[$key]:-}" ] || [ -f "$kept/done/$key" ]; then
    before=$((before + 1))
    say "" && say "## $name: done before"
    return 0
  fi
  [ "$limit" -le "$left" ] || limit=$left
  say "" && say "## $name, $(TZ=UTC printf '%(%H:%M:%S)T')" && say "$*"
  if [ "$limit" -lt 1 ]; then
    fail "$name" "not run, because the part's $part_seconds seconds are over"
    return 1
  fi
  rm -f "$kept/rows/"*".$key.csv"
  timeout --kill-after=5 "$limit" "$@" </dev/null 2>&1 | tee "$kept/last" | tee -a "$log" || status=${PIPESTATUS[0]}
  if [ "$status" = "$wanted" ]; then
    status=0
    passed=$((passed + 1)) && ran[$key]=1 && touch "$kept/done/$key"
    say "passed after $((SECONDS - begun)) s"
  else
    case $status in
      0) fail "$name" "exit status 0 instead of $wanted: what was planted was not noticed" && status=1 ;;
      77) fail "$name" "skipped by the program, see above: a skip is a failure here" ;;
      124 | 137) fail "$name" "not ended within $limit s" ;;
      126 | 127) fail "$name" "it cannot be started (exit status $status)" ;;
      *) fail "$name" "exit status $status" ;;
    esac
  fi
  publish
  return "$status"
}

# Makes `train` the command of train-gpt-gpu, with the first cuBLAS found: the toolkit's, or that of PyTorch's packages.
# LD_LIBRARY_PATH is for that program alone: another cuBLAS than its own would break PyTorch.
find_cublas() {
  local folder
  train=("$programs/train-gpt-gpu")
  while read -r folder; do
    if compgen -G "$folder/libcublas.so.1[23]" >/dev/null && compgen -G "$folder/libcublasLt.so.1[23]" >/dev/null; then
      train=(env "LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "${train[@]}")
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

# Clocks, temperature and power once a second, in the background, until end_clocks.
clocks=""
begin_clocks() {
  local fields=timestamp,clocks.sm,clocks.mem,temperature.gpu,power.draw,utilization.gpu reasons=clocks_event_reasons.active
  command -v nvidia-smi >/dev/null || return 0
  if timeout 10 nvidia-smi --query-gpu=$reasons --format=csv,noheader >/dev/null 2>&1; then fields+=,$reasons; fi
  [ -s "$kept/clocks.csv" ] || echo "part,$fields" >"$kept/clocks.csv"
  nvidia-smi --query-gpu=$fields --format=csv,noheader,nounits --loop=1 </dev/null 2>/dev/null \
    > >(sed -u "s/^/$part,/" >>"$kept/clocks.csv") &
  clocks=$!
}
end_clocks() {
  [ -n "$clocks" ] || return 0
  kill "$clocks" 2>/dev/null
  wait "$clocks" 2>/dev/null
  clocks=""
}
trap end_clocks EXIT

begin() {  # PART
  part=$1
  part_seconds=${PART_SECONDS:-$((minutes[$part] * 60))}
  deadline=$((SECONDS + part_seconds))
  [ -d "$programs" ] || stop "$programs is missing: make it with \`bash tests/gpu.sh build\` on a machine with the CUDA Toolkit"
  mkdir -p "$out" "$kept" || stop "$out and $kept cannot be made"
  # What other programs have done is not done.
  if ! cmp -s "$programs/manifest.txt" "$kept/manifest.txt"; then
    rm -rf "$kept"/{done,rows,clocks.csv,gpu.log}
    cp "$programs/manifest.txt" "$kept/manifest.txt" 2>/dev/null || rm -f "$kept/manifest.txt"
  fi
  mkdir -p "$kept"/{done,rows}
  log=$kept/gpu.log
  touch "$log" || stop "$log cannot be written"
  [ "${AGAIN:-0}" = 0 ] || forget_done
  say "" && say "# gpu.sh $part: ${minutes[$part]} of the $(total_minutes) minutes of all parts"
  if [ -f "$programs/manifest.txt" ]; then head -n 4 "$programs/manifest.txt" | tee -a "$log"; fi
  if command -v nvidia-smi >/dev/null; then
    timeout 30 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv 2>&1 | tee -a "$log"
  else
    say "nvidia-smi: none; clocks and temperature are not logged"
  fi
  # The versions of driver and runtime, which every program prints, once before anything fails for them.
  timeout 60 "$programs/cuda_bench" --device </dev/null 2>&1 | tee -a "$log"
  case ${PIPESTATUS[0]} in
    0) ;;
    77) fail device "there is none that these programs can use, see above; the part is not run" && return 1 ;;
    *) fail device "cuda_bench --device failed" ;;
  esac
  find_cublas
  begin_clocks
}

# With AGAIN: nothing is done yet, but what this call has done.
forget_done() {
  local mark
  for mark in "$kept"/done/*; do
    [ -n "${ran[${mark##*/}]:-}" ] || rm -f "$mark"
  done
}

total_minutes() {
  local each total=0
  for each in "${all_parts[@]}"; do total=$((total + minutes[$each])); done
  echo "$total"
}

plan() {
  local each from=0
  echo "part       minutes  from minute"
  for each in "${all_parts[@]}"; do
    printf '%-10s %7d  %11d\n' "$each" "${minutes[$each]}" "$from"
    from=$((from + minutes[$each]))
  done
  printf '%-10s %7d\n' all "$from"
  if cmp -s "$programs/manifest.txt" "$kept/manifest.txt" && [ -n "$(ls "$kept/done" 2>/dev/null)" ]; then
    echo "done by these programs:" && ls "$kept/done"
  else
    echo "nothing is done yet by these programs"
  fi
}

# Copies results to $OUT: the log, and the rows of each CSV file below one header.
publish() {
  local csv
  cp "$kept/gpu.log" "$out/gpu.log"
  [ ! -f "$kept/clocks.csv" ] || cp "$kept/clocks.csv" "$out/clocks.csv"
  for csv in launches training checkpoints compare; do
    if compgen -G "$kept/rows/$csv.*.csv" >/dev/null; then
      awk 'FNR == 1 && NR != 1 { next } { print }' "$kept/rows/$csv".*.csv >"$out/$csv.csv"
    fi
  done
  limit_files
}

# The largest files keep their beginning and their end; more files than may travel are a failure.
limit_files() {
  local file bytes
  while read -r bytes file; do
    { head -c $((most_bytes / 2)) "$file" && printf '\n… %s bytes left out …\n' "$((bytes - most_bytes + 4096))" &&
      tail -c $((most_bytes / 2 - 4096)) "$file"; } >"$file.short" && mv "$file.short" "$file"
    echo "$file was $bytes bytes; its middle was left out"
  done < <(find "$out" -maxdepth 1 -type f -size +"$most_bytes"c -printf '%s %p\n')
}
count_files() {
  local count
  count=$(find "$out" -type f | wc -l)
  if [ "$count" -gt "$most_files" ]; then
    failures+=("$part: $count files in $out, of which $most_files may travel")
    echo "FAILED: $count files in $out; at most $most_files may travel"
  fi
}

# ---- the parts -----------------------------------------------------------------------------------------------------------

# run_same NAME SECONDS EXPECTED COMMAND…: and its standard output must be that file.
run_same() {
  local name=$1 limit=$2 expected=$3
  shift 3
  # shellcheck disable=SC2016
  run "$name" "$limit" bash -c 'expected=$1 got=$2; shift 2; "$@" >"$got" || exit; cat "$got"; diff "$expected" "$got"' \
    - "$expected" "$kept/printed" "$@"
}

smoke() {
  local test found=0
  run_same cuda-minimal 30 "$programs/cuda-minimal.expected" "$programs/cuda-minimal"
  for test in "$programs"/tests/*; do
    [ -x "$test" ] || continue
    found=1
    run "${test##*/}" 90 "$test"
  done
  [ "$found" = 1 ] || fail tests "there is none in $programs/tests"
  local small='--layers 4 --width 128 --heads 4 --context 128 --batch 8 --seconds 0.5 --workspace 1024'
  # shellcheck disable=SC2086
  run "short training, eager" 60 "${train[@]}" $small --matmul "$matmul"
  # shellcheck disable=SC2086
  run "short training, own products, 2 streams, replayed" 60 "${train[@]}" $small --matmul own --streams 2 --graph
  # shellcheck disable=SC2086
  run "short training, copies, replayed" 60 "${train[@]}" $small --matmul "$matmul" --link measure --graph
  run "launches, quick" 60 "$programs/cuda_bench" --quick
}

# The rows beside which PyTorch's are held: of `figures`, or of `torch` if it comes first.
training_rows() {  # NAME ARGUMENT…
  local name=$1
  shift
  # shellcheck disable=SC2086
  run "$name" 150 "${train[@]}" ${SIZES:-$gpt2} --steps "${STEPS:-$usual_steps}" --seconds 3 \
    --budget 1.0,0.9,0.8,0.7,0.6,0.5,0.4 --matmul "$matmul" --csv "$(rows training "$name")" "$@"
}

figures() {
  training_rows "training, replayed" --graph
  training_rows "training, eager"
  training_rows "training with copies, replayed" --graph --link measure --budget 0.8,0.6,0.5,0.4,0.3,0.2
  run "launches" 100 "$programs/cuda_bench" --csv "$(rows launches launches)"
  run "the link" 20 "$programs/measure-link" --json
}

# True if Python has a PyTorch that sees a GPU.
has_torch() {
  local about
  if ! about=$("$python" -c 'import torch
if not torch.cuda.is_available(): raise SystemExit("torch.cuda.is_available() is false")
print("PyTorch", torch.__version__, "CUDA", torch.version.cuda)' 2>&1); then
    fail PyTorch "there is no PyTorch that sees a GPU ($(tail -n 1 <<<"$about")); this part needs one, 2.11 or newer"
    return 1
  fi
  say "$about"
}
# True if remat_torch_plan can be used; then it is prepared.
has_torch_plan() {
  local missing
  missing=$("$python" -c 'import torch
version = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2]))
if version < (2, 11): raise SystemExit("PyTorch is older than 2.11")' 2>&1) || {
    fail remat_torch_plan "not run: $(tail -n 1 <<<"$missing")"
    return 1
  }
  export REMAT_PLAN
  REMAT_PLAN=$(realpath "$programs/remat-plan")
  export PYTHONDONTWRITEBYTECODE=1
}

pytorch() {
  has_torch || return
  training_rows "training, replayed" --graph
  training_rows "training, eager"
  # shellcheck disable=SC2086
  run "checkpoints at equal peak" 200 "$python" bench/pytorch/torch_gpt_checkpoint.py ${SIZES:-$gpt2} --steps "${STEPS:-$usual_steps}" \
    --plans "$out/training.csv" --csv "$(rows checkpoints "checkpoints at equal peak")"
  has_torch_plan || return
  run "remat_torch_plan, bits" 90 "$python" bench/pytorch/check_networks.py --networks gpt2 --budgets 0.6 --seconds 2
  run "remat_torch_plan, copies" 90 "$python" bench/pytorch/check_networks.py --device cuda --networks gpt2 --budgets 0.4 --link measure --seconds 2
}

more() {
  run "a thousand replays" 60 "${train[@]}" --layers 4 --width 256 --heads 4 --context 128 --batch 8 --steps 1001 \
    --budget 0.6 --streams 2 --graph --matmul "$matmul" --csv "$(rows training "a thousand replays")"
  if has_torch && has_torch_plan; then
    run "remat_torch_plan beside PyTorch's own means" 200 "$python" bench/pytorch/compare.py --device cuda \
      --networks gpt2 --settings 0.4,0.6 --steps 7 --seconds 2 \
      --csv "$(rows compare "remat_torch_plan beside PyTorch's own means")"
  fi
  run "small network, budgets in bytes" 60 "${train[@]}" --layers 6 --width 384 --heads 6 --context 512 --batch 8 --seconds 3 \
    --steps "${STEPS:-$usual_steps}" --budget 0.8,0.5,512MiB,384MiB --graph --matmul "$matmul" \
    --csv "$(rows training "small network, budgets in bytes")"
  training_rows "training, 2 streams, replayed" --streams 2 --graph
}

sanitize() {
  local tool kind test tests=() folder
  # The machine's own fits its driver.
  tool=$(PATH="$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer" command -v compute-sanitizer)
  if [ -z "$tool" ] && [ -f "$programs/compute-sanitizer.tar.xz" ]; then
    folder=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "end_clocks; rm -rf '$folder'" EXIT
    PATH="$PATH:$(realpath "$programs")" tar -C "$folder" -xJf "$programs/compute-sanitizer.tar.xz" &&
      tool=$folder/compute-sanitizer/compute-sanitizer
  fi
  if [ -z "$tool" ]; then
    fail compute-sanitizer "it is neither in $programs nor on this machine"
    return
  fi
  say "$tool"
  if ! run "compute-sanitizer on cuda-minimal" 60 "$tool" --tool memcheck --error-exitcode 33 "$programs/cuda-minimal"; then
    if grep -qiE 'device not supported|not supported on this|unable to (find|attach)|error 999' "$kept/last"; then
      fail compute-sanitizer "it refuses this device, see above; nothing is checked by it here"
    else
      fail compute-sanitizer "it fails on cuda-minimal, so its other reports would mean nothing"
    fi
    return
  fi
  for test in "$programs"/tests/*; do
    # A test of faults makes the errors that the sanitizer reports; that of regions has a run of its own.
    [[ "$test" == *fault* || "$test" == *regions* || ! -x "$test" ]] || tests+=("$test")
  done
  [ ${#tests[@]} -gt 0 ] || fail tests "there is none in $programs/tests"
  local checked=("$tool" --tool memcheck --report-api-errors no --error-exitcode 33)
  for test in "$programs"/tests/*regions*; do
    [ -x "$test" ] || continue
    run "memcheck, regions that are kept" 60 "${checked[@]}" --nvtx yes "$test" '--test-case-exclude=planted*'
    wanted=33 run "memcheck, a planted overrun of a region" 60 "${checked[@]}" --nvtx yes "$test" '--test-case=planted*'
  done
  for kind in memcheck racecheck initcheck synccheck; do
    checked=("$tool" --tool "$kind" --error-exitcode 33)
    [ "$kind" != memcheck ] || checked+=(--report-api-errors no)
    local sizes='--layers 2 --width 64 --heads 4 --context 64 --batch 2'
    # It follows every access to shared memory: the kernels are then a hundred times slower.
    [ "$kind" != racecheck ] || sizes='--layers 1 --width 32 --heads 2 --context 32 --batch 1'
    # cuBLAS reads bytes of its workspace that it has not written, and does not use them: initcheck would report that.
    # shellcheck disable=SC2086
    run "$kind, training" 60 "${checked[@]}" "$programs/train-gpt-gpu" \
      $sizes --steps 3 --budget 0.8 --seconds 0.5 --streams 2 --matmul own
    [ "$kind" != racecheck ] || continue  # the kernels of the tests have no shared memory
    for test in "${tests[@]}"; do
      # The debug modes copy the whole arena, also bytes that no kernel has written.
      [[ "$kind" != initcheck || "$test" != *debug* ]] || continue
      run "$kind, ${test##*/}" 90 "${checked[@]}" "$test" --test-suite-exclude=uninstrumented \
        $([ "$kind" != initcheck ] || echo '--test-case-exclude=debug*')
    done
  done
}

parts=("$@")
case "${1:-}" in
  build | plan) [ $# -eq 1 ] || stop "$1 stands alone" ;;&
  build) build && exit 0 || exit 1 ;;
  plan) plan && exit 0 ;;
  all) [ $# -eq 1 ] || stop "all stands alone" && parts=("${all_parts[@]}") ;;
  "") stop "a part is missing: build, plan, ${all_parts[*]} or all" ;;
esac
for each in "${parts[@]}"; do
  [ -n "${minutes[$each]:-}" ] || stop "unknown part $each; build, plan, ${all_parts[*]} and all are known"
done

for each in "${parts[@]}"; do
  if begin "$each"; then
    case $each in
      torch) pytorch ;;
      *) "$each" ;;
    esac
  fi
  end_clocks
  publish
  count_files
done
echo
for failure in "${failures[@]}"; do echo "FAILED: $failure" | tee -a "$log"; done
say "$passed passed, ${#failures[@]} failed$([ "$before" = 0 ] || echo ", $before done before")"
publish
[ ${#failures[@]} -eq 0 ]
