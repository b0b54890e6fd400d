#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# Checks and figures on a machine with a GPU, by programs that were built elsewhere.
#
#   bash tests/gpu.sh build         on a machine with the CUDA Toolkit: builds the programs into build/gpu-programs
#   bash tests/gpu.sh --plan        (or --dry-run) runs nothing: the parts and their steps, minutes by part, what is done already
#   bash tests/gpu.sh first         on the machine with the GPU, one after the other: package smoke llm link
#   bash tests/gpu.sh second        the same: bits sanitize
#   bash tests/gpu.sh PART…         these parts
#   bash tests/gpu.sh all           all parts, the most valuable first
#
#   package    the GPU tests of the Python package (pytest's mark gpu)
#   smoke      the tests with the label gpu, and short training runs
#   llm        language models in bfloat16: planned steps in CUDA graphs beside eager ones and checkpoints, at equal bytes; rows in the log
#   link       the link to the host; launches beside a hand-written loop
#   bits       planned PyTorch steps on the GPU: bits, bytes, copies
#   sanitize   the tests and a training run under compute-sanitizer
#   compilers  the same beside torch.compile, with and without a budget
#   graphs, figures, torch, more    what is known already (docs/figures/gpu): steps in CUDA graphs; training within budgets, replayed, eager, in bfloat16 and with copies;
#                                   the same step with PyTorch's checkpoints; a thousand replays, two streams, PyTorch's own means
#
# The machine with the GPU needs this folder, build/gpu-programs and a driver: no compiler, package, network or .git. Matrix
# products are computed by cuBLAS where it is found (the toolkit's, or PyTorch's), else by a kernel of the example.
# Each part ends within its seconds, with exit status 0, or 1 if anything failed; what was skipped has failed. `first` and `second`
# end within 15 minutes together with the machine's start (3 minutes are counted), each within a command of ten.
#
# What each step has said and found is in $OUT at once: gpu.log; rows of CSV files, within a second, each with its step; and one
# mark a step in steps.csv. A call reads them again from $BEFORE, so copy there what came back from the last one: what has passed
# is not run again by the same programs, unless AGAIN=1. At most 8 files of at most 16 MiB come back.
#
# Variables: OUT (build/gpu); BEFORE (build/gpu), the OUT of earlier calls; AGAIN; PROGRAMS (build/gpu-programs); PYTHON (python3);
# MATMUL any|cublas|own (any); PART_SECONDS, in place of a part's; SIZES and STEPS, of the largest training run; ARCHITECTURES,
# of the build ("90": machine code for sm_90, and PTX).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2

programs=${PROGRAMS:-build/gpu-programs}
out=${OUT:-build/gpu}
earlier=${BEFORE:-build/gpu}
python=${PYTHON:-python3}
matmul=${MATMUL:-any}
most_files=8
most_bytes=$((16 * 1024 * 1024))
most_program_bytes=$((40 * 1024 * 1024))
first=(package smoke llm link)
second=(bits sanitize)
known_parts=(compilers graphs figures torch more)
all_parts=("${first[@]}" "${second[@]}" "${known_parts[@]}")
declare -A seconds=([package]=130 [smoke]=150 [llm]=110 [link]=60 [bits]=90 [sanitize]=180 [compilers]=300 [graphs]=100 [figures]=510 [torch]=570 [more]=300)
start_seconds=180
most_seconds=900
kinds=(launches training checkpoints compare graphs)
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
dry=0
failures=()
declare -A ran=() done_before=()
usual_steps=20
train=()
clocks=""
publisher=""
kept=$(mktemp -d) || stop "there is no folder for temporary files"
clean() {
  [ "$BASHPID" = $$ ] || return  # a child that is killed before it has reset the shell's traps
  end_clocks
  end_publishing
  rm -rf "$kept"
}
trap clean EXIT

say() { printf '%s\n' "$*" && printf '%s\n' "$*" >>"$log"; }
fail() {  # NAME WHY
  failures+=("$part: $1")
  say "FAILED: $1: $2"
}
key_of() { echo "${1//[^a-zA-Z0-9]/-}"; }
rows() { echo "$kept/rows/$1.$(key_of "$2").csv"; }  # CSV NAME: the file for the rows of a step

