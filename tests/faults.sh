#!/usr/bin/env bash
# SPDX-License-Identifier: BSL-1.0
# What the built remat-plan does when the world around it fails: a disk that is full after each number of bytes, a pipe whose
# reader goes, CBC killed while it works, and signals at random moments. By hand, as root for the small file system (without
# it, the full disk is /dev/full alone). Some minutes. Prints one line for each fault; exit status 1 if one was borne badly.
#
#     bash tests/faults.sh [build/release/examples/remat-plan]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
program=${1:-build/release/examples/remat-plan}
[ -x "$program" ] || { echo "there is no $program; build it, or give its path" >&2; exit 2; }
graphs=tests/data/graphs
scratch=$(mktemp -d)
trap 'umount "$scratch/disk" 2>/dev/null; rm -rf "$scratch"' EXIT
bad=0

say() {  # WHAT BORNE TRIES
  printf '%-60s %5d of %5d\n' "$1" "$2" "$3"
  [ "$2" -eq "$3" ] || bad=1
}
# complete FILE: whether a file of JSON, CSV, HTML or DOT that a run reported as written is there to its end.
complete() {
  case $1 in
    *.json) python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$1" 2>/dev/null ;;
    *.html) tail -c 20 "$1" | grep -q '</html>' ;;
    *.dot) [ "$(tail -c 2 "$1")" = "}" ] ;;
    *) [ -s "$1" ] ;;
  esac
}
solve=("$graphs/unet5-b16-256.json" --budget 0.7 --solver evict --work 200000)

# ---- a full disk ---------------------------------------------------------------------------------------------------------
mkdir "$scratch/disk"
if mount -t tmpfs -o size=256k none "$scratch/disk" 2>/dev/null; then
  for pair in --out:s.json --intervals:i.csv --trace:t.json --report:r.html --dot:p.dot; do
    borne=0 tries=0
    for free in 0 4 8 16 32 64 128 256; do
      rm -f "$scratch/disk/"*
      [ "$free" -eq 256 ] || head -c $((256 - free))k /dev/zero >"$scratch/disk/ballast"
      file=$scratch/disk/${pair#*:}
      "$program" "${solve[@]}" "${pair%%:*}" "$file" >"$scratch/out" 2>"$scratch/err"
      status=$?
      tries=$((tries + 1))
      if [ $status -eq 0 ]; then
        complete "$file" && borne=$((borne + 1))
      elif [ $status -eq 1 ] && grep -q "$file: cannot be written" "$scratch/err" && grep -q evict "$scratch/out"; then
        borne=$((borne + 1))
      fi
    done
    say "full disk, ${pair%%:*}: said, or written to its end" $borne $tries
  done
  borne=0 tries=0
  sweep=("$program" sweep "$graphs/unet5-b16-256.json" --budget 0.9,0.8,0.7,0.6,0.5,0.4 --solver auto --work 2000)
  "${sweep[@]}" --out "$scratch/undisturbed" >/dev/null
  for free in 4 8 12 16 24 32 48; do  # finished pieces stay, and with room again the sweep goes on
    rm -rf "$scratch/disk/"* "$scratch/disk/".[a-z]*
    head -c $((256 - free))k /dev/zero >"$scratch/disk/ballast"
    "${sweep[@]}" --out "$scratch/disk/sweep" >"$scratch/out" 2>"$scratch/err"
    status=$?
    tries=$((tries + 1))
    kept=$(grep -c ', overhead' "$scratch/out")
    cp -r "$scratch/disk/sweep" "$scratch/more-room"
    "${sweep[@]}" --out "$scratch/more-room" >"$scratch/out"
    [ $status -eq 1 ] && grep -q 'cannot be written: No space left' "$scratch/err" &&
      grep -q "6 pieces, $kept found" "$scratch/out" &&
      cmp -s "$scratch/undisturbed/results.jsonl" "$scratch/more-room/results.jsonl" && borne=$((borne + 1))
    rm -rf "$scratch/more-room"
  done
  say "full disk, sweep: said, finished pieces kept, same results" $borne $tries

  borne=0 tries=0
  for free in 0 4 8 16 64 256; do
    rm -rf "$scratch/disk/"*
    [ "$free" -eq 256 ] || head -c $((256 - free))k /dev/zero >"$scratch/disk/ballast"
    TMPDIR=$scratch/disk "$program" "$graphs/toy-skip-3.json" --budget 0.8 --solver checkmate --seconds 5 \
      >"$scratch/out" 2>"$scratch/err"
    status=$?
    tries=$((tries + 1))
    [ $status -le 1 ] && grep -q checkmate "$scratch/out" && borne=$((borne + 1))
  done
  say "full directory for temporary files, checkmate" $borne $tries
else
  echo "no small file system could be mounted: the full disk is left out"
fi
borne=0
for option in --out --intervals --trace --report --dot; do
  "$program" "${solve[@]}" $option /dev/full >"$scratch/out" 2>"$scratch/err"
  [ $? -eq 1 ] && grep -q '/dev/full: cannot be written' "$scratch/err" && borne=$((borne + 1))
done
say "/dev/full as each output file" $borne 5

# ---- a pipe whose reader goes ----------------------------------------------------------------------------------------------
borne=0
for bytes in 0 1 10 100 1000; do
  { "$program" "${solve[@]}" --json 2>"$scratch/err"; echo $? >"$scratch/status"; } | head -c $bytes >/dev/null
  case $(cat "$scratch/status") in 0 | 1 | 141) [ ! -s "$scratch/err" ] || grep -q 'cannot be written' "$scratch/err" &&
    borne=$((borne + 1)) ;; esac
done
say "standard output closed after some bytes" $borne 5
borne=0
"$program" "${solve[@]}" >&- 2>"$scratch/err"; [ $? -eq 1 ] && grep -q 'cannot be written' "$scratch/err" && borne=1
say "standard output closed from the start" $borne 1

# ---- CBC killed ------------------------------------------------------------------------------------------------------------
borne=0
for moment in 0.05 0.1 0.2 0.4 0.8 1.2 1.6 2.0; do
  "$program" "$graphs/gpt2-small-b8-s1024.json" --budget 0.6 --solver checkmate --seconds 3 >"$scratch/out" 2>"$scratch/err" &
  process=$!
  ( sleep "$moment"; for k in 1 2 3; do pkill -KILL -P $process; sleep 0.05; done ) &
  wait $process
  status=$?
  wait
  [ $status -le 1 ] && grep -q checkmate "$scratch/out" && borne=$((borne + 1))
done
say "CBC's process killed: an answer, and no crash" $borne 8

# ---- signals ---------------------------------------------------------------------------------------------------------------
borne=0 tries=0
for signal in INT TERM HUP; do
  for moment in 0.02 0.1 0.3 0.7 1.1; do
    # A shell starts what runs beside it deaf to Ctrl-C, and nohup to HUP.
    env --default-signal=INT,HUP "$program" "$graphs/gpt2-medium-b4-s512.json" --budget 0.5 --solver auto --seconds 20 --json \
      >"$scratch/out" 2>"$scratch/err" &
    process=$!
    sleep "$moment"
    kill -$signal $process 2>/dev/null
    wait $process
    status=$?
    tries=$((tries + 1))
    # Before the program listens, the signal ends it; from then on the best schedule found is printed.
    case $status in 129 | 130 | 143) python3 -c 'import json, sys; [json.loads(l) for l in open(sys.argv[1])]' "$scratch/out" &&
      borne=$((borne + 1)) ;; esac
  done
done
say "Ctrl-C, TERM and HUP at random moments: 130, 143 or 129, whole lines" $borne $tries
exit $bad
