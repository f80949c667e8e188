#!/usr/bin/env bash
# The training test on two CPU ranks: the whole command, clean runs that must find nothing, and faults that must be
# found. Wanted: <= 12 s with torch's import on 2 cores; nothing in 20 clean runs.
# usage: bench/training.sh [RUNS]        default 20        needs: hyperfine
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/_lib.sh
need hyperfine "apt install hyperfine"
runs=${1:-20}
out=bench/results/training-$(date -u +%Y-%m-%d).md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
smoke="$bin/gpucheck smoke --framework torch"
hyperfine --warmup 1 --runs 5 --shell none --export-markdown "$work/time.md" \
  --command-name "python -c 'import torch' (floor)" "$bin/python -c 'import torch'" \
  --command-name "gpucheck smoke (ddp, mlp, two CPU ranks)" "$smoke --output $work/timed.txt"

summary() { # summary REPORT WHAT: one row; a run that gives no report ends the benchmark
  "$bin/python" - "$1" "$2" <<'PYTHON'
import json
import sys

report = json.load(open(sys.argv[1]))
loud = [f for f in report["findings"] if f["verdict"] not in ("pass", "skip")]
found = "; ".join(f"{f['verdict']} {f['cause'] or f['check']}: {f['seen']}" for f in loud) or "nothing"
ratios = [str(o["performance"]["straggler_ratio"]) for o in report["outcomes"] if "performance" in o]
print("|", sys.argv[2], "|", report["verdict"], "|", found, "|", ", ".join(ratios), "|", report["seconds"], "|")
PYTHON
}

for run in $(seq "$runs"); do
  # 1 and 2 are findings of a clean run, which belong in the table; anything else is no answer.
  status=0
  $smoke --format json --output "$work/run.json" || status=$?
  [ "$status" -le 3 ] || exit "$status"
  summary "$work/run.json" "clean run $run" >>"$work/clean"
done
for fault in rank-hang rank-dies allreduce-bitflip slow-rank; do
  status=0
  $smoke --simulate p100-pcie-x2 --fault "$fault" --format json --output "$work/run.json" || status=$?
  [ "$status" = 1 ] || [ "$status" = 2 ] || { echo "$fault was not found: exit status $status" >&2; exit 1; }
  summary "$work/run.json" "$fault" >>"$work/faults"
done

{
  result_head "gpucheck smoke on two CPU ranks"
  cat "$work/time.md"
  echo
  for part in clean faults; do
    echo "| what | verdict | found | straggler ratio | seconds |"
    echo "|---|---|---|---|---|"
    cat "$work/$part"
    echo
  done
} >"$out"
echo "written: $out" >&2
