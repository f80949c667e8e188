#!/usr/bin/env bash
# Cost curve of merging: simulated fleets of 8-GPU hosts to JSON and HTML in one run.
# Wanted: 10,000 reports in <= 6 s and <= 100 MB on 2 cores, linear to 100,000.
# Smaller fleets are read from the page cache; the 8 GB of 100,000 reports are not all there, as CPU seconds tell.
# usage: bench/fleet.sh [HOSTS...]       default 1000 10000 100000 (100,000 need 9 GB in $TMPDIR and a minute to write)
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/_lib.sh
need hyperfine "apt install hyperfine"
out=bench/results/fleet-$(date -u +%Y-%m-%d).md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ $# -gt 0 ] || set -- 1000 10000 100000
for hosts in "$@"; do
  reports=$work/$hosts
  "$bin/python" bench/simulated_fleet.py --hosts "$hosts" --fault slow-gpu:gpu=3,loss=10:1% --fault slow-host:loss=10:rack=r002 \
    --fault nvlink-down:gpu=2,link=3:1% "$reports"
  cat "$reports"/*2.json >/dev/null
  measure() { "$bin/python" bench/_memory.py "$@" >>"$work/table"; }
  measure "$hosts hosts to JSON and HTML" \
    "$bin/gpucheck" fleet report "$reports" --write "$work/fleet.json" --write "$work/fleet.html"
  rm -rf "$reports"
done
{
  result_head "gpucheck fleet report, SIMULATED hgx-h100-x8 hosts"
  echo "| what | seconds | CPU seconds (user) | MB (PSS of all processes, peak) |"
  echo "| --- | ---: | ---: | ---: |"
  cat "$work/table"
} >"$out"
echo "written: $out" >&2