# run NAME SECONDS COMMAND…: at most so long, and no longer than the part may take. What is skipped has failed. What has
# passed before is not run again. The command must end with exit status $wanted.
wanted=0
run() {
  local name=$1 limit=$2 left=$((deadline - SECONDS)) begun=$SECONDS status=0 key word=passed
  key=$(key_of "$name")
  shift 2
  if [ "$dry" = 1 ]; then
    printf '             %4d s at most  %s%s\n' "$limit" "$name" "$([ -z "${done_before[$key]:-}" ] || echo ": passed before")"
    return 0
  fi
  if [ -n "${ran[$key]:-}" ] || [ -n "${done_before[$key]:-}" ]; then
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
  begin_publishing
  timeout --kill-after=5 "$limit" "$@" </dev/null 2>&1 | tee "$kept/last" | tee -a "$log" || status=${PIPESTATUS[0]}
  end_publishing
  if [ "$status" = "$wanted" ]; then
    status=0
    passed=$((passed + 1)) && ran[$key]=1
    say "passed after $((SECONDS - begun)) s"
  else
    word=failed
    case $status in
      0) fail "$name" "exit status 0 instead of $wanted: what was planted was not noticed" && status=1 ;;
      77) fail "$name" "skipped by the program, see above: a skip is a failure here" ;;
      124 | 137) fail "$name" "not ended within $limit s" ;;
      126 | 127) fail "$name" "it cannot be started (exit status $status)" ;;
      *) fail "$name" "exit status $status" ;;
    esac
  fi
  echo "$identity,$part,$key,$word,$((SECONDS - begun)),$(TZ=UTC printf '%(%FT%TZ)T')" >>"$out/steps.csv"
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

# end_background PID: ends a process of this script, if there is one.
end_background() {
  [ -n "$1" ] || return 0
  kill "$1" 2>/dev/null
  wait "$1" 2>/dev/null
}

# Clocks, temperature and power once a second, in the background, until end_clocks.
begin_clocks() {
  local fields=timestamp,clocks.sm,clocks.mem,temperature.gpu,power.draw,utilization.gpu reasons=clocks_event_reasons.active
  command -v nvidia-smi >/dev/null || return 0
  if timeout 10 nvidia-smi --query-gpu=$reasons --format=csv,noheader >/dev/null 2>&1; then fields+=,$reasons; fi
  [ -s "$out/clocks.csv" ] || echo "part,$fields" >"$out/clocks.csv"
  nvidia-smi --query-gpu=$fields --format=csv,noheader,nounits --loop=1 </dev/null 2>/dev/null \
    > >(sed -u "s/^/$part,/" >>"$out/clocks.csv") &
  clocks=$!
}
end_clocks() { end_background "$clocks"; clocks=""; }

# Which programs: their manifest's checksum.
identify() {
  identity=none
  [ ! -f "$programs/manifest.txt" ] || identity=$(cksum <"$programs/manifest.txt" | cut -d ' ' -f 1)
}

# Reads what earlier calls have left in FOLDER: the marks of these programs, and the rows of the steps that passed.
remember() {  # FOLDER
  local of part_of key word csv
  [ -f "$1/steps.csv" ] || return 0
  while IFS=, read -r of part_of key word _; do
    [ "$of" = "$identity" ] || continue
    unset "done_before[$key]"
    [ "$word" != passed ] || [ "${AGAIN:-0}" != 0 ] || done_before[$key]=$part_of
  done <"$1/steps.csv"
  for csv in "${kinds[@]}"; do
    [ -f "$1/$csv.csv" ] || continue
    for key in "${!done_before[@]}"; do
      [ ! -f "$kept/rows/$csv.$key.csv" ] || continue
      awk -F , -v key="$key" 'FNR == 1 ? $NF == "step" : $NF == key { sub(/,[^,]*$/, ""); print; n++ } END { exit n < 2 }' "$1/$csv.csv" \
        >"$kept/rows/$csv.$key.csv" || rm -f "$kept/rows/$csv.$key.csv"
    done
  done
}

# Once, before the first part: OUT goes on where BEFORE ended.
prepare() {
  local file
  [ -d "$programs" ] || stop "$programs is missing: make it with \`bash tests/gpu.sh build\` on a machine with the CUDA Toolkit"
  mkdir -p "$out" "$kept/rows" || stop "$out cannot be made"
  identify
  if ! [ "$earlier" -ef "$out" ] && [ -d "$earlier" ]; then
    for file in gpu.log clocks.csv steps.csv; do
      if [ -f "$earlier/$file" ] && [ ! -f "$out/$file" ]; then cp "$earlier/$file" "$out/$file"; fi
    done
    remember "$earlier"
  fi
  remember "$out"
  [ -f "$out/steps.csv" ] || echo "programs,part,step,result,seconds,ended" >"$out/steps.csv"
  log=$out/gpu.log
  touch "$log" || stop "$log cannot be written"
  publish
}

