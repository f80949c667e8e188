#!/usr/bin/env bash
# `gpucheck verify --level quick` on simulated machines of 1 to 16 GPUs: wall time of the whole process (hyperfine), and
# the most memory that it and its children hold together (shared pages counted once).
# Wanted: 8 GPUs <= 1.0 s and <= 60 MiB.
# usage: bench/verify.sh [RUNS]            needs: hyperfine
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/_lib.sh
need hyperfine "apt install hyperfine"
runs=${1:-10}
out=bench/results/verify-$(date -u +%Y-%m-%d).md
times=$(mktemp)
rows=$(mktemp)
trap 'rm -f "$times" "$rows"' EXIT
for row in h200-x1:1 p100-pcie-x2:2 hgx-h100-x8:8 dgx2-v100:16; do
  command="$bin/gpucheck verify --level quick --simulate ${row%:*}"
  hyperfine --warmup 2 --runs "$runs" --shell none --export-json "$times" "$command" >/dev/null
  read -r mean least cpu < <("$bin/python" -c '
import json, sys
run = json.load(open(sys.argv[1]))["results"][0]
print(*(f"{seconds:.2f}" for seconds in (run["mean"], run["min"], run["user"] + run["system"])))' "$times")
  held=0
  for _ in 1 2 3; do # short runs are sampled a few times only: the highest of three
    # shellcheck disable=SC2086 # the command is words
    now=$(EVERY_MS=3 "$bin/python" bench/_memory.py - $command | awk -F' *[|] *' '{print $5}')
    held=$((now > held ? now : held))
  done
  echo "| ${row%:*} | ${row#*:} | $mean | $least | $cpu | $held |" | tee -a "$rows" >&2
done
{
  result_head "gpucheck verify --level quick, by GPUs"
  echo "| simulated machine | GPUs | mean s | least s | processor s | MiB, children included |"
  echo "|---|---|---|---|---|---|"
  cat "$rows"
} >"$out"
echo "written: $out" >&2