begin() {  # PART
  part=$1
  part_seconds=${PART_SECONDS:-${seconds[$part]}}
  deadline=$((SECONDS + part_seconds))
  say "" && say "# gpu.sh $part: at most $part_seconds s"
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

# The parts with their steps, minutes and marks, of both calls and of what is known. Runs nothing. Exit status 1 if both calls
# would take too long.
plan() {
  local each from call sum members=() total=$start_seconds status=0
  dry=1
  mkdir -p "$kept/rows"
  identify
  remember "$earlier"
  remember "$out"
  train=("$programs/train-gpt-gpu")
  for call in first second known; do
    case $call in
      first) members=("${first[@]}") ;;
      second) members=("${second[@]}") ;;
      known) members=("${known_parts[@]}") ;;
    esac
    sum=0
    for each in "${members[@]}"; do sum=$((sum + seconds[$each])); done
    printf '%s: %s minutes\n' "$call" "$(in_minutes "$sum")"
    [ "$call" = known ] || total=$((total + sum))
    [ "$sum" -le 600 ] || [ "$call" = known ] || status=1
    from=0
    for each in "${members[@]}"; do
      printf '  %-10s %5s minutes, from minute %s\n' "$each" "$(in_minutes "${seconds[$each]}")" "$(in_minutes "$from")"
      from=$((from + seconds[$each]))
      part=$each
      run_part "$each"
    done
  done
  echo "first and second, with $(in_minutes $start_seconds) minutes for the machine's start: $(in_minutes $total) of $(in_minutes $most_seconds) minutes"
  [ "$total" -le "$most_seconds" ] || status=1
  [ ${#done_before[@]} -gt 0 ] || echo "nothing is done yet by these programs"
  return $status
}
in_minutes() { printf '%d.%d' $(($1 / 60)) $(($1 % 60 / 6)); }

# Writes the rows of each CSV file below one header to $OUT, each with its step.
publish() {
  local csv
  for csv in "${kinds[@]}"; do
    if compgen -G "$kept/rows/$csv.*.csv" >/dev/null; then
      awk 'FNR == 1 { step = FILENAME; sub(/\.csv$/, "", step); sub(/.*\./, "", step); if (NR == 1) print $0 ",step"; next }
        { print $0 "," step }' "$kept/rows/$csv".*.csv >"$kept/merged" && cp "$kept/merged" "$out/$csv.csv"
    fi
  done
  limit_files
}
# The same once a second, in the background, until end_publishing or the script's end: a machine that is lost takes no more rows with it.
begin_publishing() {
  while sleep 1 && kill -0 $$ 2>/dev/null; do publish >/dev/null; done &
  publisher=$!
}
end_publishing() { end_background "$publisher"; publisher=""; }

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

package() {
  has_torch && has_torch_plan || return
  run "tests of the package" 120 bash tests/gpu_torch.sh tests
}

# Their rows, with other columns than those of any file, are in the log, each as soon as it is measured.
llm() {
  has_torch && has_torch_plan || return
  run "language models, GPT-2" 60 "$python" bench/pytorch/gpu_llm.py --networks gpt2 --ways eager,checkpoint,selective --ours graph \
    --seconds 1 --minutes 0.8
  run "language models, blocks of Llama" 50 "$python" bench/pytorch/gpu_llm.py --networks llama_blocks --ways eager,checkpoint,selective \
    --ours graph --seconds 1 --minutes 0.7
}

compilers() {
  has_torch && has_torch_plan || return
  run "language models, compiled, GPT-2" 150 "$python" bench/pytorch/gpu_llm.py --networks gpt2 --ways compile --minutes 2.2
  run "language models, compiled, blocks of Llama" 150 "$python" bench/pytorch/gpu_llm.py --networks llama_blocks --ways compile --minutes 2.2
}

graphs() {
  has_torch && has_torch_plan || return
  run "steps as graphs, small" 40 bash tests/gpu_torch.sh rows small "$(rows graphs "steps as graphs, small")"
  run "steps as graphs, full" 60 bash tests/gpu_torch.sh rows full "$(rows graphs "steps as graphs, full")"
}

smoke() {
  local test found=0
  run_same cuda-minimal 30 "$programs/cuda-minimal.expected" "$programs/cuda-minimal"
  for test in "$programs"/tests/*; do
    [ -x "$test" ] || continue
    found=1
    run "${test##*/}" 90 "$test"
  done
  [ "$found" = 1 ] || [ "$dry" = 1 ] || fail tests "there is none in $programs/tests"
  local small='--layers 4 --width 128 --heads 4 --context 128 --batch 8 --seconds 0.5 --workspace 1024'
  # shellcheck disable=SC2086
  run "short training, eager" 60 "${train[@]}" $small --matmul "$matmul"
  # shellcheck disable=SC2086
  run "short training, bfloat16, replayed" 60 "${train[@]}" $small --matmul "$matmul" --precision bf16 --graph
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
  training_rows "training in bfloat16, replayed" --graph --precision bf16
  training_rows "training with copies, replayed" --graph --link measure --budget 0.8,0.6,0.5,0.4,0.3,0.2
}

link() {
  run "the link" 20 "$programs/measure-link" --json
  run "launches" 60 "$programs/cuda_bench" --csv "$(rows launches launches)"
}

bits() {
  has_torch && has_torch_plan || return
  run "remat_torch_plan, bits" 60 "$python" bench/pytorch/check_networks.py --device cuda --networks gpt2 --budgets 0.6 --seconds 2
  run "remat_torch_plan, copies" 60 "$python" bench/pytorch/check_networks.py --device cuda --networks gpt2 --budgets 0.4 --link measure --seconds 2
}

# True if Python has a PyTorch that sees a GPU.
has_torch() {
  local about
  [ "$dry" = 0 ] || return 0
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
  [ "$dry" = 0 ] || return 0
  missing=$("$python" -c 'import torch
version = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2]))
if version < (2, 11): raise SystemExit("PyTorch is older than 2.11")' 2>&1) || {
    fail remat_torch_plan "not run: $(tail -n 1 <<<"$missing")"
    return 1
  }
  export REMAT_PLAN
  REMAT_PLAN=$(realpath "$programs/remat-plan")
  export PYTHONDONTWRITEBYTECODE=1 PYTHON=$python
}

pytorch() {
  has_torch || return
  training_rows "training, replayed" --graph
  training_rows "training, eager"
  # shellcheck disable=SC2086
  run "checkpoints at equal peak" 200 "$python" bench/pytorch/torch_gpt_checkpoint.py ${SIZES:-$gpt2} --steps "${STEPS:-$usual_steps}" \
    --plans "$out/training.csv" --csv "$(rows checkpoints "checkpoints at equal peak")"
  training_rows "training in bfloat16, replayed" --graph --precision bf16
  # shellcheck disable=SC2086
  run "checkpoints at equal peak, bfloat16" 200 "$python" bench/pytorch/torch_gpt_checkpoint.py ${SIZES:-$gpt2} --steps "${STEPS:-$usual_steps}" \
    --precision bf16 --plans "$out/training.csv" --csv "$(rows checkpoints "checkpoints at equal peak, bfloat16")"
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
  [ "$dry" = 1 ] && tool=compute-sanitizer || tool=$(PATH="$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer" command -v compute-sanitizer)
  if [ -z "$tool" ] && [ -f "$programs/compute-sanitizer.tar.xz" ]; then
    folder=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "clean; rm -rf '$folder'" EXIT
    PATH="$PATH:$(realpath "$programs")" tar -C "$folder" -xJf "$programs/compute-sanitizer.tar.xz" &&
      tool=$folder/compute-sanitizer/compute-sanitizer
  fi
  if [ -z "$tool" ]; then
    fail compute-sanitizer "it is neither in $programs nor on this machine"
    return
  fi
  [ "$dry" = 1 ] || say "$tool"
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
  [ ${#tests[@]} -gt 0 ] || [ "$dry" = 1 ] || fail tests "there is none in $programs/tests"
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
      local left_out=(--test-suite-exclude=uninstrumented)
      [ "$kind" != initcheck ] || left_out+=('--test-case-exclude=debug*')
      run "$kind, ${test##*/}" 90 "${checked[@]}" "$test" "${left_out[@]}"
    done
  done
}

run_part() {  # PART
  case $1 in
    torch) pytorch ;;
    *) "$1" ;;
  esac
}

parts=("$@")
known="build, --plan, first, second, ${all_parts[*]} or all"
case "${1:-}" in
  build | plan | --plan | --dry-run | first | second | all) [ $# -eq 1 ] || stop "$1 stands alone" ;;&
  --help | -h) sed -n '3,/^set -uo/{/^#/s/^# \{0,1\}//p}' tests/gpu.sh && exit 0 ;;
  build) build && exit 0 || exit 1 ;;
  plan | --plan | --dry-run) plan && exit 0 || exit 1 ;;
  first) parts=("${first[@]}") ;;
  second) parts=("${second[@]}") ;;
  all) parts=("${all_parts[@]}") ;;
  "") stop "a part is missing: $known" ;;
esac
for each in "${parts[@]}"; do
  [ -n "${seconds[$each]:-}" ] || stop "unknown part $each; expected $known"
done

prepare
for each in "${parts[@]}"; do
  if begin "$each"; then run_part "$each"; fi
  end_clocks
  publish
  count_files
done
echo
for failure in "${failures[@]}"; do echo "FAILED: $failure" | tee -a "$log"; done
say "$passed passed, ${#failures[@]} failed$([ "$before" = 0 ] || echo ", $before done before")"
publish
[ ${#failures[@]} -eq 0 ]
